"""Apply of a config to one node's production: observe, change, bake, confirm; or put back, by the node in any case.

The node puts its definition back unless a confirmation comes in time, so that whatever becomes of this process costs
no more than that. While the change is not confirmed, this side holds the node's lease.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenpeak.errors import NodeError
from tokenpeak.node.protocol import requests
from tokenpeak.node.protocol.answers import (
    AnyAnswer,
    ChangeAnswer,
    ConfirmAnswer,
    DescribeAnswer,
    ObserveAnswer,
    RestoreAnswer,
)
from tokenpeak.node.protocol.parts import RestoreOutcome
from tokenpeak.node.protocol.requests import ChangeRequest, ConfirmRequest, ObserveRequest
from tokenpeak.plan.serving import Edit
from tokenpeak.records import (
    ApplyRecord,
    Bake,
    Config,
    Despite,
    ProductionDefinition,
    Provenance,
)
from tokenpeak.results.bake import FEWEST_REQUESTS, Observed, joined, judge
from tokenpeak.sweep.ansible.heartbeat_channel import LeaseChannel
from tokenpeak.sweep.ansible.result import NodeResult, recorded
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.installation import own_script
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.inventory.variables import MOST_ROUNDS, BakeSettings
from tokenpeak.sweep.trial.request import write_private

_MORE_TRAFFIC = " Apply at a time with traffic, bake for longer, or allow a test load (tokenpeak_bake)."
_HEARD_WITHIN_S = 30.0
_AGAIN_S = 3.0
_CONFIRM_SLACK_S = 300.0
"""For what is between the steps: Ansible's own start, a slow login."""
_OUT_OF_REACH_S = 600.0
"""For a node that cannot be asked how it stands, besides what it may take to put back."""


@dataclass(frozen=True, kw_only=True)
class ApplySite:
    """What the applies of one command share. `folder` is private; `extravars` are the rights that an apply has."""

    inventory: Inventory
    folder: Path
    extravars: Mapping[str, Any]
    interrupt: Interrupt
    say: Callable[[str], None]
    provenance: Provenance
    who: str
    holder: Callable[[str], str]
    leases: Mapping[str, Sequence[str]]
    """Node → the command of this machine that renews its lease."""


@dataclass(frozen=True, kw_only=True)
class ApplyPlan:
    """What is to become of one node; without `edit`, its last apply is undone."""

    apply_id: str
    sweep_id: str
    node: str
    was_sha256: str
    edit: Edit | None
    config: Config | None
    engine_version: str | None
    simulated: bool
    despite: tuple[Despite, ...]
    bake: BakeSettings | None
    """None: production is verified and not observed."""
    lease_s: float
    production_ready_s: float


class NodeApply:
    """One apply on one node; `run` returns its record in every case."""

    def __init__(self, plan: ApplyPlan, site: ApplySite) -> None:
        self._plan = plan
        self._site = site
        self._holder = site.holder(plan.apply_id)
        self._started_at = datetime.now(UTC)
        self._started_s = time.monotonic()
        self._message = ""
        self._status = "not_begun"
        self._failed_in: str | None = None
        self._changed = ChangeAnswer()
        self._judged: Bake | None = None
        self._restoration: RestoreOutcome | None = None

    def run(self) -> ApplyRecord:
        """Carry it out."""
        before = self._observe_before() if self._plan.bake else None
        if before is None and self._plan.bake:
            return self._record()
        with LeaseChannel(self._site.leases[self._plan.node], self._holder, self._plan.lease_s, self._warn) as channel:
            if problem := self._unheard(channel):
                self._message = f"Its lease cannot be renewed, so nothing is changed there: {problem}"
                return self._record()
            if self._change() and self._bake(before):
                self._confirm()
        return self._record()

    def _unheard(self, channel: LeaseChannel) -> str | None:
        until_s = time.monotonic() + _HEARD_WITHIN_S
        while (problem := channel.problem(2.0)) is not None:
            if time.monotonic() >= until_s or self._site.interrupt.gentle():
                return problem
        return None

    def _change(self) -> bool:
        """Whether production now answers by its new definition."""
        plan = self._plan
        self._say("leaving its balancer, stopping, changing, starting, verifying")
        bake_s = (plan.bake.settle_s + MOST_ROUNDS * plan.bake.bake_s) if plan.bake else 0.0
        request = ChangeRequest(
            apply_id=plan.apply_id,
            holder=self._holder,
            was_sha256=plan.was_sha256,
            lease_s=plan.lease_s,
            confirm_within_s=plan.production_ready_s + bake_s + _CONFIRM_SLACK_S,
            edit=plan.edit.as_request() if plan.edit is not None else None,
            engine_version=plan.engine_version,
            production_ready_s=plan.production_ready_s,
            script=own_script(),
        )
        result = self._play("change.yml", request)
        answer = result.answer(ChangeAnswer)
        if answer is None:
            refusal = result.answers.get("change")
            if refusal is not None and refusal.error is not None:
                # It says so with nothing touched.
                self._fail("not_begun", refusal.error.text, "change")
                return False
            self._status = "unknown"
            self._give_back(_words(result), "change")
            return False
        self._changed = answer
        if answer.changed:
            return True
        self._restoration = answer.restoration
        reason = answer.message or "It failed."
        if answer.restoration is not None and not answer.restoration.restored:
            # What the node lacked then, it may have again: its network, say, which also ends at its balancer.
            self._give_back(reason, answer.failed_in)
        else:
            self._fail("put_back" if answer.restoration else "unknown", reason, answer.failed_in)
        return False

    def _observe_before(self) -> Observed | None:
        """Production before the change, until requests enough to judge it by were seen; None, with the reason noted."""
        before: Observed | None = None
        for _ in range(MOST_ROUNDS):
            window = self._observe(settle_s=0.0, said="before the change")
            if window is None:
                return None
            before = window if before is None else joined(before, window)
            if before.requests >= FEWEST_REQUESTS:
                return before
        seen = f"{before.requests if before else 0:.0f} requests in {MOST_ROUNDS} observations"
        self._message = (
            f"Too little traffic: {seen}; {FEWEST_REQUESTS} are needed to judge the change, so nothing was changed."
            f"{_MORE_TRAFFIC}"
        )
        self._failed_in = "observing"
        return None

    def _bake(self, before: Observed | None) -> bool:
        """Whether production is no worse than it was; it is given back otherwise."""
        settings = self._plan.bake
        if settings is None or before is None:
            return True
        after: Observed | None = None
        for place in range(MOST_ROUNDS):
            settle_s = settings.settle_s if place == 0 else 0.0
            window = self._observe(settle_s=settle_s, said="by its new definition")
            if window is None:
                self._give_back(self._message, "baking")
                return False
            after = window if after is None else joined(after, window)
            bake = judge(before, after, margin=settings.margin, test_load=settings.test_load)
            self._judged = bake
            self._say(f"bake: {bake.status.replace('_', ' ')}. {bake.reason}")
            if bake.status != "not_judged":
                break
        if bake.status == "passed":
            return True
        remedy = _MORE_TRAFFIC if bake.status == "not_judged" else ""
        self._give_back(f"{bake.reason}{remedy}", "baking")
        return False

    def _confirm(self) -> None:
        self._say("confirming")
        result = self._play("confirm.yml", ConfirmRequest(apply_id=self._plan.apply_id, holder=self._holder))
        answer = result.answer(ConfirmAnswer)
        if answer is not None and answer.confirmed:
            self._status, self._message = "confirmed", answer.message or ""
            return
        refusal = result.answers.get("confirm")
        reason = refusal.error.text if refusal is not None and refusal.error is not None else _words(result)
        self._give_back(reason, "confirming")

    def _observe(self, *, settle_s: float, said: str) -> Observed | None:
        """Production's metrics for as long as a bake takes; None, with the reason noted, where they were not read."""
        settings = self._plan.bake
        assert settings is not None, "only a bake is observed"
        load = f", with a test load of {settings.test_load} at a time" if settings.test_load else ""
        self._say(f"observing production for {settings.bake_s:g} s {said}{load}")
        request = ObserveRequest(
            seconds=settings.bake_s,
            period_s=settings.period_s,
            settle_s=settle_s,
            concurrency=settings.test_load,
        )
        result = self._play("observe.yml", request)
        answer = result.answer(ObserveAnswer)
        if answer is None or answer.unusable:
            self._message = _words(result) if answer is None else f"Its answer makes no sense: {answer.unusable}"
            self._failed_in = self._failed_in or "observing"
            return None
        window = Observed(
            readings=answer.readings,
            ended=answer.ended,
            load_sent=answer.load_sent or 0,
            load_failed=answer.load_failed or 0,
        )
        if window.ended and self._changed.changed is None:
            self._message, self._failed_in = window.ended, "observing"
            return None
        return window

    def _give_back(self, reason: str, failed_in: str | None) -> None:
        """Have the definition put back, and see how the node stands: a confirmation may have been its last word."""
        self._say(f"putting back: {reason}")
        plan = self._plan
        back_by_s = time.monotonic() + plan.lease_s + 2 * plan.production_ready_s
        while True:
            extravars = {"tokenpeak_restore_holder": self._holder}
            result = self._run("restore.yml", extravars, self._site.interrupt.let_go)
            answer = result.answer(RestoreAnswer)
            outcome = answer.restoration if answer is not None else None
            late_s = time.monotonic() - back_by_s
            is_over = self._site.interrupt.abrupt()
            if answer is not None and outcome is not None and (outcome.restored or late_s >= 0 or is_over):
                break
            if late_s >= _OUT_OF_REACH_S or is_over:
                self._fail("unknown", f"{reason} Then the node was out of reach ({_words(result)}).", failed_in)
                return
            time.sleep(_AGAIN_S)
        last = answer.last_restoration
        if outcome.trial_id != plan.apply_id and last is not None and last.trial_id == plan.apply_id:
            # The guard was first.
            outcome = last
        self._restoration = outcome
        if outcome.definition == "confirmed" or (outcome.definition is None and self._is_confirmed()):
            self._status = "confirmed"
            self._message = f"It had been confirmed when this came: {reason}"
            return
        self._fail("put_back" if outcome.restored else "unknown", f"{reason} {outcome.message}", failed_in)

    def _is_confirmed(self) -> bool:
        """Whether the node has this apply as its last confirmed one."""
        answer = self._run("describe.yml", {}, self._site.interrupt.let_go).answer(DescribeAnswer)
        return answer is not None and answer.applied is not None and answer.applied.apply_id == self._plan.apply_id

    def _play(self, playbook: str, request: requests.NodeRequest) -> NodeResult:
        path = self._site.folder / f"{self._plan.apply_id}.{playbook.removesuffix('.yml')}.json"
        write_private(path, json.dumps(requests.as_json(request)))
        return self._run(playbook, {"tokenpeak_apply_request": str(path)}, self._site.interrupt.gentle)

    def _run(self, playbook: str, extravars: Mapping[str, Any], cancelled: Callable[[], bool]) -> NodeResult:
        if cancelled():
            return NodeResult(failure="the apply was interrupted")
        try:
            done = run_playbook(
                playbook,
                self._site.inventory,
                nodes=[self._plan.node],
                extravars={**self._site.extravars, **extravars},
                cancelled=cancelled,
            )
        except NodeError as error:
            return NodeResult(failure=str(error))
        result = done.nodes[self._plan.node]
        return replace(result, failure=result.failure or "the apply was interrupted") if done.cancelled else result

    def _fail(self, status: str, message: str, failed_in: str | None) -> None:
        self._status, self._message, self._failed_in = status, message, failed_in

    def _say(self, words: str) -> None:
        self._site.say(f"{self._plan.node}: {words}")

    def _warn(self, words: str) -> None:
        self._say(f"WARNING the connection that renews its lease ended: {words}. It is opened anew.")

    def _record(self) -> ApplyRecord:
        plan, change, outcome = self._plan, self._changed, self._restoration
        down_s = [s for s in (change.downtime_s, outcome.downtime_s if outcome and change.changed else None) if s]
        return ApplyRecord(
            apply_id=plan.apply_id,
            kind="rollback" if plan.edit is None else "apply",
            sweep_id=plan.sweep_id,
            node=plan.node,
            config=plan.config,
            simulated=plan.simulated,
            despite=plan.despite,
            who=self._site.who,
            started_at=self._started_at,
            duration_s=round(time.monotonic() - self._started_s, 3),
            status=self._status,
            failed_in=self._failed_in if self._status != "confirmed" else None,
            message=self._message,
            before=_definition(change.was_sha256 or plan.was_sha256, change.was_text),
            after=_definition(change.new_sha256, change.new_text),
            engine_version=change.engine_version,
            phases=change.phases,
            downtime_s=round(sum(down_s), 3) if down_s else None,
            bake=self._judged,
            restoration=recorded(outcome),
            provenance=self._site.provenance,
        )


def _definition(sha256: str | None, text: str | None) -> ProductionDefinition | None:
    return None if text is None else ProductionDefinition(sha256=sha256 or "", text=text)


def _words(result: NodeResult) -> str:
    """Why a playbook gave no answer."""
    return result.unreachable or result.failure or "the node gave no answer"


def answer_of(result: NodeResult, kind: type[AnyAnswer]) -> AnyAnswer:
    """The node's answer; raises NodeError with its words where there is none."""
    answer = result.answer(kind)
    if answer is None:
        raise NodeError(_words(result))
    return answer
