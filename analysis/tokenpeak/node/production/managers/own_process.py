"""Production as a process that the node script starts and stops itself.

Its argv is the inventory's; what an apply put in its place lies in the state folder, and holds as long as the inventory
says what it said then.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tokenpeak.node.machine import process, root_programs
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json, UnreadableError
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.manager import DECLARED_AS, WAY_OUT, Command
from tokenpeak.node.production.managers.command import LOG, arguments, mark_of
from tokenpeak.node.production.managers.kept_file import FileManager, KeptFile

RECORD = "production.json"
APPLIED = "production-command.json"


class OwnProcessManager(FileManager):
    """declared: process {argv, env, cwd, stop_grace_s}.

    Of its definition, own: content of the state folder's file of what was applied; seen: what the inventory declares.
    """

    USER_AS = "setpriv --reuid=USER before the program in process.argv"

    def files(self) -> list[Path]:
        """The program of the process with what it loads code from."""
        declared = self.declared["process"]
        return _files_of(declared) if isinstance(declared, dict) else []

    def _require_own(self, started: Json) -> None:
        """Raise ScriptError where others can write what root would run of a process, declared or applied."""
        root_programs.require(DECLARED_AS, _files_of(started), WAY_OUT)

    def _process(self) -> Json:
        declared = self.declared["process"]
        if not isinstance(declared, dict):
            raise ScriptError(
                "declaration", f"tokenpeak_production.process must be a mapping, not {shown_value(declared)}."
            )
        path = self.definition_path()
        return self._as_applied(path.read_text() if path.is_file() else None)

    def _as_applied(self, applied: str | None) -> Json:
        """The process as declared, with what the state folder's file of an apply says in its place.

        An apply holds over the declaration that it was made for: one that was changed since is newer.
        """
        declared = self.declared["process"]
        try:
            change = json.loads(applied or "{}")
        except ValueError:
            return dict(declared)
        is_over_this = isinstance(change, dict) and change.get("over") == declared
        return {**declared, "argv": change["argv"], "env": change["env"]} if is_over_this else dict(declared)

    def _argv(self) -> list[str]:
        return arguments("process.argv", self._process().get("argv"))

    def _recorded(self) -> Json | None:
        """The process that was started; None where nothing says so, or nothing readable."""
        try:
            return self.state.read(RECORD)
        except UnreadableError:
            return None

    def _pids(self) -> list[int]:
        """The processes that were started, by their record or, where that is lost or of another boot, by their mark."""
        self._process()
        leader = self._recorded()
        return (process.members(leader) if leader else []) or process.marked(mark_of(self.state))

    def is_running(self) -> bool:
        """Whether any process of its group lives."""
        return bool(self._pids())

    def members(self) -> IsMember:
        """The group of the process."""
        pids = set(self._pids())
        return lambda pid: pid in pids

    def is_as_declared(self) -> bool:
        """Whether the process has the declared arguments."""
        return (self._recorded() or {}).get("argv") == self._argv()

    def stop(self) -> None:
        """End the process's group."""
        declared = self._process()
        leader = self._recorded()
        until_s = time.monotonic() + float(declared.get("stop_grace_s", 10))
        left = process.stop_group(leader, until_s - time.monotonic()) if leader else []
        left += process.stop_marked(mark_of(self.state), max(0.0, until_s - time.monotonic()))
        if left:
            raise ScriptError("production", f"Production's processes {left} do not end, not even by SIGKILL.")
        self.state.remove_if_possible(RECORD)

    def start(self, recorded: Json) -> None:
        """Start the process in a session of its own."""
        declared = self._process()
        if self.is_running():
            return
        self._require_own(declared)
        argv = self._argv()
        env = {**os.environ, **{key: str(value) for key, value in (declared.get("env") or {}).items()}}
        try:
            log, cwd = self.state.path(LOG), declared.get("cwd")
            started = process.start_detached(argv, log=log, env=env, cwd=cwd, mark=mark_of(self.state))
        except OSError as error:
            raise ScriptError(
                "production", f"Production's command {shown_value(argv[0])} cannot be started: {error}."
            ) from error
        try:
            self.state.write(RECORD, {**process.identity(started.pid), "argv": argv})
        except OSError:
            return  # on a broken disk it is found again by its mark

    def describe(self) -> Json:
        """The applied process, and the declared one."""
        content = KeptFile(self.definition_path()).read()
        return {"own": {"content": content}, "seen": {"declared": self.declared["process"]}}

    def command(self, described: Json) -> Command:
        """The argv with its variables."""
        declared = self._as_applied(described["own"]["content"])
        env = {str(name): str(value) for name, value in (declared.get("env") or {}).items()}
        return self.as_command([str(word) for word in declared.get("argv") or []], env)

    def user(self, described: Json, command: Command) -> str | None:
        """The user as whom its first words run the rest."""
        return root_programs.other_user(self.shown_words(command))

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The file of this command, written beside its place."""
        declared = described["seen"]["declared"]
        change = {"argv": [*command.words], "env": command.env}
        self._require_own({**declared, **change})
        own = {"content": json.dumps({**change, "over": declared, "by": mark}, sort_keys=True)}
        self.prepare_back(own)
        return own

    def place(self, own: Json) -> str:
        """The inventory, or the file."""
        if own["content"]:
            return f"process, set by {self.definition_path()}"
        return "process, as tokenpeak_production declares it"

    def definition_path(self) -> Path:
        """The state folder's file of what was applied."""
        return self.state.path(APPLIED)


def _files_of(started: Json) -> list[Path]:
    """The program of a process, and what it loads code from. What follows `serve` is the engine's: a model is none."""
    argv = [str(word) for word in started["argv"]] if isinstance(started.get("argv"), list) else []
    env = [(str(name), str(value)) for name, value in (started.get("env") or {}).items()]
    cwd = [Path(str(started["cwd"]))] if started.get("cwd") else []
    own = argv[: argv.index("serve")] if "serve" in argv else argv
    return [*root_programs.of_command(own), *root_programs.of_environment(env), *cwd]
