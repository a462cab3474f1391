"""Files and folders that are changed on the node, each by the descriptor of its folder; no other module changes any.

A path that root follows twice may lead to two places: whoever can write a folder on it puts a link there in between.
So a folder is opened once, and everything is done in it by name: made anew (O_EXCL), never through a link (O_NOFOLLOW),
its owner and mode set on what was opened, renamed and removed within the folder. On the way to it a link is followed
only where nobody but root and this user could have put it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from tokenpeak.node.machine import trust

_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
KEPT_LOG_BYTES = 8 << 20
"""Of a log when its trial has ended: what is collected."""
MOST_LOG_BYTES = 4 * KEPT_LOG_BYTES
"""Of a log that is being written: so it is cut seldom."""
_MARK_BYTES = 64
_MARK = re.compile(rb"\n\[(\d{1,20}) bytes left out\]\n")
_BLOCK_BYTES = 512


class OpenFolder:
    """A folder that is open: what is changed below is changed in this very one, wherever its path leads meanwhile."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def names(self) -> list[str]:
        """The names of its entries."""
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries]

    def is_folder(self, name: str) -> bool:
        """Whether an entry is a folder, and no link to one."""
        facts = self.facts(name)
        return facts is not None and stat.S_ISDIR(facts.st_mode)

    def facts(self, name: str) -> os.stat_result | None:
        """The facts of an entry, of a link the link's own; None where there is none."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """A file's content, at most that much; None where there is none. OSError for what is no regular file."""
        try:
            descriptor = self.reading(name)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(limit_bytes)

    def reading(self, name: str) -> int:
        """A descriptor that reads a regular file; OSError for a link and whatever else is there."""
        return self._regular(name, self._open(name, _READ))

    def write_new(
        self, name: str, content: bytes, mode: int, like: os.stat_result | None = None, durable: bool = True
    ) -> None:
        """Make a file with that content and mode in place of what has the name; of the owner and group of `like`."""
        self.remove(name)
        descriptor = self._open(name, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                if like is not None:
                    _give(descriptor, like)
                os.fchmod(descriptor, mode)
                stream.write(content)
                stream.flush()
                if durable:
                    os.fsync(descriptor)
        except OSError:
            self.remove(name)
            raise

    def put(self, name: str, content: bytes, mode: int, durable: bool = True) -> None:
        """Replace a file atomically; `durable` makes it survive a power loss at once."""
        part = f".{name}.{os.getpid()}.tmp"
        self.write_new(part, content, mode, durable=durable)
        try:
            self.rename(part, name)
        except OSError:
            self.remove(part)
            raise
        if durable:
            self.sync()

    def write_into(self, name: str, mode: int, how: int) -> int:
        """A descriptor that writes into the file as it is, or a new one, by O_APPEND or O_TRUNC."""
        return self._regular(name, self._open(name, _WRITE | os.O_CREAT | how, mode))

    def link(self, name: str, second: str) -> None:
        """Give a file a second name."""
        here = self._descriptor
        os.link(name, second, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)

    def rename(self, name: str, new_name: str) -> None:
        """Give an entry another name, in place of what has it."""
        os.rename(name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> bool:
        """Remove a file or a link; whether there was one."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder; OSError where it is none."""
        os.rmdir(name, dir_fd=self._descriptor)

    def remove_tree(self, name: str) -> None:
        """Remove an entry, and what is in it where it is a folder, links as links."""
        if not self.is_folder(name):
            self.remove(name)
            return
        with self.below(name) as inner:
            for each in inner.names():
                inner.remove_tree(each)
        self.remove_folder(name)

    def take(self, name: str, source: OpenFolder) -> None:
        """Move an entry of another folder into this one."""
        os.rename(name, name, src_dir_fd=source._descriptor, dst_dir_fd=self._descriptor)

    @contextmanager
    def below(self, name: str, make: bool = False) -> Iterator[OpenFolder]:
        """A folder in this one, open; OSError for a link."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=self._descriptor)
        descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield OpenFolder(self._path / name, descriptor)
        finally:
            os.close(descriptor)

    def own_facts(self) -> os.stat_result:
        """The facts of the folder itself."""
        return os.fstat(self._descriptor)

    def close_to_others(self) -> None:
        """Take every right of others away from the folder itself."""
        os.fchmod(self._descriptor, 0o700)

    def sync(self) -> None:
        """Make renames and removals durable."""
        os.fsync(self._descriptor)

    def _open(self, name: str, flags: int, mode: int = 0o600) -> int:
        if not name or "/" in name or name in (".", ".."):
            raise OSError(errno.EINVAL, "no name of a file", str(self._path / name))
        try:
            return os.open(name, flags, mode, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                words = "a link, which is not followed: name the file itself"
                raise OSError(errno.ELOOP, words, str(self._path / name)) from error
            error.filename = str(self._path / name)
            raise

    def _regular(self, name: str, descriptor: int) -> int:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(self._path / name))


@contextmanager
def open_folder(folder: Path, make: int | None = None) -> Iterator[OpenFolder]:
    """The folder, open; with `make` it is made with that mode where it is missing, and those above it are.

    Raises OSError as the kernel does, and for a link that others could have put on the way.
    """
    at = _walked(folder, make)
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
    try:
        yield OpenFolder(folder, descriptor)
    finally:
        os.close(descriptor)


def put(path: Path, content: bytes, mode: int, durable: bool = True) -> None:
    """Replace a file atomically."""
    with open_folder(path.parent) as folder:
        folder.put(path.name, content, mode, durable)


def remove(path: Path) -> bool:
    """Remove a file or a link; whether there was one."""
    try:
        with open_folder(path.parent) as folder:
            return folder.remove(path.name)
    except FileNotFoundError:
        return False


def appending(path: Path) -> int:
    """A descriptor that writes to the end of a file, which is made for this user alone."""
    with open_folder(path.parent) as folder:
        return folder.write_into(path.name, 0o600, os.O_APPEND)


def empty(path: Path) -> None:
    """Have an empty file there for this user alone: the very one that is there, which a process may write on to."""
    with open_folder(path.parent) as folder:
        descriptor = folder.write_into(path.name, 0o600, os.O_TRUNC)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def cut(path: Path, length: int, end: bytes) -> None:
    """Cut a file after so many bytes and write `end` to its end: the very one that is there, as in `empty`."""
    descriptor = appending(path)
    with os.fdopen(descriptor, "wb") as stream:
        os.ftruncate(descriptor, length)
        stream.write(end)


def write_setting(path: Path, text: str) -> None:
    """Write into a file of the kernel's, such as those in /proc."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _give(descriptor: int, like: os.stat_result) -> None:
    """Give a file the owner and group of another, as far as this user may: a user may do neither to others."""
    try:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    except PermissionError:
        return


def _walked(folder: Path, make: int | None) -> int:
    """A descriptor of the folder (O_PATH), step by step from /."""
    current = os.open("/", _LOOK)
    is_ours, links = True, 0
    pending = _parts(str(folder.absolute()))
    try:
        while pending:
            part = pending.pop()
            try:
                following = _step(current, part, make if not pending or make is None else 0o755)
            except NotADirectoryError:
                target = _target(current, part, folder, is_ours)
                links += 1
                if links > trust.LINKS:
                    raise OSError(errno.ELOOP, "too many links", str(folder)) from None
                pending.extend(_parts(target))
                # What came before has no part in an absolute path.
                following = os.open("/", _LOOK) if target.startswith("/") else os.dup(current)
            except OSError as error:
                error.filename = str(folder)
                raise
            os.close(current)
            current = following
            is_ours = is_ours and not _others_may_add(current)
    except BaseException:
        os.close(current)
        raise
    return current


def _parts(path: str) -> list[str]:
    """The names on a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _step(current: int, part: str, make: int | None) -> int:
    """A descriptor of the next folder, made with that mode where it is missing."""
    try:
        return os.open(part, _LOOK, dir_fd=current)
    except FileNotFoundError:
        if make is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(part, make, dir_fd=current)
    return os.open(part, _LOOK, dir_fd=current)


def _target(current: int, part: str, folder: Path, is_ours: bool) -> str:
    """Where a link leads; OSError where there is none, or one that others could have put there."""
    facts = os.stat(part, dir_fd=current, follow_symlinks=False)
    if not stat.S_ISLNK(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not is_ours or facts.st_uid not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"{part} on the way is a link that others could have put there", str(folder))
    return os.readlink(part, dir_fd=current)


def _others_may_add(folder: int) -> bool:
    """Whether others than root and this user may put an entry into an open folder."""
    facts = os.fstat(folder)
    place = Path(f"/proc/self/fd/{folder}")
    return facts.st_uid not in (0, os.geteuid()) or trust.others_write(place, facts, facts.st_uid)


def bound_log(log: Path) -> None:
    """Cut a log that is being written, where it has grown too large."""
    if _log_size(log) > MOST_LOG_BYTES:
        cut_log(log)


def cut_log(log: Path) -> None:
    """Keep the first and the last part of a log; nothing else is lost where the disk refuses that."""
    with suppress(OSError):
        if _log_size(log) <= KEPT_LOG_BYTES:
            return
        part = (KEPT_LOG_BYTES - _MARK_BYTES) // 2
        with log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(part)
            before = _MARK.match(stream.read(_MARK_BYTES))
        # Room that was only reserved, beyond its end, is given back as well.
        end = trust.read_end(log, part) if size > KEPT_LOG_BYTES else b""
        if end:
            # What earlier cuts left out is gone with their mark.
            left_out = size - 2 * part + (int(before[1]) - len(before[0]) if before else 0)
            end = f"\n[{left_out} bytes left out]\n".encode() + end
        cut(log, part if end else size, end)


def _log_size(log: Path) -> int:
    """The bytes that it takes of the disk, or would if it had no holes; 0 where there is none."""
    try:
        facts = log.stat()
    except OSError:
        return 0
    # File systems reserve some room beyond a file's end.
    return max(facts.st_size, facts.st_blocks * _BLOCK_BYTES - MOST_LOG_BYTES)
