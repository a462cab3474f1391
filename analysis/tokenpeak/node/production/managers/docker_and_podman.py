"""Production as a container of Docker or Podman, each made anew in its own way: as it was but for its command.

Docker's by the daemon's own interface, Podman's by the command line that made it, with other last arguments. Source:
Docker Engine API v1.41, "Create a container". Only a daemon on this machine's socket is spoken to.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from typing import Any, Sequence
from urllib.parse import quote

from tokenpeak.node.engine.builds import DOCKER, PODMAN
from tokenpeak.node.machine import process
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_output
from tokenpeak.node.production.manager import Command
from tokenpeak.node.production.managers.containers import LABEL, NO_RESTART, ContainerManager

SOCKET = "unix:///var/run/docker.sock"
_TIMEOUT_S = 120.0
_MOST_BYTES = 4 << 20
_DETACHED = (
    *("-d", "-d=true", "--detach", "--detach=true", "--replace"),
    *("-t", "--tty", "-i", "--interactive", "-it", "-dt"),
)
_VALUED = ("--name", "--restart")
_USER = re.compile("--user(=.*)?|-u.*")


class DockerManager(ContainerManager):
    """A container of the local Docker daemon."""

    program = DOCKER

    def made_with(self, container: Json) -> Json:
        """Config, HostConfig and networks of an inspected container, as it could be made anew."""
        config, host = {**container["Config"]}, {**container["HostConfig"]}
        own_name = host.get("NetworkMode", "").startswith(("host", "container:"))
        if own_name or config.get("Hostname") == container["Id"][:12]:
            config.pop("Hostname", None)
        config.pop("MacAddress", None)
        # Its policy is `own`: one that does not serve has none.
        host.pop("RestartPolicy", None)
        bound = {str(bind).split(":")[1] for bind in host.get("Binds") or []}
        volumes = [one for one in container.get("Mounts") or [] if one.get("Type") == "volume"]
        # What an anonymous volume holds, a cache of weights say, stays with the next container.
        host["Binds"] = [
            *(host.get("Binds") or []),
            *(f"{one['Name']}:{one['Destination']}" for one in volumes if one["Destination"] not in bound),
        ]
        networks = {
            name: {key: one[key] for key in ("Aliases", "IPAMConfig", "Links", "DriverOpts") if one.get(key)}
            for name, one in (container["NetworkSettings"].get("Networks") or {}).items()
        }
        for one in networks.values():
            one["Aliases"] = [alias for alias in one.get("Aliases") or [] if alias != container["Id"][:12]]
        image = container["Image"]
        if self._image_id(config["Image"]) != image:
            # The name means another image by now.
            config["Image"] = image
        return {"Config": config, "HostConfig": host, "Networks": networks}

    def parts(self, described: Json) -> tuple[list[str], dict[str, str], str | None]:
        """Entry point and arguments, environment and image of its configuration."""
        config = described["seen"]["Config"]
        env = dict(entry.split("=", 1) for entry in config.get("Env") or [] if "=" in entry)
        words = [*(config.get("Entrypoint") or []), *(config.get("Cmd") or [])]
        return words, env, config["Image"]

    def image_again(self, name: str | None, image: str | None) -> str | None:
        """The very image, where its name means another by now."""
        return image if image and self._image_id(str(name)) != image else name

    def user(self, described: Json, command: Command) -> str | None:
        """The user of its configuration, with which each next one is made, whatever its image."""
        return str(described["seen"]["Config"].get("User") or "") or None

    def create(self, described: Json, command: Command, mark: str, name: str) -> str:
        """Ask the daemon for one with the same configuration but these words."""
        made_with = described["seen"]
        entry = made_with["Config"].get("Entrypoint") or []
        if command.words[: len(entry)] != tuple(entry):
            entry = [command.words[0]]
        config = {
            **made_with["Config"],
            "Entrypoint": entry or None,
            "Cmd": list(command.words[len(entry) :]),
            "Env": [f"{key}={value}" for key, value in command.env.items()],
            "Image": command.image,
            "Labels": {**(made_with["Config"].get("Labels") or {}), LABEL: mark},
        }
        first, *others = made_with["Networks"] or {"": {}}
        body = {
            **config,
            "HostConfig": {**made_with["HostConfig"], "RestartPolicy": {"Name": NO_RESTART}},
            "NetworkingConfig": {"EndpointsConfig": {first: made_with["Networks"][first]} if first else {}},
        }
        made = str(self._ask("POST", f"/containers/create?name={quote(name)}", body)["Id"])
        for network in others:
            joining = {"Container": made, "EndpointConfig": made_with["Networks"][network]}
            self._ask("POST", f"/networks/{quote(network)}/connect", joining)
        return made

    def _image_id(self, name: str) -> str | None:
        ran = process.run(self.argv("image", "inspect", "--format", "{{.Id}}", "--", name))
        return ran.out.strip() if ran.status == 0 else None

    def _ask(self, method: str, path: str, body: Json) -> Json:
        connection = _Local(self._socket())
        try:
            connection.request(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            response = connection.getresponse()
            raw = response.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise ScriptError(
                "definition", f"Docker's daemon does not answer at {connection.path}: {error}."
            ) from error
        finally:
            connection.close()
        answer: Json = json.loads(raw or b"{}")
        if response.status >= 300:
            raise ScriptError(
                "definition", f"Docker refuses the new container: {shown_output(str(answer.get('message')))}."
            )
        return answer

    def _socket(self) -> str:
        address = os.environ.get("DOCKER_HOST")
        if not address:
            shown = self.argv("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
            ran = process.run(shown)
            address = ran.out.strip() if ran.status == 0 and ran.out.strip() else SOCKET
        if not address.startswith("unix://"):
            raise ScriptError(
                "definition", f"Docker's daemon is at {address}: apply speaks to one on a local socket alone."
            )
        return address[len("unix://") :]


class _Local(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock: Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self.path)


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
