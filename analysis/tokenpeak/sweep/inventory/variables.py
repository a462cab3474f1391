"""Variables of inventories: which there are, of which type, and what production's managers take."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tokenpeak import paths
from tokenpeak.errors import InventoryError
from tokenpeak.node.protocol.apply import CONCURRENCY_MAX, OBSERVE_MAX_S
from tokenpeak.results.bake import SPANS
from tokenpeak.sweep.inventory.nodes import Node

CONTROLLER: Mapping[str, tuple[str, str]] = {
    "tokenpeak_become": ("bool", "Whether the playbooks become root by sudo; `ansible_become` does the same."),
    "tokenpeak_default_sweep": ("str", "The sweep that `plan` and `sweep` take when none is named."),
    "tokenpeak_facts": ("dict", "What the nodes are, for planning before the first probe."),
    "tokenpeak_load_home": ("str", "Of a load host: where the load client goes; ~/.local/share/tokenpeak/load."),
    "tokenpeak_load_python": ("str", "Of a load host: the Python of an environment that has TokenPeak already."),
    "tokenpeak_max_unavailable": (
        "dict",
        "Group of the inventory → how many of its nodes may be unavailable at a time, as a number or a share.",
    ),
    "tokenpeak_model_store": (
        "dict",
        "The model store that the node shares with others: production of its nodes starts one after the other.",
    ),
    "tokenpeak_produce": ("bool", "Whether production is a demonstration that the inventory starts itself."),
    "tokenpeak_setup_roles": ("list", "Roles that `install` applies first: `simulator`, `cpu_engine`."),
    "tokenpeak_tasks": (
        "dict",
        "Task files of the inventory's folder that run in each trial: `before_launch` and others.",
    ),
    "tokenpeak_tdp_w": ("float", "Power of the processors at full load, for estimates where nothing measures energy."),
}
"""Variable that the controller or a playbook reads and no role declares → its type as in argument_specs, and what it
is."""

BY_CONTROLLER = (
    "tokenpeak_apply_request",
    "tokenpeak_claim",
    "tokenpeak_load_bundle",
    "tokenpeak_install_on",
    "tokenpeak_local_home",
    "tokenpeak_pyz",
    "tokenpeak_restore",
    "tokenpeak_restore_holder",
    "tokenpeak_retired_secrets",
    "tokenpeak_secret_files",
    "tokenpeak_secret_name",
)
"""Variables of roles that the controller gives for one playbook; an inventory has none of them."""

ANSIBLE = (
    "ansible_become",
    "ansible_become_method",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_connection",
    "ansible_host",
    "ansible_password",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_python_interpreter",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_private_key_file",
    "ansible_user",
)
"""Ansible's own that an inventory of nodes usually has; there are more."""

_EVERY_MANAGER = ("manager", "url", "api_key_file", "ca_file", "listens_as", "answers_with", "answer_command")
MANAGER_KEYS: Mapping[str, tuple[str, ...]] = {
    "systemd": ("unit", "user"),
    "docker": ("unit", "stop_grace_s"),
    "podman": ("unit", "stop_grace_s", "user"),
    "compose": ("file", "unit", "project"),
    "kubernetes": ("unit", "namespace", "context", "kubeconfig"),
    "supervisord": ("unit", "config"),
    "command": ("start", "stop", "check", "command_file", "process"),
    "none": (),
}
"""Manager of production → the keys of tokenpeak_production that are its own."""

PRODUCTION_KEYS: Mapping[str, tuple[str, str]] = {
    "manager": ("str", "What starts and stops production."),
    "url": ("str", "Where production answers; without it only its state is checked."),
    "api_key_file": ("path", "A file on the node with production's API key; root's, mode 0600."),
    "ca_file": ("path", "A PEM file on the node by which an https `url` is trusted."),
    "listens_as": ("str", "The user whose process answers at `url`, where that is none that the manager knows."),
    "answers_with": ("str", "What production must answer to count as well; `completion` when absent."),
    "answer_command": ("list", "For `answers_with: command`: a program with arguments; status 0 means well."),
    "unit": ("str", "The unit, container, service, program or workload that serves the model."),
    "user": ("str", "The user whose systemd, or whose rootless Podman, has the unit."),
    "stop_grace_s": ("float", "How long the container may take to stop before it is killed."),
    "file": ("path", "The Compose file on the node."),
    "project": ("str", "The Compose project, where it is not the folder's name."),
    "namespace": ("str", "The Kubernetes namespace."),
    "context": ("str", "The context of the kubeconfig."),
    "kubeconfig": ("path", "The kubeconfig on the node."),
    "config": ("path", "supervisord's configuration on the node, where it is not the usual one."),
    "start": ("list", "A program with arguments that starts production."),
    "stop": ("list", "A program with arguments that stops it."),
    "check": ("list", "A program with arguments; status 0 means that production runs. Without it, `url` is asked."),
    "command_file": ("path", "The engine's command, a word a line, which `start` runs; what an apply changes."),
    "process": ("dict", "Instead of `start` and `stop`: the process itself, by `argv`, `env` and `cwd`."),
}
"""Key of tokenpeak_production → its type, and what it is."""


BALANCER_KEYS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "haproxy": {
        "socket": ("str", "Its runtime socket with level admin, as the node reaches it: a path, or HOST:PORT."),
        "servers": ("list", "What this node is there, each as BACKEND/SERVER."),
    },
    "nginx": {
        "file": ("path", "The file with the upstream."),
        "server": ("str", "This node's server, as its line there has it."),
        "reach": ("list", "The words before a command that runs it where nginx is: ssh and a host."),
        "reload": ("list", "A program with arguments that makes nginx read its files again."),
    },
    "kubernetes": {
        "service": ("str", "The Service that sends requests to the node's pods."),
        "label": ("str", "KEY=VALUE of its selector: the pods lose it and get it back."),
    },
}
"""Built-in balancer of tokenpeak_drain → key → its type, and what it is."""
DRAIN_OPTIONS: Mapping[str, tuple[str, str]] = {
    "before": ("list", "A program with arguments that takes the node out, where no balancer above is meant."),
    "after": ("list", "A program with arguments that puts it back."),
    "wait": ("dict", "How to know that running requests have ended: `metric` and `most_s`, or `seconds` alone."),
    "least_up": ("int", "How many others must serve, so that this node may leave; 1 when absent."),
}
"""Other key of tokenpeak_drain → its type, and what it is."""
DRAIN_KEYS = (*BALANCER_KEYS, *DRAIN_OPTIONS)
TASK_KEYS: Mapping[str, tuple[str, str]] = {
    "before_launch": ("path", "Tasks before production is stopped."),
    "after_ready": ("path", "Tasks once the engine answers, before the load."),
    "before_return": ("path", "Tasks before the engine is stopped and production returns."),
    "timeout_s": ("float", "How long one of these tasks may take; 600 when absent."),
}
"""Key of tokenpeak_tasks → its type, and what it is."""
NOTIFY_KEYS: Mapping[str, tuple[str, str]] = {
    "command": ("list", "A program with arguments; it gets the event as JSON on its standard input."),
    "webhook": ("str", "A URL that gets the event as JSON, sent again until it is taken."),
    "webhook_file": ("path", "Instead: a file, its owner's alone, that holds a URL with a token in it."),
    "email": ("str", "An address, by the machine's sendmail."),
    "secret_file": ("path", "A file, its owner's alone, with the secret that signs what a webhook gets."),
    "events": ("list", "The events that are meant; all when absent."),
    "from": ("str", "node or controller, where only one of them is to call; both when absent."),
}
"""Key of a receiver of tokenpeak_notify → its type, and what it is."""


def keys_of(manager: str) -> tuple[str, ...]:
    """Every key of tokenpeak_production that this manager takes."""
    return (*_EVERY_MANAGER, *MANAGER_KEYS[manager])


@cache
def declared_variables() -> Mapping[str, str]:
    """Variable → type, of all that roles and controller read from an inventory."""
    found = {name: type_ for name, (type_, _) in CONTROLLER.items()}
    for path in sorted(paths.PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            for name, option in entry["options"].items():
                if name.startswith("tokenpeak_"):
                    found[name] = option["type"]
    return found


BAKE_S = 300.0
MARGIN = 0.1
SHORTEST_PERIOD_S = 0.5
MOST_ROUNDS = 3
"""So often as many seconds are observed again while they decide nothing."""
_KEYS = ("bake_s", "margin", "settle_s", "test_load")


@dataclass(frozen=True, kw_only=True)
class BakeSettings:
    """`concurrency` is that of the test load, 0 for none; `margin` by what share a mean must be longer to count."""

    bake_s: float = BAKE_S
    settle_s: float = 30.0
    margin: float = MARGIN
    concurrency: int = 0

    @property
    def period_s(self) -> float:
        """How often metrics are read."""
        return max(SHORTEST_PERIOD_S, self.bake_s / (2 * SPANS))


def bake_settings(node: Node, bake_s: float | None = None) -> BakeSettings:
    """What the inventory's tokenpeak_bake says for a node; `bake_s` is what was asked for instead."""
    declared: Any = node.variables.get("tokenpeak_bake") or {}
    if not isinstance(declared, Mapping) or set(declared) - {*_KEYS}:
        raise InventoryError(f"tokenpeak_bake of node {node.name} is {declared!r}; its keys are {', '.join(_KEYS)}.")
    load = declared.get("test_load", False)
    concurrency = 2 if load is True else load or 0
    found = BakeSettings(
        bake_s=bake_s if bake_s is not None else _number(node, declared, "bake_s", BAKE_S),
        settle_s=_number(node, declared, "settle_s", 30.0),
        margin=_number(node, declared, "margin", MARGIN),
        concurrency=concurrency if isinstance(concurrency, int) else -1,
    )
    if not 0 <= found.concurrency <= CONCURRENCY_MAX:
        raise InventoryError(
            f"tokenpeak_bake.test_load of node {node.name} is {load!r}; give true, or 1 to {CONCURRENCY_MAX} requests "
            "at a time."
        )
    if not 5 <= found.bake_s <= OBSERVE_MAX_S / 2 or not 0 <= found.settle_s <= OBSERVE_MAX_S / 2:
        raise InventoryError(f"A bake of node {node.name} is to take {found.bake_s:g} s; 5 s to an hour are possible.")
    return found


def _number(node: Node, declared: Mapping[str, Any], key: str, default: float) -> float:
    value = declared.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InventoryError(f"tokenpeak_bake.{key} of node {node.name} is {value!r}; give a number.")
    return float(value)
