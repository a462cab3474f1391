"""Production as a Podman container, which is made anew by the command line that made it, with other last arguments."""

from __future__ import annotations

import re
from typing import Sequence

from tokenpeak.node.engine.builds import PODMAN
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.production.manager import Command
from tokenpeak.node.production.managers.containers import LABEL, ContainerManager

_DETACHED = (
    "-d",
    "--detach",
    "--detach=true",
    "--replace",
    "-t",
    "--tty",
    "-i",
    "--interactive",
    "-it",
    "-dt",
    "-d=true",
)
_VALUED = ("--name", "--restart")
_USER = re.compile("--user(=.*)?|-u.*")


class PodmanManager(ContainerManager):
    """A container of root's Podman, or, with `user`, of a user's rootless one."""

    program = PODMAN

    def runtime(self) -> Runtime:
        """The runtime that has the container."""
        return Runtime(self.program, str(self.declared.get("user") or "") or None, "tokenpeak_production.user")

    def made_with(self, container: Json) -> Json:
        """The command line that made it, and what that came to."""
        config = container["Config"]
        entry = config.get("Entrypoint") or []
        return {
            "create": list(config.get("CreateCommand") or []),
            "entrypoint": entry.split() if isinstance(entry, str) else list(entry),
            "cmd": list(config.get("Cmd") or []),
            "env": list(config.get("Env") or []),
            "user": str(config.get("User") or ""),
            "image": str(container.get("ImageName") or container.get("Image") or ""),
        }

    def parts(self, described: Json) -> tuple[list[str], dict[str, str], str | None]:
        """Entry point and arguments, environment and image."""
        made = described["seen"]
        env = dict(entry.split("=", 1) for entry in made["env"] if "=" in entry)
        return [*made["entrypoint"], *made["cmd"]], env, made["image"] or None

    def user(self, described: Json, command: Command) -> str | None:
        """Whose rootless runtime has it, or the user of the command line that made it: the next has the same."""
        made = described["seen"]
        is_named = any(_USER.fullmatch(word) for word in made["create"][: len(made["create"]) - len(made["cmd"])])
        return str(self.declared.get("user") or (made.get("user") if is_named else None) or "") or None

    @property
    def is_node_user(self) -> bool:
        """A name is the image's, where it is not whose rootless runtime has the container."""
        return bool(self.declared.get("user"))

    def create(self, described: Json, command: Command, mark: str, name: str) -> str:
        """`podman create` with the old one's options, a new name, and these words."""
        seen = described["seen"]
        made, cmd, entry = seen["create"], seen["cmd"], seen["entrypoint"]
        is_known = len(made) > 2 and made[1] in ("run", "create") and (not cmd or made[-len(cmd) :] == cmd)
        if not is_known or list(command.words[: len(entry)]) != entry or (command.image or "") != seen["image"]:
            raise ScriptError(
                "definition",
                f"The container {self.unit} was not made by `podman run` or `create` with the engine's "
                "arguments at its end, or another image is to take its place: make it anew by hand.",
            )
        was = self.parts(described)[1]
        env = [f"--env={key}={value}" for key, value in command.env.items() if was.get(key) != value]
        gone = [f"--unsetenv={key}" for key in was if key not in command.env]
        options = _without(made[2 : len(made) - len(cmd)])
        words = ["create", f"--name={name}", f"--label={LABEL}={mark}", *options[:-1], *env, *gone, options[-1]]
        return str(self.do(self.argv(*words, *command.words[len(entry) :])).out.split()[-1])


def _without(words: Sequence[str]) -> list[str]:
    """Options of a `podman run` less its name, its policy, and what makes it wait or detach."""
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _VALUED:
            next(rest, None)
        elif word not in _DETACHED and not word.startswith(tuple(f"{one}=" for one in _VALUED)):
            options.append(word)
    return options
