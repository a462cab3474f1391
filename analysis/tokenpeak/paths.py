"""Paths: what the package carries, the working folder, what is kept for a user, and names that become paths.

What the package carries (playbooks, notebooks, templates, examples) has the checkout's layout below `ROOT`: the
checkout itself, or the folder `shipped` of an installed wheel. The **working folder** `HOME` holds a user's
inventories, sweeps, results and site. It is, in this order: the nearest folder from the current one upward that has
`inventory/` and `sweeps/`; `TOKENPEAK_HOME`; the checkout; the current folder. Examples stand in for inventories and
sweeps that it lacks.

A sweep's id, a trial's id and an inventory's name come from data and are parts of paths in archives and sites. Their
records refuse what is no plain name; `inside` refuses, of any source, what would lead out of its folder.
"""

import hashlib
import os
import re
from pathlib import Path

from tokenpeak.errors import ArchiveError, TokenpeakError

_SHIPPED = Path(__file__).resolve().parent / "shipped"
IS_INSTALLED = _SHIPPED.is_dir()
"""Whether this is an installed wheel, not a checkout."""

ROOT = _SHIPPED if IS_INSTALLED else Path(__file__).resolve().parents[2]

PLAYBOOKS = ROOT / "playbooks"
ARCHIVES = ROOT / "analysis" / "archives"
LANDSCAPES = ROOT / "analysis" / "landscapes"
NOTEBOOKS = ROOT / "notebooks"
TEMPLATES = ROOT / "site" / "templates"
STATIC = ROOT / "site" / "static"
CONTENT = ROOT / "site" / "content"
EXAMPLE_INVENTORIES = ROOT / "inventory"
EXAMPLE_SWEEPS = ROOT / "analysis" / "sweeps"

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$"
"""One part of a path: no separator, no dot or dash in front, and short enough for every file system."""

LONGEST_SLUG = 60
"""Three of them make a file's name, which has at most 255 bytes."""

_NAME = re.compile(NAME.removeprefix("^").removesuffix("$"))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def shipped(place: str | Path) -> str | Path:
    """The shipped archive of that name, where nothing is at the place itself; else the place."""
    name = str(place)
    if Path(name).name != name or Path(name).exists():
        return place
    found = (LANDSCAPES / name, LANDSCAPES / f"{name}.tar.zst", ARCHIVES / name)
    return next((each for each in found if each.exists()), place)


def working_folder(start: Path) -> Path | None:
    """The nearest folder from `start` upward that is a working folder; None without one, or inside the checkout.

    Whether others can change it is asked by `own_place`: one that they can is refused, and not passed over.
    """
    for folder in (start, *start.parents):
        if not IS_INSTALLED and folder == ROOT:
            return None
        if (folder / "inventory").is_dir() and (folder / "sweeps").is_dir():
            return folder
    return None


def _home() -> Path:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # The current folder was removed.
        here = Path("/")
    folder = working_folder(here)
    if folder is not None:
        return folder
    if setting := os.environ.get("TOKENPEAK_HOME"):
        return Path(setting)
    return here if IS_INSTALLED else ROOT


def _own(folders: tuple[Path, ...], example: Path) -> Path:
    """The first of the folders that is there, else the example's."""
    return next((folder for folder in folders if folder.is_dir()), example)


HOME = _home()
INVENTORIES = _own((HOME / "inventory",), EXAMPLE_INVENTORIES)
SWEEPS = _own((HOME / "analysis" / "sweeps", HOME / "sweeps"), EXAMPLE_SWEEPS)
OWN_NOTEBOOKS = HOME / "notebooks"
SITE_BUILD = HOME / "site" / "build"
RESULTS = HOME / "results"


def state_dir() -> Path:
    """The folder for what survives a working folder: embedded Postgres, probe results, calibration.

    `TOKENPEAK_STATE`, else `$XDG_STATE_HOME/tokenpeak`, else `~/.local/state/tokenpeak`.
    """
    if explicit := os.environ.get("TOKENPEAK_STATE"):
        return Path(explicit)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tokenpeak"


def data_dir() -> Path:
    """The folder for what is built once and shared by working folders: engines and models.

    `$XDG_DATA_HOME/tokenpeak`, else `~/.local/share/tokenpeak`.
    """
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "tokenpeak"


def is_name(word: object) -> bool:
    """Whether `word` may be one part of a path."""
    return isinstance(word, str) and _NAME.fullmatch(word) is not None


def inside(folder: Path, name: str, *, may_link: bool = False, error: type[TokenpeakError] = ArchiveError) -> Path:
    """`folder`/`name`, where that is below `folder`; `error` says what leads out of it.

    Links on the way may not lead out either, unless `may_link`: of a folder in which only its owner makes links.
    """
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or _CONTROL.search(name):
        raise error(f"{shown(name)} leads out of {folder}, or is no name of a file. Nothing was read or written there.")
    path = folder / name
    try:
        is_below = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as reason:
        raise error(f"{shown(name)} cannot be a file in {folder} ({reason}).") from reason
    if not is_below and not may_link:
        raise error(f"{shown(name)} leads out of {folder} by a link. Put the file itself there.")
    return path


def shown(text: object, most: int = 80) -> str:
    """Words of another's file as an error message quotes them: without control characters, and not long."""
    quoted = repr(text)
    return quoted if len(quoted) <= most else f"{quoted[: most - 2]}…'"


def slug(text: str) -> str:
    """A name for addresses and files: lower case, digits and single dashes; a long one is cut and has a digest."""
    words = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text.lower()).split("-")
    name = "-".join(word for word in words if word)
    if len(name) <= LONGEST_SLUG:
        return name
    return f"{name[: LONGEST_SLUG - 9]}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
