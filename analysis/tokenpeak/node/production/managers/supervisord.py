"""Production as a program of supervisord."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

from tokenpeak.node.machine import clock, process
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.production.manager import START_TIMEOUT_S, STOP_TIMEOUT_S, Command
from tokenpeak.node.production.managers.kept_file import FileManager, KeptFile


def parse_status(raw: str, unit: str) -> str | None:
    """The state in `supervisorctl status UNIT`, such as RUNNING; None when it does not know the program."""
    for line in raw.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == unit and words[1].isupper():
            return words[1]
    return None


class SupervisordManager(FileManager):
    """declared: unit (`NAME` or `GROUP:NAME`), config (supervisord's configuration file).

    Of its definition, own: file and content, whole; a change edits `command` and `environment` of its section.
    """

    USER_AS = "user= of its section"
    doubled = "%"

    def supervisorctl(self, *words: str) -> list[str]:
        """The command line of these words."""
        config = ["-c", str(self.declared["config"])] if "config" in self.declared else []
        return ["supervisorctl", *config, *words]

    def files(self) -> list[Path]:
        """The configuration, which names modules that supervisorctl loads."""
        return [Path(str(self.declared["config"]))] if "config" in self.declared else []

    def _state(self) -> str:
        """Its state by supervisorctl; its exit status speaks of something else."""
        unit = self.name
        ran = process.run(self.supervisorctl("status", unit))
        state = parse_status(ran.out, unit)
        if state is None:
            output = shown_output(ran.out or ran.err)
            raise ScriptError(
                "production" if "no such process" in output else NOT_SEEN,
                f"supervisord does not answer for {shown_value(unit)}: {output}. Correct tokenpeak_production.",
            )
        return state

    def members(self) -> IsMember:
        """The program's process and what descends from it, or is of its session or group."""
        ran = process.run(self.supervisorctl("pid", self.name))
        pid = ran.out.strip()
        return process.is_member_of(int(pid)) if pid.isdigit() and int(pid) else lambda _: False

    def is_running(self) -> bool:
        """Whether it runs or is being started."""
        return self._state() in ("RUNNING", "STARTING", "BACKOFF")

    def is_ending(self) -> bool:
        """Whether it is on its way down."""
        return self._state() == "STOPPING"

    def stop(self) -> None:
        """`supervisorctl stop`, which waits for the program's end, or the end of a stop that is under way."""
        if self.is_running():
            self.do(self.supervisorctl("stop", self.name), STOP_TIMEOUT_S)
        if not clock.wait_until(lambda: not self.is_ending(), STOP_TIMEOUT_S, poll_s=0.25):
            raise ScriptError("production", f"{self.unit} is still stopping after {STOP_TIMEOUT_S:g} s.")

    def start(self, recorded: Json) -> None:
        """`supervisorctl start`, unless it runs already."""
        if not self.is_running():
            self.do(self.supervisorctl("start", self.name), START_TIMEOUT_S)

    def describe(self) -> Json:
        """The file that has the program's section."""
        name = self._name()
        problem: ScriptError | None = None
        for path in self._files():
            try:
                content = KeptFile(path).read()
            except ScriptError as error:
                # One of the other files, perhaps: a link in conf.d is no reason not to look at the rest.
                problem = problem or error
                continue
            if content is not None and re.search(rf"^\[program:{re.escape(name)}\]", content, re.MULTILINE):
                return {"own": {"file": str(path), "content": content}, "seen": {}}
        if problem is not None:
            raise problem
        raise ScriptError(
            "definition", f"No file of supervisord has [program:{name}]: set tokenpeak_production.config."
        )

    def command(self, described: Json) -> Command:
        """The words and variables of its section, as they stand there."""
        section = self._section(described["own"]["content"])
        env = {name: self.meaning(value) for name, value in _pairs(section.get("environment", "")).items()}
        try:
            words = shlex.split(section.get("command", ""))
        except ValueError as error:
            raise ScriptError("definition", f"The command of {self._name()} cannot be read: {error}.") from error
        return self.as_command(words, env)

    def user(self, described: Json, command: Command) -> str | None:
        """user= of the section; one that is made of a variable is not known here."""
        named = self._section(described["own"]["content"]).get("user", "").strip()
        return named if named and "%" not in named else None

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The file with these lines, written beside its place."""
        variables = _pairs(self._section(described["own"]["content"]).get("environment", ""))
        env = self.as_kept(self.command(described), command, variables)
        lines = {
            "command": shlex.join(command.words),
            "environment": ",".join(f"{name}={_quoted(value)}" for name, value in env.items()),
        }
        own = {**described["own"], "content": _with_lines(described["own"]["content"], self._name(), lines)}
        # As supervisord will read it: what its quotes cannot hold is refused.
        if self.command({"own": own}) != command:
            raise ScriptError(
                "definition",
                f"The section of {self._name()} cannot hold {shown_command(self.shown_words(command))} with "
                f"{', '.join(command.env) or 'no variable'}: supervisord reads some quotes, `;` and `#` otherwise.",
            )
        self.prepare_back(own)
        return own

    def reload(self) -> None:
        """Have supervisord take the program's section from the file."""
        self.do(self.supervisorctl("reread"))
        # It starts what has autostart, and so is as good as a start.
        self.do(self.supervisorctl("update", self._name()), START_TIMEOUT_S)

    def is_loaded(self) -> bool:
        """Whether supervisorctl answers for the program: with a file that it cannot read it does not."""
        try:
            self.is_running()
        except ScriptError:
            return False
        return True

    def definition_path(self) -> Path:
        """The file that has the program's section."""
        return Path(self.describe()["own"]["file"])

    def place(self, own: Json) -> str:
        """The section."""
        return f"[program:{self._name()}] of {own['file']}"

    def _name(self) -> str:
        group, _, name = self.name.rpartition(":")
        if group not in ("", name):
            raise ScriptError(
                "definition", f"The program {name} is of group {group}, all of which would be started anew."
            )
        return name

    def _files(self) -> list[Path]:
        """Supervisord's file and those that it includes."""
        declared = self.declared.get("config")
        candidates = [Path(str(each)) for each in ([declared] if declared else USUAL) if Path(str(each)).is_file()]
        if not candidates:
            raise ScriptError("definition", "supervisord's file is not found: set tokenpeak_production.config.")
        main = candidates[0]
        parser = configparser.RawConfigParser(inline_comment_prefixes=_COMMENTS, strict=False)
        try:
            parser.read_string(KeptFile(main).read() or "")
        except configparser.Error as error:
            # It quotes the lines, which may hold a secret.
            raise ScriptError("definition", f"{main} is no file of supervisord's: correct it.") from error
        patterns = parser.get("include", "files", fallback="").replace("%(here)s", str(main.parent)).split()
        return [main, *(path for pattern in patterns for path in sorted(_matching(main.parent, pattern)))]

    def _section(self, content: str) -> dict[str, str]:
        parser = configparser.RawConfigParser(inline_comment_prefixes=_COMMENTS, strict=False)
        try:
            parser.read_string(content)
            return dict(parser[f"program:{self._name()}"])
        except (configparser.Error, KeyError) as error:
            raise ScriptError(
                "definition", f"The section of {self._name()} cannot be read ({type(error).__name__}): correct it."
            ) from error


USUAL = ("/etc/supervisor/supervisord.conf", "/etc/supervisord.conf")
_COMMENTS = (";", "#")
"""Characters that supervisord's own reader takes for the beginning of a comment after a space, inside quotes too."""


def _pairs(text: str) -> dict[str, str]:
    """The variables of an `environment` line, as supervisord reads it (datatypes.dict_of_key_value_pairs)."""
    lexer = shlex.shlex(text)
    lexer.wordchars += "/.+-():"
    pairs: dict[str, str] = {}
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise ScriptError("definition", f"Variables of its section cannot be read: {error}.") from error
    for place in range(0, len(tokens), 4):
        pair = tokens[place : place + 3]
        if len(pair) != 3 or pair[1] != "=":
            raise ScriptError("definition", "Variables of its section are not NAME=VALUE with commas between them.")
        pairs[pair[0]] = pair[2].strip("'\"")
    return pairs


def _quoted(value: str) -> str:
    """A value of an `environment` line; no quote escapes another there."""
    return f"'{value}'" if '"' in value else f'"{value}"'


def _matching(folder: Path, pattern: str) -> list[Path]:
    absolute = Path(pattern) if pattern.startswith("/") else folder / pattern
    return list(Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor))))


def _with_lines(content: str, name: str, lines: dict[str, str]) -> str:
    """The content with these keys of the program's section; a key without a value goes."""
    edited: list[str] = []
    is_inside = is_dropped = False
    # The line ends that a reader of files knows; `splitlines` knows others.
    for line in re.split("\r\n|\r|\n", content.rstrip("\r\n")):
        if line.startswith("["):
            is_inside = line.split("]")[0] == f"[program:{name}"
            is_dropped = False
        elif is_inside:
            goes_on = line[:1].isspace() and line.strip()
            is_dropped = is_dropped if goes_on else line.partition("=")[0].strip() in lines
        if not is_dropped:
            edited.append(line)
        if is_inside and line.startswith("["):
            edited += [f"{key}={value}" for key, value in lines.items() if value]
    return "\n".join(edited) + "\n"
