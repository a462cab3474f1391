"""A container that takes another's name: the old one is kept, stopped, and gets its name back.

    NAME                          the container that serves
    NAME.tokenpeak-ID             one that does not: the old one, or one that is to take its place

Only containers that bear our label, and not of their image, are ever removed. One that does not serve is not started
at boot.
"""

from __future__ import annotations

from typing import Any

from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.engine_command import Command
from tokenpeak.node.error import ScriptError
from tokenpeak.node.state import Json

LABEL = "tokenpeak.apply"
NO_RESTART = "no"


class RenamedContainerDefinition(Definition):
    """own: id and restart (policy); seen: what the container was made with."""

    USER_AS = "--user of the container"
    is_in_image = True
    is_removable = True

    def describe(self) -> Json:
        """The container that has the name."""
        found = self.manager.inspect()
        return {"own": _own(found), "seen": self.made_with(found)}

    def command(self, described: Json) -> Command:
        """Entry point and arguments, environment and image."""
        return self.as_command(*self.parts(described))

    def parts(self, described: Json) -> tuple[list[str], dict[str, str], str | None]:
        """The words of a command, its environment and its image, whatever its program is."""
        raise AssertionError("each runtime says so itself")

    def image_again(self, name: str | None, image: str | None) -> str | None:
        """What a container is made anew of that was of the image of this id, by this name."""
        return name

    def made_with(self, found: Json) -> Json:
        """What an inspected container was made with, less what its runtime gave it."""
        raise AssertionError("each runtime says so itself")

    def create(self, described: Json, command: Command, mark: str, name: str) -> str:
        """Make a container like the described one with another command, named `name`, never restarted; its id."""
        raise AssertionError("each runtime does so itself")

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """Make the new container, stopped and under a name of its own."""
        name = f"{self.manager.unit}.tokenpeak-{mark[-12:]}"
        return {"id": self.create(described, command, mark, name), "restart": described["own"]["restart"]}

    def prepare_back(self, own: Json) -> None:
        """See that the container is there before production is stopped for it."""
        if not self._is_kept(own["id"]):
            raise ScriptError("definition", f"The container {own['id'][:12]} that was {self.manager.unit} is gone.")

    def way_back(self, record: Json) -> Json:
        """The old container, or one like it where that was removed; what somebody else gave the name is never stopped.

        Where the old one was removed, a container that neither it nor the apply is has been made in its place.
        """
        apply, unit = record["apply"], str(self.manager.needed("unit"))
        own, holder = apply["was"]["own"], self.manager.inspect(unit, must=False)
        is_foreign = holder is not None and holder["Id"] not in (own["id"], apply["new"]["id"])
        if self._is_kept(own["id"]):
            if is_foreign:
                raise ScriptError(
                    "definition",
                    f"Somebody has given the name {unit} to the container {holder['Id'][:12]}, which is left as it is. "
                    f"Rename that, then `make restore` gives {own['id'][:12]}, which was {unit}, its name back; or, if "
                    f"it is meant to stay, `{self.manager.program} rm {own['id'][:12]}`, then `make restore`.",
                )
            return dict(own)
        return _own(holder) if is_foreign else self._made_again(apply["was"], record["production"])

    def make_again(self, described: Json, recorded: Json) -> None:
        """Make a container like the described one, unless it is there, or another has its name."""
        if not self.is_there() and not self._is_kept(described["own"]["id"]):
            self.write(self._made_again(described, recorded))

    def _made_again(self, described: Json, recorded: Json) -> Json:
        """A stopped container like the described one, which is gone; one that an earlier try left half made goes."""
        unit, gone = self.manager.unit, described["own"]["id"][:12]
        name = f"{unit}.tokenpeak-{gone}"
        try:
            left = self.manager.inspect(name, must=False)
            if left is not None and LABEL in self.manager.runtime().own_labels(left):
                self.manager.do(self.manager.command("rm", left["Id"]))
            words, env, image = self.parts(described)
            image = self.image_again(image, recorded["definition"].get("image"))
            one = self.create(described, Command(tuple(words), env, 0, image), gone, name)
        except ScriptError as error:
            raise ScriptError(
                "definition",
                f"The container {gone} that was {unit} was removed while it was stopped, as `{self.manager.program} "
                f"container prune` does, and cannot be made anew: {error.text} Make {unit} anew by hand, in place of "
                "what has the name, then `make restore`.",
            ) from error
        return {"id": one, "restart": described["own"]["restart"]}

    def _is_kept(self, container: str) -> bool:
        return self.manager.inspect(container, must=False) is not None

    def write(self, own: Json) -> None:
        """Give the container of `own` the name, once the one that has it has given it up."""
        unit = str(self.manager.needed("unit"))
        self.prepare_back(own)
        holder = self.manager.inspect(unit, must=False)
        if holder is not None and holder["Id"] != own["id"]:
            self._set_restart(holder["Id"], NO_RESTART)
            self.manager.do(self.manager.command("rename", holder["Id"], f"{unit}.tokenpeak-{holder['Id'][:12]}"))
            holder = None
        if holder is None:
            self.manager.do(self.manager.command("rename", own["id"], unit))
        self._set_restart(own["id"], own["restart"])

    def is_there(self) -> bool:
        """Whether a container has the name."""
        return self.manager.inspect(must=False) is not None

    def clean(self, kept: list[Json]) -> None:
        """Remove containers of ours that neither serve nor are kept."""
        unit = str(self.manager.needed("unit"))
        holder = self.manager.inspect(unit, must=False)
        needed = {own["id"] for own in kept} | ({holder["Id"]} if holder else set())
        for one in self.manager.with_label(LABEL):
            found = self.manager.inspect(one, must=False)
            ours = found is not None and str(found.get("Name", "")).lstrip("/").startswith(f"{unit}.tokenpeak-")
            if ours and found["Id"] not in needed and LABEL in self.manager.runtime().own_labels(found):
                self.manager.do(self.manager.command("rm", found["Id"]))

    def start_facts(self, recorded: Json) -> Json:
        """The id of the container that has the name now."""
        return {**recorded, "id": self.manager.inspect()["Id"]}

    def place(self, own: Json) -> str:
        """The container's name."""
        return f"container {self.manager.unit}"

    def _set_restart(self, container: str, policy: str) -> None:
        found = self.manager.inspect(container)
        if _policy(found) != policy:
            self.manager.do(self.manager.command("update", f"--restart={policy}", container))


def _own(found: Json) -> Json:
    return {"id": found["Id"], "restart": _policy(found)}


def _policy(found: dict[str, Any]) -> str:
    """A restart policy as `docker update` takes it."""
    policy = (found.get("HostConfig") or {}).get("RestartPolicy") or {}
    name, tries = policy.get("Name") or NO_RESTART, policy.get("MaximumRetryCount") or 0
    return f"{name}:{tries}" if name == "on-failure" and tries else str(name)
