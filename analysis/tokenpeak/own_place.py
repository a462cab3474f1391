"""Places that are this user's own: nobody else but root can lead a path there elsewhere, or write what it holds.

What others can write in a working folder runs as this user: notebooks, inventories with their commands, sweeps. What
root writes below a folder of another's can be led anywhere by a link.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tokenpeak.errors import InputError
from tokenpeak.node import trust

PARTS = ("inventory", "sweeps", "analysis", "notebooks", "results", "site")
"""What a working folder has."""
READ = ("inventory", "sweeps", "analysis/sweeps", "notebooks")
"""Of these, what is read and run."""


def require_working_folder(folder: Path) -> None:
    """InputError where others can change the folder, a part of it, or a file that is run of it.

    A folder without any part is none yet: only that others cannot make it one counts.
    """
    for path in (folder, *(folder / name for name in PARTS), *_files(folder)):
        if danger := _danger(path):
            raise InputError(
                f"The working folder {folder} is in the hands of others: {danger}. What they put there would run as "
                f"you. Take that right away (chmod go-w, chown), or work elsewhere: tokenpeak init ~/mine && cd ~/mine."
            )


def require_as_root(place: Path, what: str, way_out: str) -> None:
    """InputError where root is to write `what` to a place that another user could lead elsewhere."""
    if os.geteuid() == 0 and (danger := _danger(place)):
        raise InputError(
            f"Root writes no {what} to {place}, which others could lead elsewhere by a link: {danger}. {way_out}"
        )


def _danger(path: Path) -> str | None:
    try:
        return trust.led_elsewhere(path, os.geteuid())
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"


def _files(folder: Path) -> Iterator[Path]:
    """Of all that is run of a working folder, what is another user's, can be written by others, or is a link."""
    uid = os.geteuid()
    looked: dict[tuple[int, int], bool] = {}
    for name in READ:
        for path in (folder / name).rglob("*"):
            facts = path.lstat()
            kind = (facts.st_gid, facts.st_mode & trust.OTHERS_WRITE)
            if kind not in looked:
                looked[kind] = trust.others_write(facts, uid)
            if stat.S_ISLNK(facts.st_mode) or facts.st_uid not in (0, uid) or looked[kind]:
                yield path
