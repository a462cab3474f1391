"""Names that come from data and become paths: their pattern, and the one function that joins them to a folder.

A sweep's id, a trial's id and an inventory's name are parts of paths in archives and sites. Their records refuse what
is no plain name; `inside` refuses, of any source, what would lead out of its folder.
"""

import hashlib
import re
from pathlib import Path

from tokenpeak.errors import ArchiveError, TokenpeakError

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$"
"""One part of a path: no separator, no dot or dash in front, and short enough for every file system."""

LONGEST_SLUG = 60
"""Three of them make a file's name, which has at most 255 bytes."""

_NAME = re.compile(NAME.removeprefix("^").removesuffix("$"))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


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
