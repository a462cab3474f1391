"""Drift of production's definition: what was recorded is compared with what is there when the node is given back."""

from __future__ import annotations

from tokenpeak.node.definitions import definition_of
from tokenpeak.node.engine_command import checksum
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers import recorded_manager
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.state import Json, State


def definition_sha256(manager: Manager) -> str | None:
    """The checksum of production's definition; None for production that has none, or none that can be read."""
    try:
        return checksum(definition_of(manager).describe())
    except (ScriptError, OSError):
        return None


def drift(manager: Manager, was_sha256: str, since: str) -> str:
    """What is to be said of the definition; empty where it is what it was when `since` began."""
    try:
        is_same = checksum(definition_of(manager).describe()) == was_sha256
    except (ScriptError, OSError) as error:
        return f"Its definition cannot be compared with what it was: {error}"
    return "" if is_same else f"Somebody else has changed its definition since {since} began."


def drift_of_production(recorded: Json, state: State) -> str:
    """What is to be said of the definition of recorded production that runs again; empty where it was not read."""
    was_sha256 = recorded.get("definition_sha256")
    if not recorded["running"] or was_sha256 is None:
        return ""
    try:
        return drift(recorded_manager(recorded, state), was_sha256, "the trial")
    except ScriptError as error:
        return f"Its definition cannot be compared with what it was: {error}"
