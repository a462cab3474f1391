"""Production by commands of the inventory: a pair that starts and stops it, or a process that the node script starts.

The engine's command behind a pair is in a file, a word a line, where it is to be changed. A process has the argv of the
inventory; what an apply put in its place lies in the state folder, and holds as long as the inventory says what it said
then.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.serving import ForeignServerError
from tokenpeak.node.machine import clock, process, trust
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json, State, UnreadableError
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.production.answering import OfProduction
from tokenpeak.node.production.manager import DECLARED_AS, START_TIMEOUT_S, STOP_TIMEOUT_S, WAY_OUT, Command
from tokenpeak.node.production.managers.kept_file import FileManager, KeptFile

LOG = "production.log"
STARTED = "production-start.json"
"""The last start by a start command, until it has answered or was stopped: it is started once, however slow it is."""
_MOST_DOUBLINGS = 5
"""Of the time that a start has: one that was slow and was taken for dead gets longer the next time."""
_NO_STATUS = (124, 125, 127)
"""Of a check command that gave none: it is not there, or did not end."""
_LOG_END_BYTES = 4096
PROCESS = "production.json"
APPLIED_COMMAND = "production-command.json"


def mark_of(state: State) -> str:
    """Mark in the environment of production's processes that the script of this state folder started."""
    return f"production-{state.digest}"


class CommandManager(FileManager):
    """declared: start and stop, perhaps check and command_file.

    Status 0 of check means running; without check, running means that the url answers, or that the start command was
    run and has had no more than `ready_s` since. Of its definition, own: file (command_file) and content; a line is a
    word, and `env NAME=VALUE …` may stand before the program.
    """

    USER_AS = "runuser -u USER before what tokenpeak_production.start runs"

    def files(self) -> list[Path]:
        """Files that the declared commands run."""
        commands = [self.declared.get(key) for key in ("start", "stop", "check")]
        words = [[str(word) for word in command] for command in commands if isinstance(command, list)]
        return [file for command in words for file in trust.files_of_command(command)]

    def _argv(self, key: str) -> list[str]:
        return arguments(key, self.needed(key))

    def is_running(self) -> bool:
        """By the check command, or the server's answer, whichever is declared."""
        if "check" in self.declared:
            # One that asks the server says no while that loads.
            return self._check() or (self._is_within_start() and self._is_left())
        return self._answers() or self._is_within_start()

    def is_starting(self) -> bool:
        """Whether it was started and has not shown itself yet, by its check command or its answer."""
        if not self._is_within_start():
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

    def stop(self) -> None:
        """Run the stop command."""
        self.do(self._argv("stop"), STOP_TIMEOUT_S)
        self._forget_start()

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
        return bool(process.marked(mark_of(self.state)))

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

    def start(self, recorded: Json) -> None:
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
            started = process.start_detached(argv, log=log, mark=mark_of(self.state))
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
            output = shown_output(trust.read_end(log, _LOG_END_BYTES, before).decode(errors="replace"))
            raise ScriptError("production", f"{shown_command(argv)} ended with status {status}: {output}.")

    def describe(self) -> Json:
        """The file's content."""
        path = self.definition_path()
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
        start = [str(word) for word in self.declared.get("start") or []]
        return trust.other_user(start) or trust.other_user(self.shown_words(command))

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The file of this command, written beside its place."""
        if not all(word.strip() for word in command.words):
            raise ScriptError("definition", "A word of the config is empty, and an empty line of command_file is none.")
        env = [f"{name}={value}" for name, value in sorted(command.env.items())]
        words = [*(["env", *env] if env else []), *command.words]
        own = {**described["own"], "content": "".join(f"{word}\n" for word in words)}
        self.prepare_back(own)
        return own

    def place(self, own: Json) -> str:
        """The file."""
        return str(own["file"])

    def definition_path(self) -> Path:
        """The declared file of the command."""
        declared = self.declared.get("command_file")
        if not declared:
            raise ScriptError(
                "definition",
                "tokenpeak_production has a start and a stop command, and what they start is not known: put the "
                "engine's command into a file, a word a line, let start run it (xargs -d '\\n' -a FILE env), and name "
                "it in tokenpeak_production.command_file.",
            )
        return Path(str(declared))


def arguments(key: str, declared: object) -> list[str]:
    """A declared command, as words."""
    if not isinstance(declared, list) or not declared:
        raise ScriptError(
            "declaration", f"tokenpeak_production.{key} must be a list of arguments, not {shown_value(declared)}."
        )
    return [str(word) for word in declared]


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
        trust.require_only_root(DECLARED_AS, _files_of(started), WAY_OUT)

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
            return self.state.read(PROCESS)
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
        self.state.remove_if_possible(PROCESS)

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
        # On a broken disk it is found again by its mark.
        with suppress(OSError):
            self.state.write(PROCESS, {**process.identity(started.pid), "argv": argv})

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
        return trust.other_user(self.shown_words(command))

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
        return self.state.path(APPLIED_COMMAND)


def _files_of(started: Json) -> list[Path]:
    """The program of a process, and what it loads code from. What follows `serve` is the engine's: a model is none."""
    argv = [str(word) for word in started["argv"]] if isinstance(started.get("argv"), list) else []
    env = [(str(name), str(value)) for name, value in (started.get("env") or {}).items()]
    cwd = [Path(str(started["cwd"]))] if started.get("cwd") else []
    own = argv[: argv.index("serve")] if "serve" in argv else argv
    return [*trust.files_of_command(own), *trust.files_of_environment(env), *cwd]
