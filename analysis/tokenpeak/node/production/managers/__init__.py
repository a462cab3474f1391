"""Managers of production: who starts, stops, describes and changes it, one module a kind, all with the same verbs."""

from __future__ import annotations

from typing import Callable

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.managers.base import Definition, Manager, NoManager
from tokenpeak.node.production.managers.command import CommandManager, command_definition
from tokenpeak.node.production.managers.compose import ComposeDefinition, ComposeManager
from tokenpeak.node.production.managers.containers import DockerManager, PodmanManager
from tokenpeak.node.production.managers.docker import DockerDefinition
from tokenpeak.node.production.managers.kubernetes import KubernetesDefinition, KubernetesManager
from tokenpeak.node.production.managers.podman import PodmanDefinition
from tokenpeak.node.production.managers.supervisord import SupervisordDefinition, SupervisordManager
from tokenpeak.node.production.managers.systemd import SystemdDefinition, SystemdManager

MANAGERS: dict[str, type[Manager]] = {
    "systemd": SystemdManager,
    "docker": DockerManager,
    "podman": PodmanManager,
    "compose": ComposeManager,
    "kubernetes": KubernetesManager,
    "supervisord": SupervisordManager,
    "command": CommandManager,
    "none": NoManager,
}


def recorded_manager(recorded: Json, state: State) -> Manager:
    """The manager of recorded production, which knows who answered before the stop."""
    manager = make_manager(recorded["declared"], state)
    manager.answered_before = recorded.get("answered_by")
    return manager


def make_manager(declared: Json, state: State) -> Manager:
    """The manager that the inventory's tokenpeak_production names.

    Raises ScriptError where it would have root run or load what others can write.
    """
    name = declared.get("manager", "none")
    if name not in MANAGERS:
        raise ScriptError(
            "declaration",
            f"tokenpeak_production.manager is {shown_value(name)}. Known: {', '.join(MANAGERS)}.",
        )
    manager = MANAGERS[name](declared, state)
    manager.require_own_files()
    return manager


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
