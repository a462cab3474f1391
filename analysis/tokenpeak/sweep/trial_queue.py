"""Trial queue: which trials are made, running and next, for all nodes of a sweep.

Nodes of one hardware share a plan and a search. A trial that ended without a result for its config (interrupted,
its node lost) is requeued: it is made again before anything else, so that a sweep that was interrupted with a trial on
every node goes on with the same trials as without the interruption.
"""

import re
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tokenpeak.records import Plan, PlannedConfig, TrialRecord
from tokenpeak.search.history import Finished, Outcome, Proposal, Wait, outcome_of
from tokenpeak.search.remaining import TrialCount, trial_count
from tokenpeak.search.searches import Searches
from tokenpeak.spec.sweep import SweepSpec

_NUMBER = re.compile(r"^\.?(\d{4,})-")


class TrialQueue:
    """The sweep's trials; safe to use from several threads.

    `judged` gives a trial the verdict on its config's answers as far as it is known: a later trial may be what they are
    compared with. Trials are numbered onward from `last_number`; `on_number` gets each number before it is used,
    because a killed controller's Ansible may live on, and must never be taken for the trial that follows. The
    nodes that are `there` may make trials; none given: those of the plans.
    """

    def __init__(
        self,
        spec: SweepSpec,
        plans: Sequence[Plan],
        records: Sequence[TrialRecord],
        *,
        last_number: int,
        on_number: Callable[[int], None] = lambda _: None,
        judged: Callable[[TrialRecord], TrialRecord] = lambda record: record,
        there: Collection[str] = (),
    ) -> None:
        self._spec = spec
        self._plans = {plan.hardware: plan for plan in plans}
        self._hardware = {node: plan.hardware for plan in plans for node in plan.nodes}
        self._searches = Searches(spec, plans)
        self._judged = judged
        self._ended: dict[str, list[TrialRecord]] = {plan.hardware: [] for plan in plans}
        self._history: dict[str, list[Outcome]] = {plan.hardware: [] for plan in plans}
        self._pending: dict[str, set[tuple[str, int]]] = {plan.hardware: set() for plan in plans}
        self._lost: dict[str, dict[tuple[str, int], None]] = {plan.hardware: {} for plan in plans}
        """Trials that were interrupted and not made since, the first one first."""
        self._number = last_number
        self._on_number = on_number
        self._changed = threading.Condition()
        self._closed = False
        self._changes = {plan.hardware: 0 for plan in plans}
        self._waits: dict[str, Wait] = {}
        """What stands until the next change: with many nodes waiting, the search is asked once."""
        self._records: list[TrialRecord] = []
        for record in sorted(records, key=lambda record: record.ended_at):
            self._enter(record)
        self._searches.settle(self._history)
        self._left = {plan.hardware: set(plan.nodes).intersection(there or plan.nodes) for plan in plans}
        """The nodes that may still make trials, by hardware."""
        for hardware, left in self._left.items():
            if not left:
                self._searches.leave(hardware, self._history)

    @property
    def records(self) -> tuple[TrialRecord, ...]:
        """All trials that ended, with the verdicts on their answers."""
        return tuple(map(self._judged, self._records))

    def claim(self, hardware: str, node: str = "") -> tuple[Proposal, str] | Wait | Finished:
        """The next trial of this hardware and its id; Wait while that depends on a trial that still runs.

        Which `node` asks matters to finals.
        """
        with self._changed:
            if self._closed:
                return Finished(reason="the sweep is to end")
            if waiting := self._waits.get(hardware):
                return waiting
            answer = self._searches.propose(hardware, self._history, self._pending, node)
            if isinstance(answer, Proposal):
                answer = self._lost_first(hardware, answer)
                self._pending[hardware].add(answer.key)
                self._number += 1
                self._on_number(self._number)
                return answer, f"{self._number:04d}-{answer.config_id[:8]}"
            if isinstance(answer, Finished) and self._pending[hardware]:
                answer = Wait(reason="another node's last trial may yet be lost and have to be made here")
            if isinstance(answer, Wait):
                self._waits[hardware] = answer
            return answer

    def hardware_of(self, node: str) -> str:
        """The label of the kind of hardware that the node is planned as."""
        return self._hardware[node]

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
        return Proposal(config_id=config_id, replicate=replicate, reason="again: it was interrupted")

    def settle(self, proposal: Proposal, record: TrialRecord) -> None:
        """A claimed trial ended and its record is on disk."""
        with self._changed:
            self._pending[record.hardware].discard(proposal.key)
            self._enter(record)
            self._notify(record.hardware)

    def abandon(self, hardware: str, proposal: Proposal) -> None:
        """A claimed trial came to nothing; it may be claimed again."""
        with self._changed:
            self._pending[hardware].discard(proposal.key)
            self._notify(hardware)

    def leave(self, node: str) -> None:
        """The node makes no trials any more, and none is awaited from it."""
        with self._changed:
            if (hardware := self._hardware.get(node)) is None:
                return
            self._notify(hardware)
            self._left[hardware].discard(node)
            if not self._left[hardware]:
                self._searches.leave(hardware, self._history)
                for other in self._plans:
                    self._notify(other)

    def _notify(self, hardware: str) -> None:
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
            answer = self._searches.propose(hardware, self._history, self._pending)
            return isinstance(answer, Finished) and not self._pending[hardware]

    def planned(self, hardware: str, config_id: str) -> PlannedConfig:
        """The plan's entry for a proposed config."""
        return next(entry for entry in self._plans[hardware].feasible if entry.config.config_id == config_id)

    def count(self) -> TrialCount:
        """How many trials of all hardware have ended, and how many are to come."""
        with self._changed:
            histories = [(plan, self._history[hardware]) for hardware, plan in self._plans.items()]
            # Strategies keep what they have worked out, and are no more than one thread's at a time.
            return trial_count(self._spec, histories, self._searches)

    def _enter(self, record: TrialRecord) -> None:
        self._records.append(record)
        if record.hardware not in self._history:
            return
        key = record.config.config_id, record.replicate
        if record.status == "interrupted":
            self._lost[record.hardware][key] = None
        else:
            self._lost[record.hardware].pop(key, None)
            self._ended[record.hardware].append(record)
            outcomes = [outcome_of(self._judged(ended), self._spec) for ended in self._ended[record.hardware]]
            self._history[record.hardware] = outcomes


def last_number(archive: Path) -> int:
    """The highest trial number that any file of the archive bears, whole or not: numbers are given once."""
    matches = [match for path in (archive / "trials").glob("*") if (match := _NUMBER.match(path.name))]
    return max((int(match[1]) for match in matches), default=0)
