"""Production as a pair of commands, with a file, a word a line, of the engine's command where that is to be changed."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tokenpeak.node.engine import serving
from tokenpeak.node.machine import clock, process, root_programs, trust
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.production.identity import ForeignServerError, OfProduction
from tokenpeak.node.production.manager import START_TIMEOUT_S, STOP_TIMEOUT_S, Command
from tokenpeak.node.production.managers.kept_file import FileManager, KeptFile

LOG = "production.log"
STARTED = "production-start.json"
"""The last start by a start command, until it has answered or was stopped: it is started once, however slow it is."""
_MOST_DOUBLINGS = 5
"""Of the time that a start has: one that was slow and was taken for dead gets longer the next time."""
_NO_STATUS = (124, 125, 127)
"""Of a check command that gave none: it is not there, or did not end."""
_LOG_END_BYTES = 4096


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
        return [file for command in words for file in root_programs.of_command(command)]

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
