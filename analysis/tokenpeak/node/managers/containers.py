"""Production as a container: Docker's, Podman's, or a service of a Compose file."""

from __future__ import annotations

import json
import pwd
from typing import Any

from tokenpeak.node import process
from tokenpeak.node.containers import Runtime, is_running, of_containers
from tokenpeak.node.engine_builds import DOCKER, PODMAN
from tokenpeak.node.error import ScriptError
from tokenpeak.node.identity import IsMember
from tokenpeak.node.managers.base import START_TIMEOUT_S, STOP_TIMEOUT_S, Manager
from tokenpeak.node.state import Json


class DockerManager(Manager):
    """declared: unit (the container's name), stop_grace_s."""

    program = DOCKER

    @property
    def _user(self) -> str | None:
        """Whose rootless runtime has it."""
        return None

    def _command(self, *words: str) -> list[str]:
        return Runtime(self.program, self._user, "tokenpeak_production.user").command(*words)

    def _inspect(self) -> dict[str, Any]:
        unit = str(self.needed("unit"))
        found = json.loads(self.do(self._command("inspect", "--type", "container", "--", unit)).out)
        if not found:
            raise ScriptError("production", f"{self.program} has no container {unit!r}: set tokenpeak_production.unit.")
        return dict(found[0])

    def definition(self) -> Json:
        """The container's id, image and policies; one that is removed when it stops cannot be borrowed."""
        found = self._inspect()
        host = found.get("HostConfig") or {}
        if host.get("AutoRemove"):
            raise ScriptError(
                "production",
                f"The container {self.unit!r} has --rm: stopping would delete it. Start it without --rm.",
            )
        return {
            "id": found.get("Id"),
            "image": found.get("Image"),
            "restart_policy": host.get("RestartPolicy"),
            "state": found.get("State"),
        }

    def members(self) -> IsMember:
        """The container's processes, and its engine's forwarders."""
        user = self.declared.get("user")
        return of_containers([self._inspect()], pwd.getpwnam(user).pw_uid if user else 0)

    def is_running(self) -> bool:
        """Whether the container runs (a paused one does: it holds its memory)."""
        return is_running(self._inspect())

    def last_start(self) -> str | None:
        """When the container was started last."""
        return (self._inspect().get("State") or {}).get("StartedAt")

    def was_started(self, since: str | None) -> bool:
        """Whether it runs, or was started later: one that could not stay up is seen afterwards too."""
        found = self._inspect()
        return is_running(found) or (found.get("State") or {}).get("StartedAt") != since

    def is_enabled(self) -> bool | None:
        """Whether its restart policy brings it back at boot."""
        policy = ((self._inspect().get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name")
        return policy in ("always", "unless-stopped")

    def stop(self) -> None:
        """Stop the container, which then stays for `start`."""
        grace_s = int(self.declared.get("stop_grace_s", 30))
        self.do(self._command("stop", "-t", str(grace_s), str(self.needed("unit"))), STOP_TIMEOUT_S + grace_s)

    def start(self, recorded: Json) -> None:
        """Start the recorded container, by its id: a namesake that came meanwhile is not it."""
        self.do(self._command("start", str(recorded.get("id") or self.needed("unit"))), START_TIMEOUT_S)


class PodmanManager(DockerManager):
    """declared: unit, stop_grace_s, and user for a rootless container."""

    program = PODMAN

    @property
    def _user(self) -> str | None:
        return str(self.declared["user"]) if self.declared.get("user") else None


class ComposeManager(Manager):
    """declared: file (the Compose file), unit (the service), project."""

    def _compose(self, *words: str) -> list[str]:
        project = ["-p", str(self.declared["project"])] if "project" in self.declared else []
        return ["docker", "compose", "-f", str(self.needed("file")), *project, *words]

    def members(self) -> IsMember:
        """The processes of the service's containers, and Docker's forwarders."""
        ids = self.do(self._compose("ps", "-q", str(self.needed("unit")))).out.split()
        found = json.loads(self.do(["docker", "inspect", "--type", "container", "--", *ids]).out) if ids else []
        return of_containers(found, 0)

    def is_running(self) -> bool:
        """Whether Compose lists a running container of the service."""
        ran = self.do(self._compose("ps", "--status", "running", "-q", str(self.needed("unit"))))
        return bool(ran.out.strip())

    def definition(self) -> Json:
        """The resolved Compose file, to show what was there."""
        return {"config": process.run(self._compose("config")).out}

    def stop(self) -> None:
        """Stop the service's containers, which then stay for `start`."""
        self.do(self._compose("stop", str(self.needed("unit"))), STOP_TIMEOUT_S)

    def start(self, recorded: Json) -> None:
        """Start the same containers again; nothing is created anew."""
        self.do(self._compose("start", str(self.needed("unit"))), START_TIMEOUT_S)
