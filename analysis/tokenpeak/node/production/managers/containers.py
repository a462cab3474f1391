"""Production as a container: Docker's or Podman's.

A container is changed by another that takes its name: the old one is kept, stopped, and gets its name back.

    NAME                          the container that serves
    NAME.tokenpeak-ID             one that does not: the old one, or one that is to take its place

Only containers that bear our label, and not of their image, are ever removed. One that does not serve is not started
at boot.
"""

from __future__ import annotations

import json
import pwd
from typing import Any

from tokenpeak.node.machine import process
from tokenpeak.node.machine.containers import Runtime, is_absent, is_running, of_containers, said
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.manager import START_TIMEOUT_S, STOP_TIMEOUT_S, Command, Manager

LABEL = "tokenpeak.apply"
NO_RESTART = "no"


class ContainerManager(Manager):
    """declared: unit (the container's name), stop_grace_s.

    Of its definition, own: id and restart (policy); seen: what the container was made with.
    """

    program: str
    USER_AS = "--user of the container"
    is_in_image = is_user_of_image = True
    is_removable = True

    def runtime(self) -> Runtime:
        """The runtime that has the container."""
        return Runtime(self.program, None, "tokenpeak_production.user")

    def argv(self, *words: str) -> list[str]:
        """The runtime's command line of these words."""
        return self.runtime().command(*words)

    def inspect(self, name: str | None = None, must: bool = True) -> Any:
        """The runtime's description of the container, by default production's; None where one need not be there."""
        unit = name or self.name
        ran = process.run(self.argv("inspect", "--type", "container", "--", unit))
        if ran.status != 0 and not must and is_absent(ran):
            return None
        described = json.loads(ran.out) if ran.status == 0 else []
        if not described:
            raise ScriptError(
                "production" if ran.status == 0 or is_absent(ran) else NOT_SEEN,
                f"{self.program} shows no container {shown_value(unit)} ({said(ran)}): correct "
                "tokenpeak_production.unit, or make it anew where somebody removed it.",
            )
        return dict(described[0])

    def definition(self) -> Json:
        """The container's id, image and policies; one that is removed when it stops cannot be borrowed."""
        described = self.inspect()
        host = described.get("HostConfig") or {}
        if host.get("AutoRemove"):
            raise ScriptError(
                "production",
                f"The container {shown_value(self.unit)} has --rm: stopping would delete it. Start it without --rm.",
            )
        return {
            "id": described.get("Id"),
            "image": described.get("Image"),
            "restart_policy": host.get("RestartPolicy"),
            "state": described.get("State"),
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
        container = self.inspect()
        return is_running(container) or (container.get("State") or {}).get("StartedAt") != since

    def stop(self) -> None:
        """Stop the container, which then stays for `start`."""
        grace_s = int(self.declared.get("stop_grace_s", 30))
        self.do(self.argv("stop", "-t", str(grace_s), self.name), STOP_TIMEOUT_S + grace_s)

    def start(self, recorded: Json) -> None:
        """Start the recorded container, by its id: a namesake that came meanwhile is not it, unless that is gone."""
        one = str(recorded.get("id") or "")
        if not one or self.inspect(one, must=False) is None:
            one = self.name
        self.do(self.argv("start", one), START_TIMEOUT_S)

    def describe(self) -> Json:
        """The container that has the name."""
        container = self.inspect()
        return {"own": _own(container), "seen": self.made_with(container)}

    def command(self, described: Json) -> Command:
        """Entry point and arguments, environment and image."""
        return self.as_command(*self.parts(described))

    def parts(self, described: Json) -> tuple[list[str], dict[str, str], str | None]:
        """The words of a command, its environment and its image, whatever its program is."""
        raise NotImplementedError

    def image_again(self, name: str | None, image: str | None) -> str | None:
        """The image of a container that is made anew, which was of the image of this id, by this name."""
        return name

    def made_with(self, container: Json) -> Json:
        """The options that an inspected container was made with, less what its runtime gave it."""
        raise NotImplementedError

    def create(self, described: Json, command: Command, mark: str, name: str) -> str:
        """Make a container like the described one with another command, named `name`, never restarted; its id."""
        raise NotImplementedError

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """Make the new container, stopped and under a name of its own."""
        name = f"{self.unit}.tokenpeak-{mark[-12:]}"
        return {"id": self.create(described, command, mark, name), "restart": described["own"]["restart"]}

    def prepare_back(self, own: Json) -> None:
        """See that the container is there before production is stopped for it."""
        if not self._is_kept(own["id"]):
            raise ScriptError("definition", f"The container {own['id'][:12]} that was {self.unit} is gone.")

    def way_back(self, record: Json) -> Json:
        """The old container, or one like it where that was removed; what somebody else gave the name is never stopped.

        Where the old one was removed, a container that neither it nor the apply is has been made in its place.
        """
        apply, unit = record["apply"], self.name
        own, holder = apply["was"]["own"], self.inspect(unit, must=False)
        is_foreign = holder is not None and holder["Id"] not in (own["id"], apply["new"]["id"])
        if self._is_kept(own["id"]):
            if is_foreign:
                raise ScriptError(
                    "definition",
                    f"Somebody has given the name {unit} to the container {holder['Id'][:12]}, which is left as it is. "
                    f"Rename that, then `tokenpeak restore` gives {own['id'][:12]}, which was {unit}, its name back; "
                    f"or, if it is meant to stay, `{self.program} rm {own['id'][:12]}`, then `tokenpeak restore`.",
                )
            return dict(own)
        return _own(holder) if is_foreign else self._made_again(apply["was"], record["production"])

    def make_again(self, described: Json, recorded: Json) -> None:
        """Make a container like the described one, unless it is there, or another has its name."""
        if not self.is_there() and not self._is_kept(described["own"]["id"]):
            self.write(self._made_again(described, recorded))

    def _made_again(self, described: Json, recorded: Json) -> Json:
        """A stopped container like the described one, which is gone; one that an earlier try left half made goes."""
        unit, gone = self.unit, described["own"]["id"][:12]
        name = f"{unit}.tokenpeak-{gone}"
        try:
            left = self.inspect(name, must=False)
            if left is not None and LABEL in self.runtime().own_labels(left):
                self.do(self.argv("rm", left["Id"]))
            words, env, image = self.parts(described)
            image = self.image_again(image, recorded["definition"].get("image"))
            one = self.create(described, Command(tuple(words), env, 0, image), gone, name)
        except ScriptError as error:
            raise ScriptError(
                "definition",
                f"The container {gone} that was {unit} was removed while it was stopped, as `{self.program} "
                f"container prune` does, and cannot be made anew: {error.text} Make {unit} anew by hand, in place of "
                "what has the name, then `tokenpeak restore`.",
            ) from error
        return {"id": one, "restart": described["own"]["restart"]}

    def _is_kept(self, container: str) -> bool:
        return self.inspect(container, must=False) is not None

    def write(self, own: Json) -> None:
        """Give the container of `own` the name, once the one that has it has given it up."""
        unit = self.name
        self.prepare_back(own)
        holder = self.inspect(unit, must=False)
        if holder is not None and holder["Id"] != own["id"]:
            self._set_restart(holder["Id"], NO_RESTART)
            self.do(self.argv("rename", holder["Id"], f"{unit}.tokenpeak-{holder['Id'][:12]}"))
            holder = None
        if holder is None:
            self.do(self.argv("rename", own["id"], unit))
        self._set_restart(own["id"], own["restart"])

    def is_there(self) -> bool:
        """Whether a container has the name."""
        return self.inspect(must=False) is not None

    def clean(self, kept: list[Json]) -> None:
        """Remove containers of ours that neither serve nor are kept."""
        unit = self.name
        holder = self.inspect(unit, must=False)
        needed = {own["id"] for own in kept} | ({holder["Id"]} if holder else set())
        words = ("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}")
        for one in self.ask(self.argv(*words)).out.split():
            described = self.inspect(one, must=False)
            ours = described is not None and str(described.get("Name", "")).lstrip("/").startswith(f"{unit}.tokenpeak-")
            if ours and described["Id"] not in needed and LABEL in self.runtime().own_labels(described):
                self.do(self.argv("rm", described["Id"]))

    def start_facts(self, recorded: Json) -> Json:
        """The id of the container that has the name now."""
        return {**recorded, "id": self.inspect()["Id"]}

    def place(self, own: Json) -> str:
        """The container's name."""
        return f"container {self.unit}"

    def _set_restart(self, container: str, policy: str) -> None:
        described = self.inspect(container)
        if _policy(described) != policy:
            self.do(self.argv("update", f"--restart={policy}", container))


def _own(container: Json) -> Json:
    return {"id": container["Id"], "restart": _policy(container)}


def _policy(container: dict[str, Any]) -> str:
    """A restart policy as `docker update` takes it."""
    policy = (container.get("HostConfig") or {}).get("RestartPolicy") or {}
    name, tries = policy.get("Name") or NO_RESTART, policy.get("MaximumRetryCount") or 0
    return f"{name}:{tries}" if name == "on-failure" and tries else str(name)
