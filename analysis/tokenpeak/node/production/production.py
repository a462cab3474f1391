"""Production: what it is, stopping it, bringing exactly that back; and TokenPeak's own demonstration."""

from __future__ import annotations

import time
from typing import Callable
from urllib.parse import urlsplit

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.serving import ForeignServerError
from tokenpeak.node.guard import mutex
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, process, sockets, trust
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_output, shown_value
from tokenpeak.node.probe import facts
from tokenpeak.node.production.answering import Answering, OfProduction, Shortfall, of_no_stranger
from tokenpeak.node.production.manager import STOP_TIMEOUT_S, Manager, checksum
from tokenpeak.node.production.managers import make_manager, recorded_manager
from tokenpeak.node.production.managers.command import LOG
from tokenpeak.node.production.managers.command import PROCESS as PROCESS
from tokenpeak.node.protocol.answers import ProduceAnswer
from tokenpeak.node.protocol.parts import Production
from tokenpeak.node.protocol.requests import PRODUCTION_READY_S

_START_TRIES = 3
_START_PAUSE_S = 1.0
_WRONG_PAUSE_S = 0.2
STOPPED_WITHIN_S = 5.0
"""A stopped server's address may be answered by a forwarder that ends a little later."""
LOOK_S = 10.0
"""Longest that a health page or a command has to say that production is well, when nothing else waits for it."""
ANSWER_S = 30.0
"""Time of production that serves for an answer, however short the time that a request gave it to start."""
LEAST_LOAD_S = PRODUCTION_READY_S
"""Time of a start until it counts as ended where only its answer shows that: the node's own time, which a request may
lengthen. By a shorter one each try would stop production that loads, and start it anew."""
_LAST_WORDS_BYTES = 4096


def look(declared: Json, state: State) -> tuple[Production, str | None]:
    """Production as it is now, and what to do where it runs and does not say what it serves. Changes nothing."""
    manager = make_manager(declared, state)
    return _look(declared, manager, OfProduction(manager))


def _look(declared: Json, manager: Manager, check: OfProduction) -> tuple[Production, str | None]:
    running = manager.is_running()
    url = declared.get("url")
    model, unwell = None, None
    answering = Answering(declared)
    if running and answering.can_be_asked:
        try:
            if answering.names_model:
                model = answering.served_model(check)
                unwell = None if model else _unanswered(str(url))
            elif wrong := answering.wrong(None, check, LOOK_S):
                unwell = _unwell(answering, None, wrong)
        except ForeignServerError as stranger:
            unwell = f"Production runs, but {stranger.text}"
    state_now = Production(
        manager=declared.get("manager", "none"),
        unit=manager.unit,
        running=running,
        url=url,
        model=model,
        arguments=tuple(facts.served_with(*_address(url)) if running and url and not unwell else ()),
    )
    return state_now, unwell


def record(declared: Json, state: State) -> Json:
    """Production as it is now, with all that bringing it back needs.

    Raises ScriptError for production that runs but does not answer: it is not to be touched.
    """
    manager = make_manager(declared, state)
    check = OfProduction(manager)
    current, unwell = _look(declared, manager, check)
    if unwell:
        raise ScriptError("production_unwell", unwell)
    answering = Answering(declared)
    if current.running and current.url and answering.names_model:
        try:
            wrong = answering.wrong(current.model, check)
        except ForeignServerError as stranger:
            wrong = stranger.text
        if wrong:
            raise ScriptError("production_unwell", _unwell(answering, current.model, wrong))
    definition = manager.definition() if current.manager != "none" else {}
    return {
        **vars(current),
        "definition": definition,
        **(_recorded_definition(manager) if current.running else {"definition_sha256": None}),
        "declared": declared,
        "answered_by": check.seen,
    }


def _recorded_definition(manager: Manager) -> Json:
    """The part of a record on the definition of production that runs; no checksum where that has none to be read."""
    try:
        described = manager.describe()
    except (ScriptError, OSError):
        return {"definition_sha256": None}
    description = {"described": described} if manager.is_removable else {}
    return {"definition_sha256": checksum(described), **description}


def at_sweep_start(current: Json, expected: Json | None) -> Json:
    """Production as it is to be again: as it was when the sweep began, though it has ended since by itself.

    One that runs now is as it is found: whoever started it in between wants it.
    """
    if current["running"] or not expected or not expected["running"]:
        return current
    return {**current, "running": True, "model": expected["model"]}


def as_declared(declared: Json, state: State, model: str | None = None) -> Json:
    """Production as the inventory declares it, to be started: what is done where no record says what it was."""
    is_there = declared.get("manager", "none") != "none"
    return {
        "manager": declared.get("manager", "none"),
        "unit": make_manager(declared, state).unit,
        "running": is_there,
        "url": declared.get("url"),
        "model": model,
        "definition": make_manager(declared, state).definition() if is_there else {},
        "declared": declared,
    }


def _unanswered(url: str) -> str:
    return (
        f"Production runs but {url}/v1/models names no model, so that its return could not be checked: "
        "wait until it has started, mend it, correct tokenpeak_production.url, or stop it, then try again."
    )


def stop(recorded: Json, state: State) -> None:
    """Stop recorded production and see that it has ended."""
    manager = recorded_manager(recorded, state)
    manager.stop()
    name = f"{recorded['manager']} {recorded['unit'] or ''}".strip()
    if manager.is_running():
        raise ScriptError("production", f"Production ({name}) runs on after its stop: {manager.why_it_runs_on()}")
    # What its manager has let go of may serve on, and hold the memory.
    answering, check = Answering(manager.declared), of_no_stranger(manager)
    if not clock.wait_until(lambda: not answering.is_there(check), STOPPED_WITHIN_S, poll_s=0.1):
        raise ScriptError(
            "production",
            f"Production ({name}) is stopped by its manager's account, yet {answering.url} still answers "
            f"({_listeners(answering.url)}): {manager.why_it_runs_on()}",
        )


def bring_back(recorded: Json, state: State, ready_s: float, phases: Phases) -> Shortfall | None:
    """Make production as recorded; None when it is, otherwise what is wrong. Doing it twice changes nothing."""
    if not recorded["running"]:
        # Whoever started it since wants it: it is left running.
        return None
    try:
        manager = recorded_manager(recorded, state)
        manager.ready_s = max(ready_s, LEAST_LOAD_S)
        if described := recorded.get("described"):
            manager.make_again(described, recorded)
        if not manager.is_running():
            _start_at_last(manager, recorded["definition"])
        phases.mark("verifying")
        return await_answer(recorded, state, ready_s)
    except ScriptError as error:
        return Shortfall(error.text, is_known=error.code != NOT_SEEN)


def _start_at_last(manager: Manager, definition: Json) -> None:
    """Start production, again when its manager refuses once; the guard goes on from there."""
    for _ in range(_START_TRIES - 1):
        try:
            start(manager, definition)
        except ScriptError:
            time.sleep(_START_PAUSE_S)
            if manager.is_running():
                return
        else:
            return
    start(manager, definition)


def start(manager: Manager, definition: Json) -> None:
    """Start production that does not run: an error where what answers at its address may be production all the same.

    A stranger there does not keep it down: it may listen at another address of the same name.
    """
    # A stop that outlived whoever asked for it: production may answer for as long as that takes.
    clock.wait_until(lambda: not manager.is_ending(), STOP_TIMEOUT_S, poll_s=0.25)
    url = manager.declared.get("url")
    if url and Answering(manager.declared).is_there(of_no_stranger(manager)):
        raise ScriptError(
            "production",
            f"Production does not run, yet {url} answers ({_listeners(url)}): end that if nobody needs it, or correct "
            f"tokenpeak_production in the inventory, then try again. Or a stop has left it: {manager.why_it_runs_on()}",
        )
    manager.start(definition)


def strangers(recorded: Json, state: State) -> str:
    """Who else answers at one of several addresses of recorded production's url, in words; empty where nobody does."""
    manager, url = recorded_manager(recorded, state), recorded["url"]
    refusals = serving.strangers(url, OfProduction(manager, manager.answered_before)) if url else []
    way_out = "Clients may reach that one: write production's own address in tokenpeak_production.url."
    return " ".join([*refusals, way_out]) if refusals else ""


def await_answer(
    recorded: Json, state: State, ready_s: float, over: Callable[[], str | None] = lambda: None
) -> Shortfall | None:
    """Wait for a real answer, by the recorded model (any, where none was recorded); None when it came.

    It is asked at least once. Once `over` gives a reason, or another model gives real answers, nobody waits any more.
    """
    url, model = recorded["url"], recorded["model"]
    manager = recorded_manager(recorded, state)
    answering = Answering(recorded["declared"])
    if not answering.can_be_asked:
        if clock.wait_until(lambda: manager.is_running() and not manager.is_starting(), ready_s, poll_s=0.25):
            manager.note_ready()
            return None
        return Shortfall(f"Production does not run {ready_s:g} s after its start.")
    deadline = time.monotonic() + ready_s
    shortfall = "nothing yet"
    check = OfProduction(manager, manager.answered_before)
    while True:
        if reason := over():
            return Shortfall(reason)
        try:
            served = answering.served_model(check, timeout_s=2)
            is_ready = not answering.names_model or served is not None
            if is_ready:
                left_s = max(ANSWER_S, deadline - time.monotonic())
                wrong = answering.wrong(served, check, timeout_s=left_s)
        except ForeignServerError as stranger:
            is_ready, shortfall = False, stranger.text
        if is_ready:
            is_running = manager.is_running()
            if wrong is None and is_running:
                manager.note_ready()
                if served is None or served == (model or served):
                    return None
                return Shortfall(
                    f"Production serves {shown_value(served)} and not {shown_value(model)}.", other_model=served
                )
            shortfall = (
                wrong or f"{url or 'the command'} is answered by something else than {recorded['manager']}'s production"
            )
            is_ready = is_running or answering.names_model
            # Each answer is traced to its process through all sockets of the machine.
            time.sleep(_WRONG_PAUSE_S)
        if not is_ready and not clock.wait_until(manager.is_running, 1.0, poll_s=0.2):
            who = " ".join(str(recorded[name]) for name in ("manager", "unit") if recorded[name])
            ended = f"Production ended again after its start ({who})"
            return Shortfall(f"{ended}: {shortfall.rstrip('.')}." if shortfall != "nothing yet" else f"{ended}.")
        if time.monotonic() >= deadline:
            deadline_passed = f"Production {_not_given(answering, model)} within {ready_s:g} s of its start"
            return Shortfall(f"{deadline_passed}: {shortfall.rstrip('.')}.")
        time.sleep(0.05)


def _unwell(answering: Answering, model: str | None, wrong: str) -> str:
    return f"Production runs but {_not_given(answering, model)} ({wrong}): mend it or stop it first."


def _not_given(answering: Answering, model: str | None) -> str:
    """The answer that production did not give, as it is declared to."""
    if answering.names_model:
        return f"gave no {answering.kind}{f' by {shown_value(model)}' if model else ''}"
    return "is not well by its /health" if answering.kind == "health" else "is not well by its answer_command"


def _listeners(url: str | None) -> str:
    """Who listens where production does, in words."""
    return ", ".join(sockets.listeners(*_address(url or ""))) or "by a process of another user"


def _address(url: str) -> tuple[str, int]:
    """Host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


def produce(state: State, declaration: Json, ready_s: float = 120.0) -> ProduceAnswer:
    """Start declared production unless it runs as declared, or a trial has the node."""
    with mutex.exclusive(state):
        if state.has(records.NAME):
            return ProduceAnswer(changed=False, message="A trial has the node.")
        declared = declaration.get("production") or {"manager": "none"}
        manager = make_manager(declared, state)
        if manager.is_running():
            if manager.is_as_declared():
                return ProduceAnswer(changed=False, message="It runs.")
            manager.stop()
        start(manager, manager.definition())
        recorded = {
            "manager": declared.get("manager"),
            "unit": None,
            "url": declared.get("url"),
            "model": declared.get("model"),
            "declared": declared,
        }
        wrong = await_answer(recorded, state, ready_s)
        message = "It answers." if wrong is None else wrong.text + _last_words(state)
        return ProduceAnswer(changed=True, message=message, ready=wrong is None)


def _last_words(state: State) -> str:
    """The last line that production printed, with where the rest is; nothing where there is no log."""
    lines = trust.read_end(state.path(LOG), _LAST_WORDS_BYTES).decode(errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f" {state.path(LOG)} ends with: {shown_output(last)}" if last else ""


def end_produced(state: State, grace_s: float = 10.0) -> str:
    """End the process that `produce` started, unless a trial has the node; what came of it, in words."""
    with mutex.exclusive(state):
        if state.has(records.NAME):
            return "a trial has the node, so its production is not touched: tokenpeak restore gives it back."
        leader = state.read(PROCESS)
        if leader is None:
            return "no production of its own runs."
        left = process.stop_group(leader, grace_s)
        if left:
            return f"production's processes {left} do not end, not even by SIGKILL."
        state.remove(PROCESS)
        return "production that was started for it has ended."
