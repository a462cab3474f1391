"""A file that is changed by a rename and put back by another: neither needs room on the disk.

NAME                        the file
.NAME.tokenpeak-new         what it is to become, written beforehand
.NAME.tokenpeak-before      what it was: the same file under a second name
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class KeptFile:
    """The file at `path`; its content is text, None where there is no file.

    Its owner and mode stay; a new one is its owner's alone, for a command may hold a key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new = path.with_name(f".{path.name}.tokenpeak-new")
        self._before = path.with_name(f".{path.name}.tokenpeak-before")

    def read(self) -> str | None:
        """Its content now."""
        return _read(self.path)

    def prepare(self, content: str | None) -> None:
        """Write beside it what it is to become, and give what it is a second name."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            self._write_beside(content)
        self._before.unlink() if _read(self._before) is not None else None
        if self.path.exists():
            os.link(self.path, self._before)
        _sync(self.path.parent)

    def write(self, content: str | None) -> None:
        """Make it so, whatever it is now."""
        if self.read() == content:
            return
        if content is None:
            self.path.unlink()
        else:
            ready = next((one for one in (self._new, self._before) if _read(one) == content), None)
            if ready is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._write_beside(content)
                ready = self._new
            ready.replace(self.path)
        _sync(self.path.parent)

    def clean(self) -> None:
        """Remove its second names, and its folder where nothing else is in it."""
        for path in (self._new, self._before):
            if path.exists():
                path.unlink()
        try:
            if not self.path.exists():
                self.path.parent.rmdir()
        except OSError:
            return

    def _write_beside(self, content: str) -> None:
        descriptor = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode(errors="surrogateescape"))
            stream.flush()
            os.fsync(stream.fileno())
        if self.path.exists():
            shutil.copymode(self.path, self._new)
            found = self.path.stat()
            os.chown(self._new, found.st_uid, found.st_gid)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
