"""Drift of production's definition: what was recorded is compared with what is there when the node is given back."""

from __future__ import annotations

from tokenpeak.node.definitions import definition_of
from tokenpeak.node.engine_command import checksum
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers import recorded_manager
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.state import Json, State


def recorded_definition(manager: Manager) -> Json:
    """What a record keeps of the definition of production that runs; no checksum where that has none to be read."""
    try:
        definition = definition_of(manager)
        described = definition.describe()
    except (ScriptError, OSError):
        return {"definition_sha256": None}
    kept = {"described": described} if definition.is_removable else {}
    return {"definition_sha256": checksum(described), **kept}


def make_again(manager: Manager, recorded: Json) -> None:
    """Make recorded production anew where its manager's object was removed while it was stopped."""
    if described := recorded.get("described"):
        definition_of(manager).make_again(described, recorded)


def definition_drift(manager: Manager, was_sha256: str, since: str) -> str:
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
        return definition_drift(recorded_manager(recorded, state), was_sha256, "the trial")
    except ScriptError as error:
        return f"Its definition cannot be compared with what it was: {error}"
