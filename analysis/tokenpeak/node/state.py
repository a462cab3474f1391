"""The node's state folder: small JSON files, root-only, each replaced atomically.

    node.json         what the inventory declares of this node (written by install)
    secret-…          a controller's secret, from which each of its trials' API keys follows
    record.json       production as it was; present exactly while a trial has the node in its hands ("armed")
    lease.json        when the controller was last heard of
    lock.json         which sweep has the node
    engine.json       the engine under test: unit or process, log
    guard.json        the watchdog that is watching, where no systemd does
    production.json   production's own process, where the node script starts it itself
    engine-help.json  what the engine's own help says of its flags
    telemetry.csv     samples of the current trial
    outcome.json      how the last restoration ended

A write is durable when it returns: temporary file, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator

from tokenpeak.node import trust
from tokenpeak.node.trouble import Trouble

Json = Dict[str, Any]

DECLARATION = "node.json"
DECLARATION_BYTES = 1 << 20


class State:
    """A state folder that nobody but its user (and root) can write, nor put another in its place.

    It is looked at, never made or changed: `install` alone does that, by `make`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        try:
            found = self.folder.stat()
            danger = trust.writable_by_others(self.folder, os.geteuid())
        except (FileNotFoundError, NotADirectoryError):
            raise Trouble(
                "not_installed",
                f"TokenPeak is not installed in {self.folder}: `make install` (or `make probe`) puts it there.",
            ) from None
        except OSError as error:
            raise Trouble("state", f"The state folder {self.folder} cannot be looked at: {error}.") from error
        if not stat.S_ISDIR(found.st_mode):
            raise Trouble("state", f"The state folder {self.folder} is no folder: set another tokenpeak_state_dir.")
        if found.st_uid != os.geteuid():
            raise Trouble(
                "state",
                f"The state folder {self.folder} belongs to user {found.st_uid}, not to {os.geteuid()}: "
                "run as that user, or remove the folder.",
            )
        if danger:
            raise Trouble(
                "state",
                f"The state folder {self.folder} is in the hands of others: {danger}. Take that right away, or set "
                "another tokenpeak_state_dir.",
            )

    @classmethod
    def make(cls, folder: Path) -> State:
        """The state folder, made when there is none, for its user alone; nothing else makes or changes one."""
        folder = folder.absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
            if (
                found.st_uid == os.geteuid()
                and stat.S_IMODE(found.st_mode) & 0o077
                and not found.st_mode & stat.S_ISVTX
            ):
                folder.chmod(0o700)
        except OSError as error:
            raise Trouble("state", f"The state folder {folder} cannot be made: {error}.") from error
        return cls(folder)

    def declaration(self) -> Json:
        """What the inventory declares of the node; empty when nothing does. Commands in it are run: it must be ours."""
        try:
            raw = trust.read_own(self.path(DECLARATION), trust.OTHERS_WRITE, DECLARATION_BYTES, follow=False)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Trouble("state", f"{self.path(DECLARATION)} cannot be read: {error.strerror}.") from error
        return self._object(DECLARATION, raw)

    def path(self, name: str) -> Path:
        """Where the file called `name` is."""
        return self.folder / name

    def read(self, name: str, durable: bool = True) -> Json | None:
        """A JSON file's content; None when there is none.

        `durable` as it was written: of a write that was not, a power loss may leave the name with an empty file, or
        one of zeros, which then is none.
        """
        try:
            raw = self.path(name).read_bytes()
        except FileNotFoundError:
            return None
        if not durable and not raw.strip(b"\0"):
            return None
        return self._object(name, raw)

    def _object(self, name: str, raw: bytes) -> Json:
        """The JSON object that the file called `name` holds."""
        try:
            value = json.loads(raw)
        except ValueError as error:
            raise Trouble("state", f"{self.path(name)} is not JSON ({error}): look at it, then remove it.") from error
        if not isinstance(value, dict):
            raise Trouble("state", f"{self.path(name)} holds no JSON object: look at it, then remove it.")
        return value

    def write(self, name: str, value: Json, durable: bool = True) -> None:
        """Replace a JSON file; `durable` makes it survive a power loss that follows at once."""
        target = self.path(name)
        temporary = self.path(f".{name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(json.dumps(value, indent=1, sort_keys=True).encode())
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink()
            raise
        if durable:
            self.sync()

    def require_room(self, least_bytes: int) -> None:
        """Raise Trouble unless the folder's disk has so much room."""
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < least_bytes:
            raise Trouble(
                "disk",
                f"No space left on the node's disk: {self.folder} has {free_bytes / 1e6:.1f} MB free and a trial needs "
                f"{least_bytes / 1e6:.1f} MB. Make room, then resume the sweep.",
            )

    def remove(self, name: str) -> None:
        """Remove a file durably; a missing one is fine."""
        try:
            self.path(name).unlink()
        except FileNotFoundError:
            return
        self.sync()

    def sync(self) -> None:
        """Make renames and removals in the folder durable."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Only one command at a time changes the node; the kernel lets go when its holder dies."""
        descriptor = os.open(self.path("mutex"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "rb+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
