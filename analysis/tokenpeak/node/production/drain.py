"""Drain: the node leaves its load balancer and running requests end before production is stopped; then it returns.

`tokenpeak_drain` of the inventory declares it. What was taken out is in the record before it is taken out, so that
whoever gives the node back puts it back, after production has answered; what an administrator took out stays out.
"""

from __future__ import annotations

import time
from typing import Callable

from tokenpeak.node.engine import serving
from tokenpeak.node.guard import lease
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.record import Phases
from tokenpeak.node.machine import clock, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.answering import OfProduction
from tokenpeak.node.production.balancers import (
    Balancer,
    CommandBalancer,
    HaproxyBalancer,
    KubernetesBalancer,
    NginxBalancer,
)
from tokenpeak.node.production.manager import Manager
from tokenpeak.node.production.managers import make_manager

BUILT_IN: dict[str, type[Balancer]] = {
    "haproxy": HaproxyBalancer,
    "nginx": NginxBalancer,
    "kubernetes": KubernetesBalancer,
}


def make_balancer(declared: Json, manager: Manager) -> Balancer:
    """The balancer that the inventory's tokenpeak_drain names; ScriptError where it names none, or two."""
    named = [name for name in (*BUILT_IN, "before") if name in declared]
    if len(named) != 1:
        raise ScriptError(
            "declaration",
            f"tokenpeak_drain names {' and '.join(named) or 'no balancer'}: give one of {', '.join(BUILT_IN)}, or the "
            "commands before and after.",
        )
    if named == ["before"]:
        return _own(CommandBalancer(declared, manager))
    own = declared[named[0]]
    if not isinstance(own, dict):
        raise ScriptError("declaration", f"tokenpeak_drain.{named[0]} is {shown_value(own)}: give its keys.")
    return _own(BUILT_IN[named[0]](own, manager))


def _own(balancer: Balancer) -> Balancer:
    """The balancer; raises ScriptError where it would have root run or load what others can write."""
    trust.require_only_root("tokenpeak_drain", balancer.files())
    return balancer


MOST_S = 120.0
"""How long running requests may take to end where the inventory does not say."""
MOST_MAX_S = 7200.0
BACK_S = 60.0
"""How long a balancer's health checks may take to find production up."""
QUIET_S = 2.0
"""How long nothing must run: a request that the engine has read is counted a moment later."""
RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_POLL_S = 0.25

IsOver = Callable[[], bool]


class Drain:
    """How one node leaves its load balancer, as the inventory declares it."""

    def __init__(self, declared: Json, production: Json, state: State) -> None:
        self._declared = declared
        self._production = production
        self._manager: Manager = make_manager(production, state)
        self._balancer: Balancer = make_balancer(declared, self._manager)
        self._wait = _wait(declared)

    def problem(self) -> str | None:
        """The problem that keeps the node from leaving its balancer; None when nothing would. Changes nothing."""
        try:
            self._balancer.joined()
            if "seconds" not in self._wait:
                self._running()
        except ScriptError as error:
            return error.text
        return None

    def joined(self) -> list[str]:
        """Members that would be taken out of the balancer now."""
        return self._balancer.joined()

    def members(self) -> list[str]:
        """All of this node that the inventory declares to be in the balancer."""
        return self._balancer.members()

    def leave(self, members: list[str], is_over: IsOver = lambda: False) -> None:
        """Take these out, once enough others serve, and wait until running requests have ended.

        Raises ScriptError when that takes too long, or once `is_over` answers True; they are then still out.
        """
        deadline = time.monotonic() + float(self._wait.get("most_s", MOST_S))
        self._leave_to_others(members, deadline, is_over)
        if "seconds" in self._wait:
            clock.wait_until(is_over, float(self._wait["seconds"]), poll_s=_POLL_S)
        else:
            self._await_quiet(members, deadline, is_over)
        if is_over():
            raise ScriptError("drain", "The controller fell silent while production's requests ended.")

    def leave_at_once(self, members: list[str]) -> None:
        """Take these out and give running requests what time they have: what serves is not to serve on."""
        try:
            self._balancer.leave(members)
            deadline = time.monotonic() + float(self._wait.get("most_s", MOST_S))
            if "seconds" in self._wait:
                time.sleep(float(self._wait["seconds"]))
            else:
                self._await_quiet(members, deadline, lambda: not self._manager.is_running())
        except Exception:  # whatever a balancer answers, production that was there before matters more
            return

    def rejoin(self, members: list[str]) -> None:
        """Put these back; raises ScriptError when the balancer does not send requests again."""
        self._balancer.rejoin(members)
        if not clock.wait_until(lambda: self._balancer.is_back(members), BACK_S, poll_s=_POLL_S):
            raise ScriptError(
                "drain", f"Production answers, and its load balancer does not take {', '.join(members)} back."
            )

    def _leave_to_others(self, members: list[str], deadline: float, is_over: IsOver) -> None:
        """Leave while at least `least_up` others serve: two nodes may leave at the same time, and each looks again."""
        least = int(self._declared.get("least_up", 1))
        while not is_over():
            others = self._balancer.others()
            if others is None or others >= least:
                self._balancer.leave(members)
                after = self._balancer.others()
                if after is None or after >= least:
                    return
                self._balancer.rejoin(members)
                # Of two that left at once, not both are to try again at once.
                time.sleep(1.0 + hash(tuple(members)) % 1000 / 1000)
            if time.monotonic() >= deadline:
                raise ScriptError(
                    "drain",
                    f"{', '.join(members)} is not taken out of its load balancer: {others} others are up there, and "
                    f"tokenpeak_drain.least_up is {least}. Wait until others serve, or set least_up: 0.",
                )
            time.sleep(_POLL_S)

    def _await_quiet(self, members: list[str], deadline: float, is_over: IsOver) -> None:
        """Wait until nothing has run for QUIET_S, by the engine's metrics and the balancer's own count."""
        quiet_since: float | None = None
        while not is_over():
            now = time.monotonic()
            running = self._running()
            if running or not self._balancer.is_idle(members):
                quiet_since = None
            elif quiet_since is None:
                quiet_since = now
            elif now - quiet_since >= QUIET_S:
                return
            if now >= deadline:
                raise ScriptError(
                    "drain",
                    f"Production's requests did not end ({running:g} by its metrics) within "
                    f"{float(self._wait.get('most_s', MOST_S)):g} s after it left its load balancer: raise "
                    "tokenpeak_drain.wait.most_s, or see who else sends it requests.",
                )
            time.sleep(_POLL_S)

    def _running(self) -> float:
        """How many requests production has, by its own metrics."""
        url = self._production.get("url")
        named = self._wait.get("metric")
        names = RUNNING if named is None else (str(named),)
        check = OfProduction(self._manager, self._manager.answered_before)
        page = serving.read_metrics(str(url), check, self._production.get("ca_file")) if url else None
        totals = [serving.metric_total(page or {}, name) for name in names]
        if totals[0] is None:
            raise ScriptError(
                "drain",
                f"{url or 'Production'} has no metric {names[0]}, so that the end of its requests is not seen: name "
                "another in tokenpeak_drain.wait.metric, or give wait: {seconds: 20}.",
            )
        return sum(value or 0.0 for value in totals)


def longest_s(declared: Json | None) -> float:
    """The longest that leaving the balancer may take, as the inventory declares it; the return has BACK_S."""
    if not declared:
        return 0.0
    wait = _wait(declared)
    return float(wait.get("most_s", MOST_S)) + float(wait.get("seconds", 0.0)) + BACK_S


def drain_of(declared: Json | None, production: Json, state: State) -> Drain | None:
    """The declared drain; None where nothing is declared, and none of a node without production."""
    if not declared or production.get("manager", "none") == "none":
        return None
    return Drain(declared, production, state)


def take_out(state: State, record: Json, phases: Phases) -> Json:
    """Leave the balancer that the record declares; the record, which knows what was taken out before it is.

    The trial's deadline moves by as long as that takes. Raises ScriptError as `Drain.leave` does.
    """
    declared_drain = drain_of(record.get("drain"), record["production"]["declared"], state)
    if declared_drain is None:
        return record
    began_s = clock.boot_s()
    if "drained" not in record:
        record = {**record, "drained": declared_drain.joined()}
        state.write(records.NAME, record)
    if record["drained"]:
        with phases.span("draining"):
            declared_drain.leave(record["drained"], lambda: lease.has_lapsed(state))
    return {**record, "deadline_boot_s": record["deadline_boot_s"] + clock.boot_s() - began_s}


def rejoin_recorded(record: Json, state: State) -> str | None:
    """Put back what the record says was taken out; None when it is in, otherwise what is wrong."""
    members = record.get("drained")
    if not members:
        return None
    try:
        recorded_drain = drain_of(record.get("drain"), record["production"]["declared"], state)
        if recorded_drain is not None:
            recorded_drain.rejoin([str(member) for member in members])
    except ScriptError as error:
        return error.text
    return None


def rejoin_declared(state: State) -> str | None:
    """Put everything back that the inventory declares, where no record says what was taken out."""
    declaration = state.declaration()
    try:
        declared_drain = drain_of(declaration.get("drain"), declaration.get("production") or {}, state)
        if declared_drain is not None:
            declared_drain.rejoin(declared_drain.members())
    except ScriptError as error:
        return error.text
    return None


def _wait(declared: Json) -> Json:
    wait = declared.get("wait") or {}
    if not isinstance(wait, dict) or set(wait) - {"metric", "most_s", "seconds"} or {"metric", "seconds"} <= set(wait):
        raise ScriptError(
            "declaration",
            f"tokenpeak_drain.wait is {shown_value(wait)}: give {{metric: NAME, most_s: 120}} or {{seconds: 20}}.",
        )
    for key in ("most_s", "seconds"):
        value = wait.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MOST_MAX_S:
            raise ScriptError(
                "declaration", f"tokenpeak_drain.wait.{key} is {shown_value(value)}: give 1 to {MOST_MAX_S:g}."
            )
    return wait
