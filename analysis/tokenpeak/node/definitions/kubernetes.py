"""A Deployment's or StatefulSet's definition: its pod template, replaced as a whole by a patch.

It is patched while no replica is asked for, so that no pod is replaced by the patch itself.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.engine_command import Command
from tokenpeak.node.error import ScriptError
from tokenpeak.node.state import Json

ANNOTATION = "tokenpeak/apply"
_START_WORDS = ("serve", "api_server")


class KubernetesDefinition(Definition):
    """own: the pod template."""

    USER_AS = "securityContext.runAsUser of the container or the pod"
    is_in_image = True

    def describe(self) -> Json:
        """The template, as the cluster has it."""
        return {"own": {"template": self.manager.found()["spec"]["template"]}, "seen": {}}

    def command(self, described: Json) -> Command:
        """Command and args of the container that serves; without a command, the image's own program is kept."""
        container = self._container(described["own"]["template"])
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        env = {name: self.meaning(value) for name, value in _values(container).items()}
        if not container.get("command"):
            return Command(tuple(words), env, 0, container.get("image"))
        return self.as_command(words, env, container.get("image"))

    def user(self, described: Json, command: Command) -> str | None:
        """What securityContext of the container, else of the pod, says; with runAsNonRoot no root is started."""
        template = described["own"]["template"]
        contexts = [one.get("securityContext") or {} for one in (self._container(template), template["spec"])]
        number, never_root = (
            next((each[key] for each in contexts if each.get(key) is not None), None)
            for key in ("runAsUser", "runAsNonRoot")
        )
        if number is not None:
            return str(number)
        return "runAsNonRoot" if never_root else None

    def prepared(self, described: Json, command: Command, mark: str) -> Json:
        """The template with this command."""
        was = self.command(described)
        template = copy.deepcopy(described["own"]["template"])
        container = self._container(template)
        head = len(container.get("command") or [])
        if command.words[:head] != was.words[:head]:
            container["command"], head = [command.words[0]], 1
        container["args"] = list(command.words[head:])
        container["image"] = command.image
        env = self.as_kept(was, command, _values(container))
        kept = [one for one in container.get("env") or [] if "value" not in one or env.get(one["name"]) == one["value"]]
        has = {one["name"] for one in kept}
        container["env"] = kept + [{"name": name, "value": value} for name, value in env.items() if name not in has]
        template.setdefault("metadata", {}).setdefault("annotations", {})[ANNOTATION] = mark
        return {"template": template}

    def write(self, own: Json) -> None:
        """Replace the template."""
        patch = [{"op": "replace", "path": "/spec/template", "value": own["template"]}]
        unit = str(self.manager.needed("unit"))
        self.manager.do(self.manager.kubectl("patch", unit, "--type=json", "-p", json.dumps(patch)))

    def place(self, own: Json) -> str:
        """The object."""
        return f"pod template of {self.manager.unit}"

    def meaning(self, word: str) -> str:
        """A dollar that is written twice is one, and begins no reference."""
        return word.replace("$$", "$")

    def literal(self, word: str) -> str:
        """A dollar is written twice: `$$(` would be a dollar and a reference."""
        return word.replace("$", "$$")

    def _container(self, template: Json) -> dict[str, Any]:
        """The container that serves: the only one, or the one whose command runs an engine."""
        containers: list[dict[str, Any]] = template["spec"]["containers"]
        own = [one for one in containers if any(str(word).endswith(_START_WORDS) for word in one.get("command") or [])]
        found = containers if len(containers) == 1 else own
        if len(found) != 1:
            raise ScriptError(
                "definition", f"{self.manager.unit} has {len(containers)} containers: which serves is not seen."
            )
        return found[0]


def _values(container: Json) -> dict[str, str]:
    """The variables that have a value, as the template has them."""
    return {one["name"]: one["value"] for one in container.get("env") or [] if isinstance(one.get("value"), str)}
