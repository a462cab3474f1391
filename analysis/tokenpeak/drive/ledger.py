"""Which trials are made, running and next, for all nodes of a sweep; every worker asks the same ledger.

Nodes of one hardware share a plan and a search. A trial that ended without telling anything of its config (interrupted,
its node lost) is as if never made. It is made again before anything else, so that a sweep that was interrupted with a
trial on every node goes on with the trials that it would have gone on with.
"""

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenpeak.plan.highest import as_foreseen, launches_to_find
from tokenpeak.plan.spec import SweepSpec
from tokenpeak.records import Plan, PlannedConfig, TrialRecord
from tokenpeak.search.history import Outcome, Proposal, Stop, Wait, outcome_of
from tokenpeak.search.strategy import make_strategy

_NUMBER = re.compile(r"^\.?(\d{4,})-")


class Ledger:
    """The sweep's trials; safe to use from several threads.

    Trials are numbered onward from `last_number`; `on_number` is told each number before it is used, because a killed
    controller's Ansible may live on, and must never be taken for the trial that follows.
    """

    def __init__(
        self,
        spec: SweepSpec,
        plans: Sequence[Plan],
        records: Sequence[TrialRecord],
        *,
        last_number: int,
        on_number: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._spec = spec
        self._plans = {plan.hardware: plan for plan in plans}
        self._strategies = {
            plan.hardware: make_strategy(spec.search, plan, metric=spec.objective.metric) for plan in plans
        }
        self._history: dict[str, list[Outcome]] = {plan.hardware: [] for plan in plans}
        self._pending: dict[str, set[tuple[str, int]]] = {plan.hardware: set() for plan in plans}
        self._lost: dict[str, dict[tuple[str, int], None]] = {plan.hardware: {} for plan in plans}
        """Trials that were interrupted and not made since, in that order."""
        self._number = last_number
        self._on_number = on_number
        self._changed = threading.Condition()
        self._closed = False
        self._changes = {plan.hardware: 0 for plan in plans}
        self._waits: dict[str, Wait] = {}
        """What stands until the next change: with many nodes waiting, the search is asked once."""
        self.records: list[TrialRecord] = []
        for record in sorted(records, key=lambda record: record.started_at.timestamp() + (record.duration_s or 0.0)):
            self._enter(record)

    def claim(self, hardware: str) -> tuple[Proposal, str] | Wait | Stop:
        """The next trial of this hardware and its id; Wait while that depends on a trial that still runs."""
        with self._changed:
            if self._closed:
                return Stop(reason="the sweep was told to end")
            if waiting := self._waits.get(hardware):
                return waiting
            answer = self._strategies[hardware].propose(self._history[hardware], self._pending[hardware])
            if isinstance(answer, Proposal):
                answer = self._lost_first(hardware, answer)
                self._pending[hardware].add(answer.key)
                self._number += 1
                self._on_number(self._number)
                return answer, f"{self._number:04d}-{answer.config_id[:8]}"
            if isinstance(answer, Stop) and self._pending[hardware]:
                answer = Wait(reason="another node's last trial may yet be lost and have to be made here")
            if isinstance(answer, Wait):
                self._waits[hardware] = answer
            return answer

    def changes(self, hardware: str) -> int:
        """How many claimed trials of this hardware have come to an end."""
        with self._changed:
            return self._changes[hardware]

    def wait(self, hardware: str, seen: int) -> None:
        """Return when `changes` is no longer `seen`, or nothing more may be claimed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._changes[hardware] != seen)

    def _lost_first(self, hardware: str, proposed: Proposal) -> Proposal:
        """The first of the lost trials that nobody makes again yet, unless it is what was proposed or there is none."""
        lost = [key for key in self._lost[hardware] if key not in self._pending[hardware]]
        if not lost or proposed.key in lost:
            return proposed
        config_id, replicate = lost[0]
        return Proposal(config_id=config_id, replicate=replicate, reason="once more: it was interrupted")

    def settle(self, proposal: Proposal, record: TrialRecord) -> None:
        """A claimed trial ended and its record is on disk."""
        with self._changed:
            self._pending[record.hardware].discard(proposal.key)
            self._enter(record)
            self._tell(record.hardware)

    def abandon(self, hardware: str, proposal: Proposal) -> None:
        """A claimed trial came to nothing; it may be claimed again."""
        with self._changed:
            self._pending[hardware].discard(proposal.key)
            self._tell(hardware)

    def _tell(self, hardware: str) -> None:
        self._changes[hardware] += 1
        self._waits.pop(hardware, None)
        self._changed.notify_all()

    def close(self) -> None:
        """Nothing more may be claimed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def is_finished(self, hardware: str) -> bool:
        """The search of this hardware has stopped by itself and nothing of it runs."""
        with self._changed:
            answer = self._strategies[hardware].propose(self._history[hardware], self._pending[hardware])
            return isinstance(answer, Stop) and not self._pending[hardware]

    def planned(self, hardware: str, config_id: str) -> PlannedConfig:
        """The plan's entry for a proposed config."""
        return next(entry for entry in self._plans[hardware].feasible if entry.config.config_id == config_id)

    def expected_trials(self) -> int:
        """About how many trials the sweep makes in all: what a search that tries everything would."""
        every = sum(
            len(as_foreseen(plan).feasible) * self._spec.search.replicates + launches_to_find(plan)
            for plan in self._plans.values()
        )
        return min(every, self._spec.search.trials * len(self._plans)) if self._spec.search.trials else every

    def _enter(self, record: TrialRecord) -> None:
        self.records.append(record)
        if record.hardware not in self._history:
            return
        key = record.config.config_id, record.replicate
        if record.status == "interrupted":
            self._lost[record.hardware][key] = None
        else:
            self._lost[record.hardware].pop(key, None)
            self._history[record.hardware].append(outcome_of(record, self._spec))


def last_number(archive: Path) -> int:
    """The highest trial number that any file of the archive bears, whole or not: numbers are given once."""
    found = [match for path in (archive / "trials").glob("*") if (match := _NUMBER.match(path.name))]
    return max((int(match[1]) for match in found), default=0)
