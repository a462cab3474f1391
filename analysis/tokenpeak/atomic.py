"""Atomic write: a file has its former content or its new one, never a part; a power loss that follows changes nothing.

For the modules of the controller; those of a node import nothing of the package and have their own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenpeak.deletion import delete


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
