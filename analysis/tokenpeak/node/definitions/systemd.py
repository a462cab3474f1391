"""A systemd unit's definition: a drop-in of ours that is read last sets ExecStart and Environment.

A word of ExecStart that stays is copied as it stands in the unit's files, with its quotes, variables and specifiers.
What systemd says that it would start is compared with what was read there.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.definitions.kept_file import KeptFile
from tokenpeak.node.engine_command import Command
from tokenpeak.node.error import ScriptError
from tokenpeak.node.login import home_of
from tokenpeak.node.managers.systemd import LOADED, parse_show
from tokenpeak.node.shown import shown_command
from tokenpeak.node.state import Json

DROP_IN = "zz-tokenpeak.conf"
SYSTEM = Path("/etc/systemd/system")
_SETS = "Environment="
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'", "r": "\r", "a": "\a", "b": "\b"}


class SystemdDefinition(Definition):
    """own: file (the drop-in), content, env (what it sets); seen: digests of other files, ExecStart, Environment."""

    USER_AS = "User= of the unit"

    def describe(self) -> Json:
        """The drop-in, and what systemd reads besides; ScriptError where its files were changed and not read again."""
        unit = str(self.manager.needed("unit"))
        names = "FragmentPath,DropInPaths,NeedDaemonReload,ExecStart,Environment,UnsetEnvironment"
        shown = parse_show(self.manager.do(self.manager.systemctl("show", "--property", names, "--", unit)).out)
        if shown.get("NeedDaemonReload") == "yes":
            raise ScriptError(
                "definition",
                f"The files of {unit} were changed and systemd has not read them: systemctl daemon-reload.",
            )
        text = self.manager.do(self.manager.systemctl("cat", "--", unit)).out
        path = self._path()
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
                f"{self.manager.unit} has {len(lines)} commands in ExecStart, or one with a prefix that changes how it "
                f"is started ({'; '.join(map(_shown, lines)) or 'none'}): give it one plain command.",
            )
        words = raw_words(lines[0].lstrip("-"))
        shown = [_unquoted(word) for word in words]
        found = re.search(r"argv\[\]=(.*?) ; (?:ignore_errors|flags)=", described["seen"]["started"])
        pattern = " ".join(map(_with_specifiers, shown))
        if found is None or not re.fullmatch(pattern, found[1]):
            raise ScriptError(
                "definition",
                f"What systemd would start for {self.manager.unit} "
                f"({shown_command(raw_words(found[1])) if found else 'nothing'}) is not "
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
        unit = str(self.manager.needed("unit"))
        asked = self.manager.systemctl("show", "--property", "User,DynamicUser", "--", unit)
        shown = parse_show(self.manager.do(asked).out)
        # A dynamic user without a name has the unit's, and is never root.
        return shown.get("User") or (unit if shown.get("DynamicUser") == "yes" else None)

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The drop-in with this command, written beside its place."""
        env = {**described["own"]["env"]}
        was = self.command(described).env
        unset = [name for name in was if name not in command.env]
        env.update({name: value for name, value in command.env.items() if was.get(name) != value})
        lines = [
            f"# Written by TokenPeak's apply {mark}; `make rollback` takes it back.",
            "[Service]",
            *(_env_line(name, value) for name, value in sorted(env.items()) if name not in unset),
            *(f"UnsetEnvironment={name}" for name in unset),
            "ExecStart=",
            f"ExecStart={' '.join(command.words)}",
        ]
        own = {"file": described["own"]["file"], "content": "\n".join(lines) + "\n"}
        own = {**own, "env": _env_of(own["content"])}
        self.prepare_back(own)
        return own

    def prepare_back(self, own: Json) -> None:
        """Write beside its place what it is to be."""
        KeptFile(Path(own["file"])).prepare(own["content"])

    def write(self, own: Json) -> None:
        """Put the drop-in there, or take it away, and have systemd read it."""
        KeptFile(Path(own["file"])).write(own["content"])
        self.manager.do(self.manager.systemctl("daemon-reload"), 60.0)

    def is_loaded(self) -> bool:
        """Whether systemd has loaded the unit: one with a bad setting it neither starts nor stops."""
        unit = str(self.manager.needed("unit"))
        shown = parse_show(self.manager.do(self.manager.systemctl("show", "--property", "LoadState", "--", unit)).out)
        return shown.get("LoadState") in LOADED

    def clean(self, kept: list[Json]) -> None:
        """Remove the drop-in's second names."""
        KeptFile(self._path()).clean()

    def place(self, own: Json) -> str:
        """The unit, and the drop-in where it has ours."""
        unit = str(self.manager.unit)
        return f"systemd unit {unit}" + (f", set by {own['file']}" if own["content"] is not None else "")

    def meaning(self, word: str) -> str:
        """The word without quotes and escapes; variables and specifiers are as they stand."""
        return _unquoted(word).replace("$$", "$").replace("%%", "%")

    def literal(self, word: str) -> str:
        """The word as systemd hands it on unchanged."""
        return quoted(word.replace("$", "$$"))

    @property
    def _user(self) -> str | None:
        user = self.manager.declared.get("user")
        return None if user is None else str(user)

    def _path(self) -> Path:
        folder = home_of(self._user) / ".config/systemd/user" if self._user else SYSTEM
        return folder / f"{self.manager.unit}.d" / DROP_IN


def _shown(line: str) -> str:
    return shown_command(raw_words(line))


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
    found = [re.escape(text) for text in parts[::2]]
    between = ["%" if letter == "%" else ".*" for letter in parts[1::2]] + [""]
    return "".join(text + letter for text, letter in zip(found, between))


def _unquoted(word: str) -> str:
    found, quote, rest = "", "", iter(word)
    for letter in rest:
        if letter == "\\":
            following = next(rest, "")
            if following == "x":
                found += chr(int(next(rest, "0") + next(rest, "0"), 16))
            else:
                found += _ESCAPES.get(following, following)
        elif quote:
            found, quote = (found, "") if letter == quote else (found + letter, quote)
        elif letter in "\"'":
            quote = letter
        else:
            found += letter
    return found


def _exec_starts(text: str) -> list[str]:
    """The values of ExecStart= in `systemctl cat`, the later files' last; an empty one resets."""
    found: list[str] = []
    section = ""
    for line in _joined(text):
        if line.startswith("["):
            section = line
        name, equals, value = (part.strip() for part in line.partition("="))
        if section == "[Service]" and name == "ExecStart" and equals:
            found = [*found, value] if value else []
    return found


def _joined(text: str) -> list[str]:
    """Lines without comments; one that ends with a backslash goes on in the next."""
    found: list[str] = []
    goes_on = False
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or (not stripped and not goes_on):
            continue
        part, continues = (stripped[:-1], True) if stripped.endswith("\\") else (stripped, False)
        found[-1:] = [f"{found[-1]} {part}"] if goes_on else [*found[-1:], part]
        goes_on = continues
    return found


def _digest(text: str, path: str) -> str:
    """SHA-256 of one file's part of `systemctl cat`."""
    _, _, after = text.partition(f"# {path}\n")
    own = re.split(r"^# /\S+$", after, maxsplit=1, flags=re.MULTILINE)[0]
    return hashlib.sha256(own.strip().encode()).hexdigest()


def _env_line(name: str, value: str) -> str:
    return _SETS + quoted(f"{name}={value}")


def _env_of(content: str | None) -> dict[str, str]:
    """What a drop-in of ours sets."""
    lines = (line[len(_SETS) :] for line in (content or "").splitlines() if line.startswith(_SETS))
    return dict(_unquoted(line).replace("%%", "%").split("=", 1) for line in lines)
