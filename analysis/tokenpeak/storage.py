"""Storage refusals: a sentence for a file that could not be written here, with its path and what to do."""

import errno
import os
from pathlib import Path

from tokenpeak import paths

_NO_ROOM = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_MENDABLE = (errno.EACCES, errno.EPERM, *_NO_ROOM)
"""Why a folder or file cannot be written that is the user's to mend."""


def refusal(error: OSError) -> str | None:
    """Which file was refused, why, and what to do; None for an error that is no disk's refusal."""
    state = paths.state_dir()
    if error.filename is None and error.errno in _NO_ROOM:
        return f"{error.strerror}, for a file in {state} or {paths.HOME}. Make room there."
    if error.errno not in _MENDABLE or error.filename is None:
        return None
    path = Path(os.fsdecode(error.filename))
    elsewhere = f", or name another folder than {state} by TOKENPEAK_STATE" if path.is_relative_to(state) else ""
    reason = "No inodes left on its disk" if error.errno == errno.ENOSPC and _lacks_inodes(path) else error.strerror
    return f"{path}: {reason}. Give access or make room{elsewhere}."


def _lacks_inodes(path: Path) -> bool:
    try:
        disk = os.statvfs(next(folder for folder in path.parents if folder.is_dir()))
    except (OSError, StopIteration):
        return False
    # Some file systems count none.
    return disk.f_files > 0 and disk.f_favail == 0
