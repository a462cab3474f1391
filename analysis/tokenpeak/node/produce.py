"""Starting a production that belongs to TokenPeak itself: the demonstration servers of the sim and cpu inventories."""

from __future__ import annotations

from tokenpeak.node import production, record
from tokenpeak.node.managers import make_manager
from tokenpeak.node.state import Json, State


def produce(state: State, declaration: Json, ready_s: float = 120.0) -> Json:
    """Start declared production unless it runs as declared, or a trial has the node."""
    with state.exclusive():
        if state.has(record.NAME):
            return {"changed": False, "message": "A trial has the node."}
        declared = declaration.get("production") or {"manager": "none"}
        manager = make_manager(declared, state)
        if manager.is_running():
            if manager.is_as_declared():
                return {"changed": False, "message": "It runs."}
            manager.stop()
        production.start(manager, manager.definition())
        recorded = {
            "manager": declared.get("manager"),
            "unit": None,
            "url": declared.get("url"),
            "model": declared.get("model"),
            "declared": declared,
        }
        wrong = production.await_answer(recorded, state, ready_s)
        return {"changed": True, "message": wrong or "It answers.", "ready": wrong is None}
