"""Production as a Deployment or StatefulSet that is scaled to 0 and back, and changed by its pod template as a whole.

It is patched while no replica is asked for, so that no pod is replaced by the patch itself.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, control_group
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.manager import STOP_TIMEOUT_S, Command, Manager


class KubernetesManager(Manager):
    """declared: unit (`deployment/NAME` or `statefulset/NAME`), namespace, kubeconfig, context.

    Of its definition, own: the pod template.
    """

    USER_AS = "securityContext.runAsUser of the container or the pod"
    doubled = "$"
    is_in_image = True

    def kubectl(self, *words: str) -> list[str]:
        """The command line of these words."""
        options = [
            f"--{flag}={self.declared[flag]}"
            for flag in ("kubeconfig", "context", "namespace")
            if flag in self.declared
        ]
        return ["kubectl", *options, *words]

    def files(self) -> list[Path]:
        """The kubeconfig, which names programs that kubectl runs."""
        return [Path(str(self.declared["kubeconfig"]))] if "kubeconfig" in self.declared else []

    def workload(self) -> dict[str, Any]:
        """The object as the cluster has it now."""
        unit = self.name
        if unit.split("/")[0] not in ("deployment", "statefulset"):
            raise ScriptError(
                "declaration",
                f"tokenpeak_production.unit is {shown_value(unit)}; give deployment/NAME or statefulset/NAME.",
            )
        return dict(json.loads(self.ask(self.kubectl("get", unit, "-o", "json")).out))

    def definition(self) -> Json:
        """How many replicas it was asked to have, and its specification; all its pods must be on one machine.

        One that serves on others too would be stopped there, and by a second node of the inventory found at 0.
        """
        workload = self.workload()
        machines = sorted({pod["spec"]["nodeName"] for pod in self.pods(workload) if pod["spec"].get("nodeName")})
        if len(machines) > 1:
            raise ScriptError(
                "production",
                f"{self.unit} has pods on {len(machines)} machines ({', '.join(machines)}), and borrowing one would "
                "stop them all: give each a Deployment of its own, and name that in its tokenpeak_production.",
            )
        return {"replicas": workload["spec"].get("replicas", 1), "spec": workload["spec"]}

    def is_running(self) -> bool:
        """Whether any replica is asked for."""
        return bool(self.workload()["spec"].get("replicas", 1))

    def members(self) -> IsMember | None:
        """The processes in the control group of one of its pods, whose name is the pod's id."""
        pods = [str((pod.get("metadata") or {}).get("uid") or "") for pod in self.pods(self.workload())]
        uids = [uid for uid in pods if uid]
        if not uids:
            return None
        return lambda pid: any(is_of_pod(control_group(pid), uid) for uid in uids)

    def is_ending(self) -> bool:
        """Whether none is asked for and some are still there."""
        workload = self.workload()
        return not workload["spec"].get("replicas", 1) and bool(workload.get("status", {}).get("replicas"))

    def stop(self) -> None:
        """Scale to 0 and wait until the last pod has gone."""
        self.do(self.kubectl("scale", self.name, "--replicas=0"))
        if not clock.wait_until(lambda: not self.pods(self.workload()), STOP_TIMEOUT_S, poll_s=0.5):
            raise ScriptError(
                "production", f"{self.name} still has pods {STOP_TIMEOUT_S:g} s after it was scaled to 0."
            )

    def pods(self, workload: Json) -> list[dict[str, Any]]:
        """Its pods, less those that ended: one that was evicted is listed until somebody deletes it."""
        alive = "--field-selector=status.phase!=Failed,status.phase!=Succeeded"
        words = ("get", "pods", "-l", pod_selector(workload), alive, "-o", "json")
        return list(json.loads(self.ask(self.kubectl(*words)).out)["items"])

    def start(self, recorded: Json) -> None:
        """Scale back to the recorded number of replicas."""
        replicas = int(recorded.get("replicas", 1))
        self.do(self.kubectl("scale", self.name, f"--replicas={replicas}"))

    def describe(self) -> Json:
        """The template, as the cluster has it."""
        return {"own": {"template": self.workload()["spec"]["template"]}, "seen": {}}

    def command(self, described: Json) -> Command:
        """Command and args of the container that serves; without a command, the image's own program is kept."""
        container = self._container(described["own"]["template"])
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        env = {name: self.meaning(value) for name, value in _values(container).items()}
        if not container.get("command"):
            return Command(tuple(words), env, 0, container.get("image"))
        return self.as_command(words, env, container.get("image"))

    def user(self, described: Json, command: Command) -> str | None:
        """The user in securityContext of the container, else of the pod; with runAsNonRoot no root is started."""
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
        same = [one for one in container.get("env") or [] if "value" not in one or env.get(one["name"]) == one["value"]]
        has = {one["name"] for one in same}
        container["env"] = same + [{"name": name, "value": value} for name, value in env.items() if name not in has]
        template.setdefault("metadata", {}).setdefault("annotations", {})[ANNOTATION] = mark
        return {"template": template}

    def write(self, own: Json) -> None:
        """Replace the template."""
        patch = [{"op": "replace", "path": "/spec/template", "value": own["template"]}]
        self.do(self.kubectl("patch", self.name, "--type=json", "-p", json.dumps(patch)))

    def place(self, own: Json) -> str:
        """The object."""
        return f"pod template of {self.unit}"

    def _container(self, template: Json) -> dict[str, Any]:
        """The container that serves: the only one, or the one whose command runs an engine."""
        containers: list[dict[str, Any]] = template["spec"]["containers"]
        own = [one for one in containers if any(str(word).endswith(_START_WORDS) for word in one.get("command") or [])]
        serving = containers if len(containers) == 1 else own
        if len(serving) != 1:
            raise ScriptError("definition", f"{self.unit} has {len(containers)} containers: which serves is not seen.")
        return serving[0]


def is_of_pod(group: str, uid: str) -> bool:
    """Whether a control group is in a pod's: below a part that is `podUID`, perhaps with what is above it, as a slice.

    None of a user's session or of a service is: whoever has one names groups in it at will.
    """
    above: list[str] = []
    for part in group.split("/"):
        if re.fullmatch(rf"([\w-]*-)?pod{re.escape(uid)}(\.slice)?", part.replace("_", "-")):
            return not any(name == "user.slice" or name.endswith(".service") for name in above)
        above.append(part)
    return False


def pod_selector(workload: Json) -> str:
    """The selector of the object's pods for kubectl. One that selects every pod of the namespace is refused."""
    selector = workload["spec"].get("selector") or {}
    words = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    words += [_expression(each) for each in selector.get("matchExpressions") or []]
    if not words:
        raise ScriptError(
            "production", "The object has no selector, so which pods are its own is not known: give it one."
        )
    return ",".join(words)


def _expression(declared: Json) -> str:
    key, operator = declared.get("key"), declared.get("operator")
    values = ",".join(declared.get("values") or [])
    words = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": f"{key}",
        "DoesNotExist": f"!{key}",
    }
    if operator not in words:
        raise ScriptError(
            "production", f"Its selector has the operator {shown_value(operator)}. Known: {', '.join(words)}."
        )
    return words[operator]


ANNOTATION = "tokenpeak/apply"
_START_WORDS = ("serve", "api_server")


def _values(container: Json) -> dict[str, str]:
    """The variables that have a value, as the template has them."""
    return {one["name"]: one["value"] for one in container.get("env") or [] if isinstance(one.get("value"), str)}
