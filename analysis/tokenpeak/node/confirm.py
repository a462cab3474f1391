"""Confirmation of an apply: the changed definition is production's own from the moment that the record says so."""

from __future__ import annotations

from tokenpeak.node import guard, lock, mutex, production
from tokenpeak.node import record as records
from tokenpeak.node.change import changed_production, started_again
from tokenpeak.node.definitions import definition_of
from tokenpeak.node.engine_command import checksum
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers import recorded_manager
from tokenpeak.node.phases import Phases
from tokenpeak.node.protocol.apply_answers import ConfirmAnswer
from tokenpeak.node.protocol.apply_requests import ConfirmRequest
from tokenpeak.node.put_back import conclude
from tokenpeak.node.state import State


def confirm(state: State, request: ConfirmRequest) -> ConfirmAnswer:
    """Make the changed definition production's own, once it is seen to be there and to answer.

    Raises ScriptError where it is not confirmed; the controller then gives the node back, or the guard does.
    """
    phases = Phases(state)
    with mutex.exclusive(state):
        record = records.read(state)
        if record is None or (record["trial_id"], record["holder"]) != (request.apply_id, request.holder):
            raise ScriptError("not_waiting", f"No apply {request.apply_id} waits here: the node has put it back.")
        if not record["apply"]["confirmed"]:
            if due := guard.is_due(state, record):
                raise ScriptError("not_confirmed", f"Not confirmed, for {due}: the node puts it back.")
            with phases.span("confirming"):
                definition = definition_of(recorded_manager(record["production"], state))
                if checksum(definition.describe()) != record["apply"]["new_sha256"]:
                    raise ScriptError("not_confirmed", "Somebody has changed production's definition during the bake.")
                recorded = changed_production(record)
                if again := started_again(recorded_manager(recorded, state), record):
                    raise ScriptError("not_confirmed", again)
                if wrong := production.await_answer(recorded, state, production.ANSWER_S):
                    raise ScriptError("not_confirmed", wrong.text)
                # Whoever reads the record from now on makes production by its new definition.
                apply = {**record["apply"], "confirmed": True}
                record = {**record, "production": recorded, "apply": apply}
                state.write(records.NAME, record)
        problem = conclude(state, record)
        if problem is None:
            lock.release(state)
            phases.mark("confirmed")
        message = "The new definition is production's own." + (f" {problem}, so the guard goes on." if problem else "")
        return ConfirmAnswer(confirmed=True, message=message, sha256=record["apply"]["new_sha256"], phases=phases.spans)
