"""Definitions of production as a command: a process that the node script starts itself, or a file that `start` runs.

A process's argv is the inventory's; what an apply put in its place lies in the state folder, and holds as long as the
inventory says what it said then. A pair of commands names in `command_file` a file of the command, a word a line.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenpeak.node import root_programs
from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.definitions.kept_file import KeptFile
from tokenpeak.node.engine_command import Command
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.managers.command import APPLIED
from tokenpeak.node.state import Json


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
