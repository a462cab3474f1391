"""A file of a definition that is changed by a rename and put back by another: neither needs room on the disk.

NAME                        the file
.NAME.tokenpeak-new         what it is to become, written beforehand
.NAME.tokenpeak-before      what it was: the same file under a second name

It is read and changed as the one user who may change its folder anyway, so that nothing which that user puts there, a
link or a file of root's under a second name, has root read or change anything else.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Callable

from tokenpeak.node.machine import trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.root_files import OpenFolder, open_folder
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.users import Result, within
from tokenpeak.node.production.manager import Manager

MOST_BYTES = 1 << 20
_OF_A_NEW_ONE, _OF_A_NEW_FOLDER = 0o600, 0o755


class KeptFile:
    """The file at `path`; its content is text, None where there is no file. Each verb raises ScriptError.

    Its owner and mode stay; a new one is its owner's alone, for a command may hold a key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = path.name
        self._new = f".{path.name}.tokenpeak-new"
        self._before = f".{path.name}.tokenpeak-before"

    def read(self) -> str | None:
        """Its content now."""
        return self._by_keeper(self._read)

    def prepare(self, content: str | None) -> None:
        """Write beside it what it is to become, and give what it is a second name."""
        self._by_keeper(lambda: self._prepare(content))

    def write(self, content: str | None) -> None:
        """Make it so, whatever it is now."""
        self._by_keeper(lambda: self._write(content))

    def clean(self) -> None:
        """Remove its second names, and its folder where nothing else is in it."""
        self._by_keeper(self._clean)

    def _by_keeper(self, action: Callable[[], Result]) -> Result:
        try:
            return within(trust.keeper(self.path.parent), action)
        except OSError as error:
            raise ScriptError("definition", f"{self.path} cannot be read or changed: {error}.") from error

    def _read(self) -> str | None:
        try:
            with open_folder(self.path.parent) as folder:
                return self._content(folder, self._name)
        except FileNotFoundError:
            return None

    def _prepare(self, content: str | None) -> None:
        with open_folder(self.path.parent, make=_OF_A_NEW_FOLDER) as folder:
            facts = folder.facts(self._name)
            if facts is not None and os.geteuid() not in (0, facts.st_uid):
                raise OSError(errno.EPERM, "in a folder of this user's and not this user's file: chown it", self._name)
            if content is not None:
                self._write_beside(folder, content)
            folder.remove(self._before)
            if facts is not None:
                folder.link(self._name, self._before)
            folder.sync()

    def _write(self, content: str | None) -> None:
        if self._read() == content:
            return
        with open_folder(self.path.parent, make=None if content is None else _OF_A_NEW_FOLDER) as folder:
            if content is None:
                folder.remove(self._name)
            else:
                ready = next((one for one in (self._new, self._before) if self._content(folder, one) == content), None)
                if ready is None:
                    self._write_beside(folder, content)
                folder.rename(ready or self._new, self._name)
            folder.sync()

    def _clean(self) -> None:
        try:
            with open_folder(self.path.parent) as folder:
                for name in (self._new, self._before):
                    folder.remove(name)
                is_there = folder.facts(self._name) is not None
        except FileNotFoundError:
            return
        try:
            if not is_there:
                with open_folder(self.path.parent.parent) as above:
                    above.remove_folder(self.path.parent.name)
        except OSError:
            return

    def _content(self, folder: OpenFolder, name: str) -> str | None:
        raw = folder.read(name, MOST_BYTES + 1)
        if raw is not None and len(raw) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"more than {MOST_BYTES} bytes", name)
        return None if raw is None else raw.decode(errors="surrogateescape")

    def _write_beside(self, folder: OpenFolder, content: str) -> None:
        like = folder.facts(self._name)
        mode = _OF_A_NEW_ONE if like is None else like.st_mode & 0o777
        folder.write_new(self._new, content.encode(errors="surrogateescape"), mode, like)


class FileManager(Manager):
    """A manager whose definition is in a file that a change replaces; `own` of a description has file and content."""

    def definition_path(self) -> Path:
        """Where the file is."""
        raise NotImplementedError

    def _kept(self, own: Json) -> KeptFile:
        return KeptFile(Path(own.get("file") or self.definition_path()))

    def prepare_back(self, own: Json) -> None:
        """Write beside its place what it is to be."""
        self._kept(own).prepare(own["content"])

    def write(self, own: Json) -> None:
        """Put the file there, or take it away, and have the manager read it."""
        self._kept(own).write(own["content"])
        self.reload()

    def reload(self) -> None:
        """Have the manager read the file that was changed."""

    def clean(self, kept: list[Json]) -> None:
        """Remove the file's second names."""
        KeptFile(self.definition_path()).clean()
