"""Starting a production that belongs to TokenPeak itself: the demonstration servers of the sim and cpu inventories."""

from __future__ import annotations

from tokenpeak.node import clock, production
from tokenpeak.node.managers import make_manager
from tokenpeak.node.restore import RECORD
from tokenpeak.node.state import Json, State

FILE = "produced.json"


def produce(state: State, declaration: Json, ready_s: float = 120.0) -> Json:
    """Start declared production once per boot of the machine, as a service would be.

    Later, whoever stopped it meant it.
    """
    with state.exclusive():
        produced = state.read(FILE)
        if (produced and produced["boot_id"] == clock.boot_id()) or state.read(RECORD):
            return {"changed": False, "message": "It was started before."}
        declared = declaration.get("production") or {"manager": "none"}
        manager = make_manager(declared, state)
        if not manager.is_running():
            manager.start(manager.definition())
        recorded = {
            "manager": declared.get("manager"),
            "unit": None,
            "url": declared.get("url"),
            "model": declared.get("model"),
            "declared": declared,
        }
        wrong = production.await_answer(recorded, state, ready_s)
        if wrong is None:
            state.write(FILE, {"boot_id": clock.boot_id()})
        return {"changed": True, "message": wrong or "It answers.", "ready": wrong is None}
