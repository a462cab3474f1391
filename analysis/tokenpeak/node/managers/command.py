"""Production as a pair of commands, or as a process that this script starts and stops itself."""

from __future__ import annotations

import json
import os
import subprocess
import time
from urllib.parse import urlsplit

from tokenpeak.node import process, serving, trust
from tokenpeak.node.error import ScriptError
from tokenpeak.node.identity import ForeignServerError, IsMember, OfProduction
from tokenpeak.node.managers.base import START_TIMEOUT_S, STOP_TIMEOUT_S, Manager
from tokenpeak.node.shown import shown_command, shown_output, shown_value
from tokenpeak.node.state import Json, UnreadableError

RECORD = "production.json"
LOG = "production.log"
APPLIED = "production-command.json"
_SAID_BYTES = 4096


class CommandManager(Manager):
    """declared: start and stop, perhaps check and command_file, or process {argv, env, cwd, stop_grace_s}.

    Status 0 of check means running; without check, running means that the url answers.
    """

    def _process(self) -> Json:
        declared = self.declared.get("process")
        if declared is not None and not isinstance(declared, dict):
            raise ScriptError(
                "declaration", f"tokenpeak_production.process must be a mapping, not {shown_value(declared)}."
            )
        return self.process_as_applied(self._applied()) if declared else {}

    def process_as_applied(self, applied: str | None) -> Json:
        """The process as declared, with what the state folder's file of an apply says in its place.

        An apply holds over the declaration that it was made for: one that was changed since is newer.
        """
        declared = self.declared["process"]
        try:
            found = json.loads(applied or "{}")
        except ValueError:
            return dict(declared)
        is_over_this = isinstance(found, dict) and found.get("over") == declared
        return {**declared, "argv": found["argv"], "env": found["env"]} if is_over_this else dict(declared)

    def _applied(self) -> str | None:
        path = self.state.path(APPLIED)
        return path.read_text() if path.is_file() else None

    def _argv(self, key: str) -> list[str]:
        return _arguments(key, self.needed(key))

    def _process_argv(self) -> list[str]:
        return _arguments("process.argv", self._process().get("argv"))

    @property
    def _mark(self) -> str:
        return f"production-{self.state.digest}"

    def _recorded(self) -> Json | None:
        """The process that was started; None where nothing says so, or nothing readable."""
        try:
            return self.state.read(RECORD)
        except UnreadableError:
            return None

    def _pids(self) -> list[int]:
        """The processes that were started, by their record or, where that is lost or of another boot, by their mark."""
        leader = self._recorded()
        return (process.members(leader) if leader else []) or process.marked(self._mark)

    def is_running(self) -> bool:
        """By the process's group, the check command, or the server's answer, whichever is declared."""
        if self._process():
            return bool(self._pids())
        if "check" in self.declared:
            return process.run(self._argv("check")).status == 0
        url = self.needed("url")
        parts = urlsplit(url)
        check = OfProduction(self, self.answered_before)
        try:
            health, ca_file = f"{parts.scheme}://{parts.netloc}/health", self.declared.get("ca_file")
            return serving.request(health, timeout_s=2, check=check, ca_file=ca_file).status != 0
        except ForeignServerError:
            return False

    def members(self) -> IsMember | None:
        """The group of the process that this script started; of a pair of commands, nobody knows."""
        if not self._process():
            return None
        found = set(self._pids())
        return lambda pid: pid in found

    def is_as_declared(self) -> bool:
        """Whether a process that this script started has the declared arguments."""
        declared = self._process()
        return not declared or (self._recorded() or {}).get("argv") == self._process_argv()

    def stop(self) -> None:
        """End the process's group, or run the stop command."""
        declared = self._process()
        if not declared:
            self.do(self._argv("stop"), STOP_TIMEOUT_S)
            return
        leader = self._recorded()
        until_s = time.monotonic() + float(declared.get("stop_grace_s", 10))
        left = process.stop_group(leader, until_s - time.monotonic()) if leader else []
        left += process.stop_marked(self._mark, max(0.0, until_s - time.monotonic()))
        if left:
            raise ScriptError("production", f"Production's processes {left} do not end, not even by SIGKILL.")
        self.state.remove_if_possible(RECORD)

    def start(self, recorded: Json) -> None:
        """Start the process in a session of its own, or run the start command."""
        declared = self._process()
        if not declared:
            self._run_start()
            return
        if self.is_running():
            return
        argv = self._process_argv()
        env = {**os.environ, **{key: str(value) for key, value in (declared.get("env") or {}).items()}}
        try:
            log, cwd = self.state.path(LOG), declared.get("cwd")
            started = process.start_detached(argv, log=log, env=env, cwd=cwd, mark=self._mark)
        except OSError as error:
            raise ScriptError(
                "production", f"Production's command {shown_value(argv[0])} cannot be started: {error}."
            ) from error
        try:
            self.state.write(RECORD, {**process.identity(started.pid), "argv": argv})
        except OSError:
            return  # on a broken disk it is found again by its mark

    def _run_start(self) -> None:
        """Run the start command to its end; what it leaves running writes to a file, which no reader can close."""
        argv = self._argv("start")
        log = self.state.path(LOG)
        before = log.stat().st_size if log.exists() else 0
        try:
            started = process.start_detached(argv, log=log)
        except OSError as error:
            raise ScriptError(
                "production", f"Production's command {shown_value(argv[0])} cannot be started: {error}."
            ) from error
        try:
            status = started.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
            raise ScriptError(
                "production", f"{shown_command(argv)} did not end within {START_TIMEOUT_S:g} s."
            ) from None
        if status != 0:
            said = shown_output(trust.read_end(log, _SAID_BYTES, before).decode(errors="replace"))
            raise ScriptError("production", f"{shown_command(argv)} ended with status {status}: {said}.")


def _arguments(key: str, declared: object) -> list[str]:
    """A declared command, as words."""
    if not isinstance(declared, list) or not declared:
        raise ScriptError(
            "declaration", f"tokenpeak_production.{key} must be a list of arguments, not {shown_value(declared)}."
        )
    return [str(word) for word in declared]
