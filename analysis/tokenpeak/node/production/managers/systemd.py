"""Production as a systemd unit, the system's or a user's; a drop-in of ours that is read last changes it.

A word of ExecStart that stays is copied as it stands in the unit's files, with its quotes, variables and specifiers.
What systemd says that it would start is compared with what was read there.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Mapping

from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, in_control_group
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.users import as_user, home_of
from tokenpeak.node.machine.words import shown_command, shown_value
from tokenpeak.node.production.manager import START_TIMEOUT_S, STOP_TIMEOUT_S, Command
from tokenpeak.node.production.managers.kept_file import FileManager, KeptFile

DROP_IN = "zz-tokenpeak.conf"
SYSTEM = Path("/etc/systemd/system")
_SETS = "Environment="
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'", "r": "\r", "a": "\a", "b": "\b"}
LOADED = ("loaded", "masked")
"""Load states of a unit that systemd can stop."""
_STOPPED_WITH_IT = "RequiredBy,BoundBy,ConsistsOf,RequisiteOf"
"""Units to which systemd hands a stop on, and no start."""


def parse_show(raw: str) -> dict[str, str]:
    """`systemctl show` as a mapping; values may hold `=`."""
    return dict(line.split("=", 1) for line in raw.splitlines() if "=" in line)


def loss(unit: str, shown: Mapping[str, str]) -> str | None:
    """Why a unit would be lost by stopping it or by a boot, and what to do; None when it would not.

    A generated unit (a Quadlet, say) is made anew at each boot from a file that stays.
    """
    fragment = shown.get("FragmentPath", "")
    if shown.get("Transient") == "yes" or fragment.startswith("/run/systemd/transient/"):
        return (
            f"The unit {shown_value(unit)} is transient (made by systemd-run): stopping would delete it. "
            f"Put it into a unit file, /etc/systemd/system/{unit}, and start that."
        )
    if shown.get("LoadState") == "masked" or shown.get("UnitFileState") in ("masked", "masked-runtime"):
        return (
            f"The unit {shown_value(unit)} is masked: once stopped it could not be started again. "
            f"Run `systemctl unmask {unit}`, or correct tokenpeak_production.unit."
        )
    if not fragment and not shown.get("SourcePath"):
        return (
            f"The unit {shown_value(unit)} has no unit file any more: once stopped it could not be started again. "
            f"Put it back, /etc/systemd/system/{unit}, and run `systemctl daemon-reload`."
        )
    is_generated = shown.get("UnitFileState") == "generated" or "/systemd/generator" in fragment
    if fragment.startswith("/run/") and not is_generated:
        return (
            f"The unit {shown_value(unit)} lies in {fragment}, which a boot removes: production would not come back "
            "after one. Move it to /etc/systemd/system and run `systemctl daemon-reload`."
        )
    return None


def _is_running(shown: Mapping[str, str]) -> bool:
    return shown.get("ActiveState") in ("active", "activating", "reloading")


class SystemdManager(FileManager):
    """declared: unit, and user for a unit of `systemctl --user`.

    Of its definition, own: file (the drop-in), content, env (its variables); seen: digests of other files, ExecStart,
    Environment.
    """

    USER_AS = "User= of the unit"

    def systemctl(self, *words: str) -> list[str]:
        """The command line of these words, of the system's systemd or the user's."""
        scope = ["--user"] if self._user else []
        return as_user(self._user, ["systemctl", *scope, *words], "tokenpeak_production.user")

    def _properties(self, names: str, unit: str | None = None) -> dict[str, str]:
        """These properties of a unit, by default production's."""
        return parse_show(self.ask(self.systemctl("show", "--property", names, "--", unit or self.name)).out)

    def _show(self) -> dict[str, str]:
        names = (
            "LoadState,ActiveState,SubState,UnitFileState,FragmentPath,SourcePath,DropInPaths,Transient,InvocationID"
        )
        shown = self._properties(names)
        if shown.get("LoadState") not in LOADED:
            raise ScriptError(
                "production",
                f"systemd has no unit {shown_value(self.name)} ({shown.get('LoadState')}): correct "
                "tokenpeak_production.unit.",
            )
        return shown

    def definition(self) -> Json:
        """The unit's state and files, whole, and which running units stop when it does.

        Raises ScriptError for a unit that could not be started again, or that this user may not stop.
        """
        shown = self._show()
        if os.geteuid() != 0 and not self._user:
            raise ScriptError(
                "production",
                f"{shown_value(self.name)} is a unit of the system, which root alone may stop and start: let an "
                "administrator install TokenPeak (tokenpeak_guard_command), or leave this node out.",
            )
        if problem := loss(self.name, shown):
            raise ScriptError("production", problem)
        text = process.run(self.systemctl("cat", "--", self.name)).out
        return {"state": shown, "files": text, "dependents": self._dependents()}

    def _dependents(self) -> list[str]:
        """The active units that systemd stops with production's, such as a proxy in front of it, and so on from these.

        Targets are left out: to start one is to start all that it wants.
        """
        dependents: list[str] = []
        left = [self.name]
        while left:
            shown = self._properties(_STOPPED_WITH_IT, left.pop())
            named = {name for names in shown.values() for name in names.split()}
            for name in named - {self.name, *dependents}:
                active = process.run(self.systemctl("is-active", "--quiet", "--", name)).status == 0
                if active and not name.endswith(".target"):
                    dependents.append(name)
                    left.append(name)
        return sorted(dependents)

    def members(self) -> IsMember:
        """The processes in the control group of the unit, or of one that stops with it, such as a proxy."""
        units = (self.name, *self._dependents())
        groups = [in_control_group(self._properties("ControlGroup", unit).get("ControlGroup", "")) for unit in units]
        return lambda pid: any(is_member(pid) for is_member in groups)

    def is_running(self) -> bool:
        """Whether it is active or on its way there."""
        return _is_running(self._show())

    def last_start(self) -> str | None:
        """The unit's invocation; None of a unit that was never started, or ended and was forgotten since."""
        return self._show().get("InvocationID") or None

    def was_started(self, since: str | None) -> bool:
        """Whether it runs, or has had another invocation: one that could not stay up is seen afterwards too."""
        shown = self._show()
        return _is_running(shown) or shown.get("InvocationID", "") not in ("", since)

    def is_ending(self) -> bool:
        """Whether it is on its way down."""
        return self._show().get("ActiveState") == "deactivating"

    def stop(self) -> None:
        """`systemctl stop`, which waits for the unit's end."""
        try:
            self.do(self.systemctl("stop", "--", self.name), STOP_TIMEOUT_S)
        except ScriptError as error:
            raise ScriptError(error.code, f"{error.text} The unit: {self.why_it_runs_on()}") from error

    def why_it_runs_on(self) -> str:
        """How systemd shows the unit after a stop that failed, and what to do."""
        unit = self.name
        names = "ActiveState,SubState,Result,Restart"
        state = process.run(self.systemctl("show", "--property", names, "--", unit)).out
        shown = ", ".join(line for line in state.split() if not line.endswith("="))
        user = "--user " if self._user else ""
        return (
            f"{shown or 'systemd says nothing of it'}. See `journalctl {user}-u {unit}` for what its ExecStop did or "
            "what started it again, and mend that; Restart= alone starts nothing after a stop that was asked for."
        )

    def start(self, recorded: Json) -> None:
        """`systemctl start` with what stopped along with it, after forgetting a start limit that it may have hit."""
        process.run(self.systemctl("reset-failed", "--", self.name))
        self.do(self.systemctl("start", "--", self.name, *recorded.get("dependents", [])), START_TIMEOUT_S)

    def describe(self) -> Json:
        """The drop-in, and what systemd reads besides; ScriptError where its files were changed and not read again."""
        names = "FragmentPath,DropInPaths,NeedDaemonReload,ExecStart,Environment,UnsetEnvironment"
        shown = self._properties(names)
        if shown.get("NeedDaemonReload") == "yes":
            raise ScriptError(
                "definition",
                f"The files of {self.name} were changed and systemd has not read them: systemctl daemon-reload.",
            )
        text = self.do(self.systemctl("cat", "--", self.name)).out
        path = self.definition_path()
        content = KeptFile(path).read()
        paths = [shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()]
        others = {each: _digest(text, each) for each in paths if each and each != str(path)}
        return {
            "own": {"file": str(path), "content": content, "env": _env_of(content)},
            "seen": {
                "files": others,
                "exec_start": _exec_starts(text),
                "started": shown.get("ExecStart", "").partition(" ; start_time=")[0],
                "environment": shown.get("Environment", ""),
                "unset": shown.get("UnsetEnvironment", ""),
            },
        }

    def command(self, described: Json) -> Command:
        """The words of the one ExecStart, raw; ScriptError where systemd would start something else."""
        lines = described["seen"]["exec_start"]
        if len(lines) != 1 or re.match(r"[@+!:|]", lines[0]):
            raise ScriptError(
                "definition",
                f"{self.unit} has {len(lines)} commands in ExecStart, or one with a prefix that changes how it "
                f"is started ({'; '.join(shown_command(raw_words(line)) for line in lines) or 'none'}): give it one "
                "plain command.",
            )
        words = raw_words(lines[0].lstrip("-"))
        shown = [_unquoted(word) for word in words]
        started = re.search(r"argv\[\]=(.*?) ; (?:ignore_errors|flags)=", described["seen"]["started"])
        pattern = " ".join(map(_with_specifiers, shown))
        if started is None or not re.fullmatch(pattern, started[1]):
            raise ScriptError(
                "definition",
                f"What systemd would start for {self.unit} "
                f"({shown_command(raw_words(started[1])) if started else 'nothing'}) is not "
                f"what its files are read to say ({shown_command(shown)}): simplify the quotes of its ExecStart.",
            )
        settings = [_unquoted(word) for word in raw_words(described["seen"]["environment"])]
        env = dict(setting.split("=", 1) for setting in settings if "=" in setting)
        unset = described["seen"]["unset"].split()
        return self.as_command(words, {name: value for name, value in env.items() if name not in unset})

    def user(self, described: Json, command: Command) -> str | None:
        """User= of the unit as systemd has loaded it, or whose systemd has it."""
        if self._user:
            return self._user
        shown = self._properties("User,DynamicUser")
        # A dynamic user without a name has the unit's, and is never root.
        return shown.get("User") or (self.name if shown.get("DynamicUser") == "yes" else None)

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The drop-in with this command, written beside its place."""
        env = {**described["own"]["env"]}
        was = self.command(described).env
        unset = [name for name in was if name not in command.env]
        env.update({name: value for name, value in command.env.items() if was.get(name) != value})
        lines = [
            f"# Written by TokenPeak's apply {mark}; `make rollback` takes it back.",
            "[Service]",
            *(_SETS + quoted(f"{name}={value}") for name, value in sorted(env.items()) if name not in unset),
            *(f"UnsetEnvironment={name}" for name in unset),
            "ExecStart=",
            f"ExecStart={' '.join(command.words)}",
        ]
        own = {"file": described["own"]["file"], "content": "\n".join(lines) + "\n"}
        own = {**own, "env": _env_of(own["content"])}
        self.prepare_back(own)
        return own

    def reload(self) -> None:
        """Have systemd read the drop-in."""
        self.do(self.systemctl("daemon-reload"), 60.0)

    def is_loaded(self) -> bool:
        """Whether systemd has loaded the unit: one with a bad setting it neither starts nor stops."""
        return self._properties("LoadState").get("LoadState") in LOADED

    def place(self, own: Json) -> str:
        """The unit, and the drop-in where it has ours."""
        return f"systemd unit {self.unit}" + (f", set by {own['file']}" if own["content"] is not None else "")

    def meaning(self, word: str) -> str:
        """The word without quotes and escapes; variables and specifiers are as they stand."""
        return _unquoted(word).replace("$$", "$").replace("%%", "%")

    def literal(self, word: str) -> str:
        """The word as systemd hands it on unchanged."""
        return quoted(word.replace("$", "$$"))

    @property
    def _user(self) -> str | None:
        user = self.declared.get("user")
        return None if user is None else str(user)

    def definition_path(self) -> Path:
        """Where the drop-in is."""
        folder = home_of(self._user) / ".config/systemd/user" if self._user else SYSTEM
        return folder / f"{self.unit}.d" / DROP_IN


def raw_words(line: str) -> list[str]:
    """A command line's words as they stand, quotes and escapes included."""
    words: list[str] = []
    current, quote, escaped = "", "", False
    for letter in line:
        if escaped:
            current, escaped = current + letter, False
        elif letter == "\\":
            current, escaped = current + letter, True
        elif quote:
            current, quote = current + letter, "" if letter == quote else quote
        elif letter in "\"'":
            current, quote = current + letter, letter
        elif letter.isspace():
            words += [current] if current else []
            current = ""
        else:
            current += letter
    return words + ([current] if current else [])


def quoted(word: str) -> str:
    """A word of a unit's command line that systemd takes as it is, save `$`."""
    text = word.replace("%", "%%")
    if text and not re.search(r"[\s\"'\\;]", text):
        return text
    for letter, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(letter, escape)
    return f'"{text}"'


def _with_specifiers(word: str) -> str:
    """A pattern of what systemd shows for a word: a specifier such as %h is replaced by anything."""
    parts = re.split("%(.)", word)
    texts = [re.escape(text) for text in parts[::2]]
    between = ["%" if letter == "%" else ".*" for letter in parts[1::2]] + [""]
    return "".join(text + letter for text, letter in zip(texts, between))


def _unquoted(word: str) -> str:
    text, quote, rest = "", "", iter(word)
    for letter in rest:
        if letter == "\\":
            following = next(rest, "")
            if following == "x":
                text += chr(int(next(rest, "0") + next(rest, "0"), 16))
            else:
                text += _ESCAPES.get(following, following)
        elif quote:
            text, quote = (text, "") if letter == quote else (text + letter, quote)
        elif letter in "\"'":
            quote = letter
        else:
            text += letter
    return text


def _exec_starts(text: str) -> list[str]:
    """The values of ExecStart= in `systemctl cat`, the later files' last; an empty one resets."""
    commands: list[str] = []
    section = ""
    for line in _joined(text):
        if line.startswith("["):
            section = line
        name, equals, value = (part.strip() for part in line.partition("="))
        if section == "[Service]" and name == "ExecStart" and equals:
            commands = [*commands, value] if value else []
    return commands


def _joined(text: str) -> list[str]:
    """Lines without comments; one that ends with a backslash goes on in the next."""
    joined: list[str] = []
    goes_on = False
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or (not stripped and not goes_on):
            continue
        part, continues = (stripped[:-1], True) if stripped.endswith("\\") else (stripped, False)
        joined[-1:] = [f"{joined[-1]} {part}"] if goes_on else [*joined[-1:], part]
        goes_on = continues
    return joined


def _digest(text: str, path: str) -> str:
    """SHA-256 of one file's part of `systemctl cat`."""
    _, _, after = text.partition(f"# {path}\n")
    own = re.split(r"^# /\S+$", after, maxsplit=1, flags=re.MULTILINE)[0]
    return hashlib.sha256(own.strip().encode()).hexdigest()


def _env_of(content: str | None) -> dict[str, str]:
    """The variables that a drop-in of ours sets."""
    lines = (line[len(_SETS) :] for line in (content or "").splitlines() if line.startswith(_SETS))
    return dict(_unquoted(line).replace("%%", "%").split("=", 1) for line in lines)
