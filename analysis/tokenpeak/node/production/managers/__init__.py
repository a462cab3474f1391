"""Managers of production: who starts, stops, describes and changes it, one module a kind, all with the same verbs."""

from __future__ import annotations

from tokenpeak.node.machine import trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.manager import DECLARED_AS, WAY_OUT, Manager, NoManager
from tokenpeak.node.production.managers.command import CommandManager, OwnProcessManager
from tokenpeak.node.production.managers.compose import ComposeManager
from tokenpeak.node.production.managers.docker_and_podman import DockerManager, PodmanManager
from tokenpeak.node.production.managers.kubernetes import KubernetesManager
from tokenpeak.node.production.managers.supervisord import SupervisordManager
from tokenpeak.node.production.managers.systemd import SystemdManager

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
    is_own = name == "command" and declared.get("process")
    manager = (OwnProcessManager if is_own else MANAGERS[name])(declared, state)
    trust.require_only_root(DECLARED_AS, manager.files(), WAY_OUT)
    return manager
