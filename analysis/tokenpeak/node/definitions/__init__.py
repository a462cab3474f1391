"""Definitions of production: described, changed and put back by one class per kind of manager, with the same verbs."""

from __future__ import annotations

from typing import Callable

from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.definitions.command import command_definition
from tokenpeak.node.definitions.compose import ComposeDefinition
from tokenpeak.node.definitions.docker import DockerDefinition
from tokenpeak.node.definitions.kubernetes import KubernetesDefinition
from tokenpeak.node.definitions.podman import PodmanDefinition
from tokenpeak.node.definitions.supervisord import SupervisordDefinition
from tokenpeak.node.definitions.systemd import SystemdDefinition
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers.base import Manager

DEFINITIONS: dict[str, Callable[[Manager], Definition]] = {
    "systemd": SystemdDefinition,
    "docker": DockerDefinition,
    "podman": PodmanDefinition,
    "compose": ComposeDefinition,
    "kubernetes": KubernetesDefinition,
    "supervisord": SupervisordDefinition,
    "command": command_definition,
}


def definition_of(manager: Manager) -> Definition:
    """The definition of this manager's production; ScriptError for a manager without one."""
    name = str(manager.declared.get("manager", "none"))
    if name not in DEFINITIONS:
        raise ScriptError(
            "definition",
            f"Production with manager {name} has no definition that could be changed. Known: {', '.join(DEFINITIONS)}.",
        )
    return DEFINITIONS[name](manager)
