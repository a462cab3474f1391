"""Starting and ending a production that belongs to TokenPeak itself: the servers of the sim and cpu inventories."""

from __future__ import annotations

from tokenpeak.node.guard import mutex, record
from tokenpeak.node.machine import process, trust
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_output
from tokenpeak.node.production import production
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.command import LOG
from tokenpeak.node.production.managers.own_process import RECORD as PROCESS
from tokenpeak.node.protocol.answers import ProduceAnswer

_SAID_BYTES = 4096


def produce(state: State, declaration: Json, ready_s: float = 120.0) -> ProduceAnswer:
    """Start declared production unless it runs as declared, or a trial has the node."""
    with mutex.exclusive(state):
        if state.has(record.NAME):
            return ProduceAnswer(changed=False, message="A trial has the node.")
        declared = declaration.get("production") or {"manager": "none"}
        manager = make_manager(declared, state)
        if manager.is_running():
            if manager.is_as_declared():
                return ProduceAnswer(changed=False, message="It runs.")
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
        message = "It answers." if wrong is None else wrong.text + _last_words(state)
        return ProduceAnswer(changed=True, message=message, ready=wrong is None)


def _last_words(state: State) -> str:
    """The last line that production printed, with where the rest is; nothing where there is no log."""
    lines = trust.read_end(state.path(LOG), _SAID_BYTES).decode(errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f" {state.path(LOG)} ends with: {shown_output(last)}" if last else ""


def end(state: State, grace_s: float = 10.0) -> str:
    """End the process that `produce` started, unless a trial has the node; what came of it, in words."""
    with mutex.exclusive(state):
        if state.has(record.NAME):
            return "a trial has the node, so its production is not touched: tokenpeak restore gives it back."
        leader = state.read(PROCESS)
        if leader is None:
            return "no production of its own runs."
        left = process.stop_group(leader, grace_s)
        if left:
            return f"production's processes {left} do not end, not even by SIGKILL."
        state.remove(PROCESS)
        return "production that was started for it has ended."
