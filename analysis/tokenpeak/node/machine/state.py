"""The node's state folder: small JSON files, root-only, each replaced atomically.

    node.json         what the inventory declares of this node (written by put)
    secret-…          a controller's secret, from which each of its trials' API keys follows
    record.json       production as it was; present exactly while a trial has the node in its hands ("armed")
    lease.json        when the controller was last heard of
    lock.json         which sweep has the node, and what it found production serve
    generations.json  the newest controller of each sweep that was resumed
    engine.json       the engine under test: unit or process, log
    guard.json        the watchdog that is watching, where no systemd does
    production.json   production's own process, where the node script starts it itself
    engine-help.json  what the engine's own help says of its flags
    phase.json        what a command has begun last
    telemetry.jsonl   samples of the current trial
    outcome.json      how the last restoration ended, and those of other trials before it
    hold.json         since when the node is held for production: a person gave it back from a sweep that lived
    applied.json      the last apply that was confirmed: the record that it had, for its rollback
    production-start.json     a start of production by a start command that has not answered yet
    production-command.json   what an apply put in place of the command of a process that the node script starts

A write is durable when it returns: temporary file, fsync, rename, fsync of the folder. What production cannot come
back without (`KEPT_TWICE`) carries a checksum and lies there twice (`record.json`, `record.copy.json`), so that one
torn file does not matter; a lease has a checksum alone. Of the other files an unreadable one counts as missing: a
lease has lapsed, a lock is free.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any, Dict

from tokenpeak.node.machine import root_files, trust, words
from tokenpeak.node.machine.error import ScriptError

Json = Dict[str, Any]

DECLARATION = "node.json"
SCRIPT = "tokenpeak-node.pyz"
SPARE_BYTES = 64 * 1024
LEAST_INODES = 100
"""For a trial's files here, twice while each is replaced, and what the engine makes beside them."""
DECLARATION_BYTES = 1 << 20
KEPT_TWICE = ("record.json", "engine.json", "production.json", "applied.json", "generations.json")
CHECKED = (*KEPT_TWICE, "lease.json")
"""A digit that is another leaves JSON, and a lease that lasts for hours."""
_CHECKSUM = "checksum"


def copy_name(name: str) -> str:
    """Name of the second copy of a file in KEPT_TWICE."""
    return name.replace(".json", ".copy.json")


class UnreadableError(ScriptError):
    """A file of the state folder that nothing can go on without, and that cannot be read."""

    def __init__(self, text: str) -> None:
        super().__init__("state", text)


class State:
    """A state folder that nobody but its user (and root) can write, nor put another in its place.

    It is looked at, never made or changed: `put` and `install` alone do that, by `make`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        if wrong := words.wrong_name(str(self.folder), words.PATH_CHARACTERS):
            raise ScriptError("state", f"The path of the state folder {wrong}: set another tokenpeak_state_dir.")
        try:
            facts = self.folder.stat()
            danger = trust.writable_by_others(self.folder, os.geteuid())
        except (FileNotFoundError, NotADirectoryError):
            raise ScriptError(
                "not_installed",
                f"TokenPeak is not installed in {self.folder}: `tokenpeak install` (or `probe`) puts it there.",
            ) from None
        except OSError as error:
            raise ScriptError("state", f"The state folder {self.folder} cannot be looked at: {error}.") from error
        if not stat.S_ISDIR(facts.st_mode):
            raise ScriptError("state", f"The state folder {self.folder} is no folder: set another tokenpeak_state_dir.")
        if facts.st_uid != os.geteuid():
            raise ScriptError(
                "state",
                f"The state folder {self.folder} belongs to user {facts.st_uid}, not to {os.geteuid()}: "
                "run as that user, or remove the folder.",
            )
        if danger:
            raise ScriptError(
                "state",
                f"The state folder {self.folder} is in the hands of others: {danger}. Take that right away, or set "
                "another tokenpeak_state_dir.",
            )

    @classmethod
    def make(cls, folder: Path) -> State:
        """The state folder, made when there is none, for its user alone; nothing else makes or changes one."""
        folder = folder.absolute()
        try:
            with root_files.open_folder(folder, make=0o700) as made:
                facts = made.own_facts()
                is_own = facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_ISVTX
                if is_own and stat.S_IMODE(facts.st_mode) & 0o077:
                    made.close_to_others()
        except OSError as error:
            raise ScriptError("state", f"The state folder {folder} cannot be made: {error.strerror}.") from error
        return cls(folder)

    def declaration(self) -> Json:
        """The inventory's declaration of the node; empty when nothing does. Commands in it are run: it must be ours."""
        try:
            raw = trust.read_own(self.path(DECLARATION), trust.OTHERS_WRITE, DECLARATION_BYTES, follow=False)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ScriptError("state", f"{self.path(DECLARATION)} cannot be read: {error.strerror}.") from error
        return self._object(self.path(DECLARATION), raw)

    @property
    def digest(self) -> str:
        """Digest that distinguishes this state folder's units and processes from those of others on the machine."""
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]

    def path(self, name: str) -> Path:
        """Where the file called `name` is."""
        return self.folder / name

    def copy_path(self, name: str) -> Path:
        """Where the second copy of a file in KEPT_TWICE is."""
        return self.path(copy_name(name))

    def has(self, name: str) -> bool:
        """Whether the file is there, in either copy, readable or not."""
        return self.path(name).exists() or (name in KEPT_TWICE and self.copy_path(name).exists())

    def read(self, name: str) -> Json | None:
        """A JSON file's content; None when there is none.

        Raises UnreadableError for both copies of a file in KEPT_TWICE; any other file that is no JSON object counts
        as missing.
        """
        if name not in KEPT_TWICE:
            try:
                return self._read(self.path(name))
            except UnreadableError:
                return None
        problem: UnreadableError | None = None
        for path in (self.path(name), self.copy_path(name)):
            try:
                content = self._read(path)
            except UnreadableError as error:
                problem = problem or error
                continue
            if content is not None:
                return content
        if problem:
            raise problem
        return None

    def _read(self, path: Path) -> Json | None:
        """The object in a file, checked against its checksum where it has one; None when there is no file."""
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{path} cannot be read ({error.strerror}): look at the disk.") from error
        return self._object(path, raw)

    @staticmethod
    def _object(path: Path, raw: bytes) -> Json:
        """The JSON object that a file holds."""
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"{path} is not JSON ({error}): look at it, then remove it.") from error
        if not isinstance(value, dict):
            raise UnreadableError(f"{path} holds no JSON object: look at it, then remove it.")
        if value.pop(_CHECKSUM, None) not in (None, _checksum(value)):
            raise UnreadableError(f"{path} does not match its checksum: look at it, then remove it.")
        return value

    def write(self, name: str, value: Json, durable: bool = True) -> None:
        """Replace a JSON file, in both copies where it has two; `durable` makes it survive a power loss at once."""
        content = {**value, _CHECKSUM: _checksum(value)} if name in CHECKED else value
        self._write(self.path(name), content, durable)
        if name in KEPT_TWICE:
            self._write(self.copy_path(name), content, durable)

    def _write(self, target: Path, value: Json, durable: bool) -> None:
        root_files.put(target, content_of(value), 0o600, durable)

    def put(self, name: str, content: bytes, mode: int) -> bool:
        """Replace a file durably, unless this user's file there has that very content and mode; whether it had not."""
        if _is_own_file(self.path(name), content, mode):
            return False
        root_files.put(self.path(name), content, mode)
        return True

    def require_room(self, least_bytes: int) -> None:
        """Raise ScriptError unless the folder's disk has so much room, and inodes for a trial's files."""
        if (problem := self.inode_problem()) is not None:
            raise ScriptError("disk", f"{problem}, then resume the sweep.")
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < least_bytes:
            raise ScriptError(
                "disk",
                f"No space left on the node's disk: {self.folder} has {free_bytes / 1e6:.1f} MB free and a trial needs "
                f"{least_bytes / 1e6:.1f} MB. Make room, then resume the sweep.",
            )

    def inode_problem(self) -> str | None:
        """Why a trial's files would find no inode on the folder's disk, and what to do; None where they would."""
        disk = os.statvfs(self.folder)
        # Some file systems count none.
        if disk.f_files == 0 or disk.f_favail >= LEAST_INODES:
            return None
        return (
            f"No inodes left on the node's disk: {self.folder} can have {disk.f_favail} more files and a trial needs "
            f"{LEAST_INODES}. Remove files there"
        )

    def why_unwritable(self) -> str | None:
        """Why nothing can be written in the folder, and what to do; None where something can. Writes nothing itself."""
        if not os.statvfs(self.folder).f_flag & os.ST_RDONLY:
            return None
        return (
            f"{self.folder} is on a disk that is read-only, as after an error (see `dmesg`): no record there can be "
            "changed or removed. Mend the disk and mount it again for writing, then run `tokenpeak restore`."
        )

    def remove(self, name: str) -> None:
        """Remove a file durably, in both copies where it has two; a missing one is fine."""
        with root_files.open_folder(self.folder) as folder:
            # The copy first: what is left by a crash in between is the newest content.
            copies = [folder.remove(copy_name(name))] if name in KEPT_TWICE else []
            if any([*copies, folder.remove(name)]):
                folder.sync()

    def rename(self, name: str, new_name: str) -> None:
        """Give a file in KEPT_TWICE another such name, in both copies; that needs no room on the disk."""
        with root_files.open_folder(self.folder) as folder:
            # The copy first: until the file itself has gone, it is there under its old name.
            for each, new in ((copy_name(name), copy_name(new_name)), (name, new_name)):
                if folder.facts(each) is not None:
                    folder.rename(each, new)
            folder.sync()

    def remove_if_possible(self, name: str) -> str | None:
        """Remove a file where the disk still can; otherwise why it cannot.

        Giving the node back must not need a write: the disk may be full, or read-only after an error.
        """
        try:
            self.remove(name)
        except OSError as error:
            return f"{self.path(name)} cannot be removed: {error.strerror}"
        return None

    @property
    def spare(self) -> Path:
        """A file in memory for what the state folder's disk refused."""
        # Made anew each time and never followed; what another user puts there is not read.
        return Path("/dev/shm") / f"tokenpeak-{self.digest}.json"  # noqa: S108

    def write_spare(self, **values: Any) -> None:
        """Keep these in memory beside what is kept there, and let go of those that are None, where that can be done.

        Nothing may depend on it.
        """
        before = self.read_spare()
        value = {name: one for name, one in {**before, **values}.items() if one is not None}
        if value == before:
            return
        try:
            if not value:
                root_files.remove(self.spare)
                return
            with root_files.open_folder(self.spare.parent) as folder:
                folder.write_new(self.spare.name, json.dumps(value).encode(), 0o600, durable=False)
        except OSError:
            return

    def read_spare(self) -> Json:
        """The values that `write_spare` kept; empty where there is nothing of ours."""
        try:
            return self._object(self.spare, trust.read_own(self.spare, trust.OTHERS_WRITE, SPARE_BYTES, follow=False))
        except (OSError, ScriptError):
            return {}

    def remove_spare(self) -> None:
        """Take it away, if it is ours to take."""
        try:
            root_files.remove(self.spare)
        except OSError:
            return


def content_of(value: Json) -> bytes:
    """The JSON object as a file of the state folder has it."""
    return json.dumps(value, indent=1, sort_keys=True).encode()


def _is_own_file(path: Path, content: bytes, mode: int) -> bool:
    """Whether this is a regular file of this user's with that content and mode."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            facts = os.fstat(stream.fileno())
            is_own = facts.st_mode == stat.S_IFREG | mode and facts.st_uid == os.geteuid()
            return is_own and stream.read(len(content) + 1) == content
    except OSError:
        return False


def _checksum(value: Json) -> str:
    """SHA-256 of the content, whatever its order and spacing."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
