"""Places that are this user's own: nobody else but root can lead a path there elsewhere, or write what it holds.

What others can write in a working folder runs as this user: notebooks, inventories with their commands, sweeps. What
root writes below a folder of another's can be led anywhere by a link.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tokenpeak.errors import InputError
from tokenpeak.node.machine import trust

PARTS = ("inventory", "sweeps", "analysis", "notebooks", "results", "site")
"""Parts of a working folder."""
READ = ("inventory", "sweeps", "analysis/sweeps", "notebooks")
"""Of these, what is read and run."""
_GIT_PLACES = frozenset(
    f"GIT_{name}"
    for name in (
        *("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "INDEX_FILE", "COMMON_DIR", "PREFIX", "NAMESPACE", "CONFIG"),
        *("OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "QUARANTINE_PATH", "SHALLOW_FILE", "GRAFT_FILE"),
        *("NO_REPLACE_OBJECTS", "REPLACE_REF_BASE", "INTERNAL_SUPER_PREFIX", "TEMPLATE_DIR"),
    )
)
"""What `git rev-parse --local-env-vars` names and more; how a user logs in (GIT_SSH_COMMAND, GIT_ASKPASS) remains."""


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


def require_unmoved(place: Path, content: str, way_out: str) -> None:
    """InputError where `what` is to be written to a place that everybody, or as root anybody, could lead elsewhere.

    A folder that a group may write is one that a user has chosen to share with it; root shares with nobody.
    """
    if os.geteuid() == 0 and (danger := _danger(place)):
        raise InputError(
            f"Root writes no {content} to {place}, which others could lead elsewhere by a link: {danger}. {way_out}"
        )
    if danger := _led_by_anybody(place):
        raise InputError(f"No {content} is written to {place}, {danger}, or take another folder.")


def make_own(folder: Path) -> None:
    """Make a folder that nobody but this user, and perhaps its group, may write; InputError where there is one.

    In a folder such as /tmp, what has the name already is somebody else's, or leads there.
    """
    try:
        folder.mkdir(mode=0o775)
    except FileExistsError as error:
        raise InputError(f"{folder} is there already, and not ours. Remove it, or take another folder.") from error


def require_own_entries(*paths: Path) -> None:
    """InputError where somebody else was first, by one of these names, in a folder that everybody may write."""
    for path in paths:
        is_open = os.path.lexists(path) and path.parent.stat().st_mode & stat.S_IWOTH
        if is_open and path.lstat().st_uid != os.geteuid():
            raise InputError(
                f"{path} is another user's, in a folder that everybody may write. Take a folder of your own."
            )


def git_environment() -> dict[str, str]:
    """The variables of this process without those by which git works in another repository than the one it is given."""
    return {name: text for name, text in os.environ.items() if name not in _GIT_PLACES}


def _danger(path: Path) -> str | None:
    try:
        return trust.led_elsewhere(path, os.geteuid())
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"


def _led_by_anybody(path: Path) -> str | None:
    """How everybody could lead a path elsewhere, or who was first did, and a way out; None when nobody can.

    Where everybody may write, nobody may replace another's entry by the sticky bit alone, and each entry has an owner.
    """
    shared: set[Path] = set()
    # What is missing is made by us, in the last one that is there.
    with suppress(OSError):
        for step, facts in trust.steps(path):
            if step.parent in shared and facts.st_uid not in (0, os.geteuid()):
                return f"where {step} is another user's, in a folder that everybody may write. Remove it"
            if not stat.S_ISDIR(facts.st_mode) or not facts.st_mode & stat.S_IWOTH:
                continue
            if not facts.st_mode & stat.S_ISVTX:
                return (
                    f"which every user could lead elsewhere by a link: everybody can write {step}. Take that right "
                    f"away (chmod o-w {step}), let nobody replace another's entries there (chmod +t {step})"
                )
            shared.add(step)
    return None


def _files(folder: Path) -> Iterator[Path]:
    """Of all that is run of a working folder, what is another user's, can be written by others, or is a link."""
    uid = os.geteuid()
    looked: dict[tuple[int, int, bool], bool] = {}
    for name in READ:
        for path in (folder / name).rglob("*"):
            facts = path.lstat()
            mode = facts.st_mode & trust.OTHERS_WRITE
            kind = (facts.st_gid, mode, bool(mode) and trust.has_access_list(path))
            if kind not in looked:
                looked[kind] = trust.others_write(path, facts, uid)
            if stat.S_ISLNK(facts.st_mode) or facts.st_uid not in (0, uid) or looked[kind]:
                yield path
