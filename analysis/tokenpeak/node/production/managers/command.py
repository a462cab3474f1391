"""Production as a pair of commands, or as a process that this script starts and stops itself."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.command import Command
from tokenpeak.node.machine import clock, process, root_programs, trust
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.state import Json, UnreadableError
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.production.identity import ForeignServerError, IsMember, OfProduction
from tokenpeak.node.production.managers.base import (
    DECLARED_AS,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    WAY_OUT,
    Definition,
    Manager,
)
from tokenpeak.node.production.managers.kept_file import KeptFile

RECORD = "production.json"
LOG = "production.log"
APPLIED = "production-command.json"
STARTED = "production-start.json"
"""The last start by a start command, until it has answered or was stopped: it is started once, however slow it is."""
_MOST_DOUBLINGS = 5
"""Of the time that a start has: one that was slow and was taken for dead gets longer the next time."""
_NO_STATUS = (124, 125, 127)
"""Of a check command that gave none: it is not there, or did not end."""
_SAID_BYTES = 4096


class CommandManager(Manager):
    """declared: start and stop, perhaps check and command_file, or process {argv, env, cwd, stop_grace_s}.

    Status 0 of check means running; without check, running means that the url answers, or that the start command was
    run and has had no more than `ready_s` since.
    """

    def files(self) -> list[Path]:
        """What the declared commands run, or the program of the process with what it loads code from."""
        declared = self.declared.get("process")
        if not declared or not isinstance(declared, dict):
            commands = [self.declared.get(key) for key in ("start", "stop", "check")]
            words = [[str(word) for word in command] for command in commands if isinstance(command, list)]
            return [file for command in words for file in root_programs.of_command(command)]
        return _files_of_process(declared)

    def require_own_process(self, started: Json) -> None:
        """Raise ScriptError where others can write what root would run of a process, declared or applied."""
        root_programs.require(DECLARED_AS, _files_of_process(started), WAY_OUT)

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
            # One that asks the server says no while that loads.
            return self._check() or (self._is_within_start() and self._is_left())
        return self._answers() or self._is_within_start()

    def is_starting(self) -> bool:
        """Whether it was started and has not shown itself yet, by its check command or its answer."""
        if self._process() or not self._is_within_start():
            return False
        return not (self._check() if "check" in self.declared else self._answers())

    def _check(self) -> bool:
        """Whether the check command says that it runs."""
        argv = self._argv("check")
        ran = process.run(argv)
        if ran.status in _NO_STATUS:
            raise ScriptError(
                NOT_SEEN,
                f"{shown_command(argv)} did not say how production stands: {shown_output(ran.err or ran.out)}.",
            )
        return ran.status == 0

    def _answers(self) -> bool:
        """Whether what answers at the url may be production."""
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
            self._forget_start()
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
        self.require_own_process(self._process())
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

    def note_ready(self) -> None:
        """A start has come to its end: from now on production that does not answer has ended."""
        self._forget_start()

    def _started(self) -> Json | None:
        """The start of this boot that has not answered yet; None where there is none."""
        noted = self.state.read(STARTED) or self.state.read_spare().get("started") or {}
        return noted if noted.get("boot_id") == clock.boot_id() else None

    def _is_within_start(self) -> bool:
        """Whether it was started and may still load."""
        return clock.boot_s() < float((self._started() or {}).get("until_boot_s", 0.0))

    def _is_left(self) -> bool:
        """Whether anything that the start command started is alive, as far as it bears the mark."""
        return bool(process.marked(self._mark))

    def _note_start(self, for_s: float, number: int) -> None:
        """Write down that it was started, and may be loading for so long; in memory where the disk takes nothing.

        `number` counts the starts since one answered or was stopped on purpose.
        """
        noted = {"boot_id": clock.boot_id(), "until_boot_s": clock.boot_s() + for_s, "number": number}
        try:
            self.state.write(STARTED, noted, durable=False)
        except OSError:
            self.state.write_spare(started=noted)

    def _forget_start(self) -> None:
        if self.state.has(STARTED):
            self.state.remove_if_possible(STARTED)
        self.state.write_spare(started=None)

    def _end_former_start(self) -> int:
        """Stop what an earlier start has left that never answered: two engines would fight for the memory.

        How many starts in a row that makes.
        """
        former = self._started()
        if former is None:
            return 0
        try:
            self.do(self._argv("stop"), STOP_TIMEOUT_S)
        except ScriptError as error:
            # A stop that finds nothing may say so by its status.
            if self._is_left():
                raise ScriptError(
                    "production",
                    f"Production was started and has not answered, and what was started cannot be stopped: "
                    f"{error.text} It is not started beside that: end it by hand.",
                ) from error
        return int(former.get("number", 0)) + 1

    def _run_start(self) -> None:
        """Run the start command to its end; what it leaves running writes to a file, which no reader can close."""
        number = self._end_former_start()
        for_s = self.ready_s * 2 ** min(number, _MOST_DOUBLINGS)
        self._note_start(for_s, number)
        is_done = False
        try:
            self._start_once()
            is_done = True
        finally:
            # It may take its time from the start command's end on; one that failed is stopped before the next.
            self._note_start(for_s if is_done else 0.0, number)

    def _start_once(self) -> None:
        argv = self._argv("start")
        log = self.state.path(LOG)
        before = log.stat().st_size if log.exists() else 0
        try:
            started = process.start_detached(argv, log=log, mark=self._mark)
        except OSError as error:
            raise ScriptError(
                "production", f"Production's command {shown_value(argv[0])} cannot be started: {error}."
            ) from error
        try:
            status = started.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            with suppress(subprocess.TimeoutExpired):
                started.wait(process.KILLED_WITHIN_S)
            raise ScriptError(
                "production", f"{shown_command(argv)} did not end within {START_TIMEOUT_S:g} s."
            ) from None
        if status != 0:
            said = shown_output(trust.read_end(log, _SAID_BYTES, before).decode(errors="replace"))
            raise ScriptError("production", f"{shown_command(argv)} ended with status {status}: {said}.")


def _files_of_process(started: Json) -> list[Path]:
    """The program of a process, and what it loads code from. What follows `serve` is the engine's: a model is none."""
    argv = [str(word) for word in started["argv"]] if isinstance(started.get("argv"), list) else []
    env = [(str(name), str(value)) for name, value in (started.get("env") or {}).items()]
    cwd = [Path(str(started["cwd"]))] if started.get("cwd") else []
    own = argv[: argv.index("serve")] if "serve" in argv else argv
    return [*root_programs.of_command(own), *root_programs.of_environment(env), *cwd]


def _arguments(key: str, declared: object) -> list[str]:
    """A declared command, as words."""
    if not isinstance(declared, list) or not declared:
        raise ScriptError(
            "declaration", f"tokenpeak_production.{key} must be a list of arguments, not {shown_value(declared)}."
        )
    return [str(word) for word in declared]


class ProcessDefinition(Definition):
    """own: content of the state folder's file of what was applied; seen: what the inventory declares."""

    USER_AS = "setpriv --reuid=USER before the program in process.argv"

    def describe(self) -> Json:
        """What was applied, and what is declared."""
        return {"own": {"content": self._file.read()}, "seen": {"declared": self.manager.declared.get("process")}}

    def command(self, described: Json) -> Command:
        """The argv with its variables."""
        declared = self.manager.process_as_applied(described["own"]["content"])
        env = {str(name): str(value) for name, value in (declared.get("env") or {}).items()}
        return self.as_command([str(word) for word in declared.get("argv") or []], env)

    def user(self, described: Json, command: Command) -> str | None:
        """The user as whom its first words run the rest."""
        return root_programs.other_user(self.shown_words(command))

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The file of this command, written beside its place."""
        declared = described["seen"]["declared"]
        self.manager.require_own_process({**declared, "argv": [*command.words], "env": command.env})
        content = json.dumps(
            {"argv": [*command.words], "env": command.env, "over": declared, "by": mark},
            sort_keys=True,
        )
        self.prepare_back({"content": content})
        return {"content": content}

    def prepare_back(self, own: Json) -> None:
        """Write beside its place what it is to be."""
        self._file.prepare(own["content"])

    def write(self, own: Json) -> None:
        """Put the file there, or take it away."""
        self._file.write(own["content"])

    def clean(self, kept: list[Json]) -> None:
        """Remove its second names."""
        self._file.clean()

    def place(self, own: Json) -> str:
        """The inventory, or the file."""
        return (
            f"process, set by {self._file.path}" if own["content"] else "process, as tokenpeak_production declares it"
        )

    @property
    def _file(self) -> KeptFile:
        return KeptFile(self.manager.state.path(APPLIED))


class CommandFileDefinition(Definition):
    """own: file and content; a line is a word, and `env NAME=VALUE …` may stand before the program."""

    USER_AS = "runuser -u USER before what tokenpeak_production.start runs"

    def describe(self) -> Json:
        """The file's content."""
        path = self._path()
        content = KeptFile(path).read()
        if content is None:
            raise ScriptError("definition", f"tokenpeak_production.command_file {path} is not there: put it there.")
        return {"own": {"file": str(path), "content": content}, "seen": {}}

    def command(self, described: Json) -> Command:
        """Its words, with the variables that stand before the program."""
        words = [line for line in described["own"]["content"].split("\n") if line.strip()]
        env, rest = _split(words)
        return self.as_command(rest, env)

    def user(self, described: Json, command: Command) -> str | None:
        """The user as whom the start command runs the file, or the file has its program run."""
        start = [str(word) for word in self.manager.declared.get("start") or []]
        return root_programs.other_user(start) or root_programs.other_user(self.shown_words(command))

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The file of this command, written beside its place."""
        if not all(word.strip() for word in command.words):
            raise ScriptError("definition", "A word of the config is empty, and an empty line of command_file is none.")
        env = [f"{name}={value}" for name, value in sorted(command.env.items())]
        words = [*(["env", *env] if env else []), *command.words]
        own = {**described["own"], "content": "".join(f"{word}\n" for word in words)}
        self.prepare_back(own)
        return own

    def prepare_back(self, own: Json) -> None:
        """Write beside its place what it is to be."""
        KeptFile(Path(own["file"])).prepare(own["content"])

    def write(self, own: Json) -> None:
        """Put the file there."""
        KeptFile(Path(own["file"])).write(own["content"])

    def clean(self, kept: list[Json]) -> None:
        """Remove its second names."""
        KeptFile(self._path()).clean()

    def place(self, own: Json) -> str:
        """The file."""
        return str(own["file"])

    def _path(self) -> Path:
        declared = self.manager.declared.get("command_file")
        if not declared:
            raise ScriptError(
                "definition",
                "tokenpeak_production has a start and a stop command, and what they start is not known: put the "
                "engine's command into a file, a word a line, let start run it (xargs -d '\\n' -a FILE env), and name "
                "it in tokenpeak_production.command_file.",
            )
        return Path(str(declared))


def command_definition(manager: Manager) -> Definition:
    """The definition of a command manager's production, of whichever of the two kinds it is."""
    return (ProcessDefinition if manager.declared.get("process") else CommandFileDefinition)(manager)


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Variables that stand before a program, and the program with its words."""
    if not words or Path(words[0]).name != "env":
        return {}, words
    rest = words[1:]
    env: dict[str, str] = {}
    while rest and "=" in rest[0] and not rest[0].startswith("-"):
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    return env, rest
