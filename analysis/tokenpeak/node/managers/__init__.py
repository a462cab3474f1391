"""What keeps production running on a node: one class per kind of manager, all with the same few verbs."""

from __future__ import annotations

from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.managers.command import CommandManager
from tokenpeak.node.managers.compose import ComposeManager
from tokenpeak.node.managers.containers import DockerManager, PodmanManager
from tokenpeak.node.managers.kubernetes import KubernetesManager
from tokenpeak.node.managers.none import NoManager
from tokenpeak.node.managers.supervisord import SupervisordManager
from tokenpeak.node.managers.systemd import SystemdManager
from tokenpeak.node.shown import shown_value
from tokenpeak.node.state import Json, State

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
