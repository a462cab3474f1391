"""Production as a container: Docker's or Podman's."""

from __future__ import annotations

import json
import pwd
from typing import Any

from tokenpeak.node import process
from tokenpeak.node.containers import Runtime, is_absent, is_running, of_containers, said
from tokenpeak.node.engine_builds import DOCKER, PODMAN
from tokenpeak.node.error import NOT_SEEN, ScriptError
from tokenpeak.node.identity import IsMember
from tokenpeak.node.managers.base import START_TIMEOUT_S, STOP_TIMEOUT_S, Manager
from tokenpeak.node.shown import shown_value
from tokenpeak.node.state import Json


class DockerManager(Manager):
    """declared: unit (the container's name), stop_grace_s."""

    program = DOCKER

    @property
    def _user(self) -> str | None:
        """Whose rootless runtime has it."""
        return None

    def command(self, *words: str) -> list[str]:
        """The command line of these words."""
        return self.runtime().command(*words)

    def runtime(self) -> Runtime:
        """The runtime that has the container."""
        return Runtime(self.program, self._user, "tokenpeak_production.user")

    def inspect(self, name: str | None = None, must: bool = True) -> Any:
        """What the runtime knows of the container, by default production's; None where one need not be there."""
        unit = name or str(self.needed("unit"))
        ran = process.run(self.command("inspect", "--type", "container", "--", unit))
        if ran.status != 0 and not must and is_absent(ran):
            return None
        found = json.loads(ran.out) if ran.status == 0 else []
        if not found:
            raise ScriptError(
                "production" if ran.status == 0 or is_absent(ran) else NOT_SEEN,
                f"{self.program} shows no container {shown_value(unit)} ({said(ran)}): correct "
                "tokenpeak_production.unit, or make it anew where somebody removed it.",
            )
        return dict(found[0])

    def with_label(self, label: str) -> list[str]:
        """The ids of all containers that bear a label."""
        return self.ask(self.command("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}")).out.split()

    def definition(self) -> Json:
        """The container's id, image and policies; one that is removed when it stops cannot be borrowed."""
        found = self.inspect()
        host = found.get("HostConfig") or {}
        if host.get("AutoRemove"):
            raise ScriptError(
                "production",
                f"The container {shown_value(self.unit)} has --rm: stopping would delete it. Start it without --rm.",
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
        return of_containers([self.inspect()], pwd.getpwnam(user).pw_uid if user else 0)

    def is_running(self) -> bool:
        """Whether the container runs (a paused one does: it holds its memory)."""
        return is_running(self.inspect())

    def last_start(self) -> str | None:
        """When the container was started last."""
        return (self.inspect().get("State") or {}).get("StartedAt")

    def was_started(self, since: str | None) -> bool:
        """Whether it runs, or was started later: one that could not stay up is seen afterwards too."""
        found = self.inspect()
        return is_running(found) or (found.get("State") or {}).get("StartedAt") != since

    def is_enabled(self) -> bool | None:
        """Whether its restart policy brings it back at boot."""
        policy = ((self.inspect().get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name")
        return policy in ("always", "unless-stopped")

    def stop(self) -> None:
        """Stop the container, which then stays for `start`."""
        grace_s = int(self.declared.get("stop_grace_s", 30))
        self.do(self.command("stop", "-t", str(grace_s), str(self.needed("unit"))), STOP_TIMEOUT_S + grace_s)

    def start(self, recorded: Json) -> None:
        """Start the recorded container, by its id: a namesake that came meanwhile is not it, unless that is gone."""
        one = str(recorded.get("id") or "")
        if not one or self.inspect(one, must=False) is None:
            one = str(self.needed("unit"))
        self.do(self.command("start", one), START_TIMEOUT_S)


class PodmanManager(DockerManager):
    """declared: unit, stop_grace_s, and user for a rootless container."""

    program = PODMAN

    @property
    def _user(self) -> str | None:
        return str(self.declared["user"]) if self.declared.get("user") else None
