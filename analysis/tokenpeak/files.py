"""Files on the controller: atomic write, deletion, and the sentence for a file that could not be written.

A file has its former content or its new one, never a part; a power loss that follows changes nothing. What goes is what
a folder holds by a name, a link as a link: the folder is opened once, without following a link that others could have
put on the way (`node.machine.root_files`), and all is deleted by its descriptor; no other module deletes anything. The
modules of a node import nothing of the package and have their own.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenpeak import paths
from tokenpeak.node.machine.root_files import open_folder

_NO_ROOM = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_MENDABLE = (errno.EACCES, errno.EPERM, *_NO_ROOM)
"""Why a folder or file cannot be written that is the user's to mend."""


def delete(path: Path) -> None:
    """Delete a file, a link, or a folder with all in it; nothing where there is none. Raises OSError."""
    with suppress(FileNotFoundError), open_folder(path.parent) as folder:
        folder.remove_tree(path.name)


def delete_if_possible(path: Path) -> None:
    """Delete it as far as that can be done: what is left does no harm."""
    with suppress(OSError):
        delete(path)


@contextmanager
def replacing(target: Path, *, durable: bool = True) -> Iterator[Path]:
    """The new, empty file `.NAME.PID.part` to write to; it takes the place of `target` when the block ends well.

    Nothing is written through a link, by either name. An OSError names `target`: what a write itself raises, on a full
    disk say, names no file.
    """
    with _placing(target, durable=durable) as part:
        os.close(_new_file(part, 0o666))
        yield part


def _new_file(path: Path, mode: int) -> int:
    """A descriptor of a file that was not there before, whatever had its name."""
    delete(path)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode)


@contextmanager
def _placing(target: Path, *, durable: bool) -> Iterator[Path]:
    """The name of the part, which is put in the place of `target` when the block ends well, else it goes."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        if durable:
            sync(part)
        part.replace(target)
        if durable:
            sync(target.parent)
    except BaseException as error:
        with suppress(OSError):
            delete(part)
        if isinstance(error, OSError) and error.filename in (None, str(part), part):
            error.filename = str(target)
        raise


def write_atomically(target: Path, content: str | bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Replace a file's content. `mode` is a new file's, less the umask; `durable` off is for what may be lost."""
    data = content.encode() if isinstance(content, str) else content
    with _placing(target, durable=durable) as part, os.fdopen(_new_file(part, mode), "wb") as file:
        file.write(data)


def sync(path: Path) -> None:
    """Have a file's content, or a folder's entries, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
