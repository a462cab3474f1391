"""History of a search: outcomes in; a proposal, a wait or the end out; and the protocol of a strategy."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import Literal, Protocol

from tokenpeak.predict.demand import objective_run
from tokenpeak.ranking.objective import objective_value
from tokenpeak.records import QUALITY_FAILED, TRANSIENT_CAUSES, Plan, RunRecord, TrialRecord
from tokenpeak.spec.sweep import SearchSpec, SweepSpec

Status = Literal["ok", "failed", "interrupted"]

BADLY_MEASURED = "badly_measured"
"""Cause of a launch that went well but whose runs for the objective describe the load client or the network."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one trial taught. `value` is the objective's; None when the trial failed or its run may not be ranked."""

    config_id: str
    replicate: int
    status: Status
    value: float | None = None
    node: str = ""
    slo_met: bool | None = None
    """Every SLO limit held in the objective run; None without an SLO, or when that is not known."""
    failure_cause: str | None = None
    duration_s: float = 0.0
    holdout: bool = False
    """A holdout run: its load was drawn from fresh seeds."""
    failed_answers: bool = False
    """Its config's answers are worse than the reference's."""

    @property
    def about_the_config(self) -> bool:
        """It says whether the config works: it failed for no reason outside it, and was measured well."""
        return self.failure_cause not in TRANSIENT_CAUSES | {BADLY_MEASURED}

    @property
    def feasible(self) -> bool:
        """It ran, it can be ranked, and it did not break the SLO; nothing achieved, such as no goodput, has no rank."""
        return self.status == "ok" and self.value is not None and self.value > 0 and self.slo_met is not False


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on the sum of the trials' durations over one plan's nodes; None: no limit."""

    node_s: float | None = None
    """Seconds of nodes' time, all nodes together."""
    limit: str = ""
    """The limit in the user's words."""

    @classmethod
    def of(cls, search: SearchSpec, plan: Plan) -> "Budget":
        """The tighter of `time` (on each node) and `gpu_hours` (over all)."""
        limits = []
        if search.time is not None:
            limits.append((search.time * max(1, len(plan.nodes)), f"time: {search.time:g} s"))
        if search.gpu_hours is not None:
            limits.append((search.gpu_hours * 3600 / plan.gpus, f"gpu_hours: {search.gpu_hours:g}"))
        if not limits:
            return cls()
        node_s, limit = min(limits)
        return cls(node_s=node_s, limit=limit)

    def spent(self, done: Sequence[Outcome], pending: Collection[tuple[str, int]]) -> str | None:
        """Why no further trial fits, taking each running one to last as long as the mean; None when one fits."""
        if self.node_s is None or not done:
            return None
        mean_s = fmean(outcome.duration_s for outcome in done)
        if mean_s * (len(done) + len(pending) + 1) <= self.node_s:
            return None
        return f"another trial of about {mean_s:.0f} s would exceed {self.limit}"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The trial to carry out next, and why it was chosen, in words for the user."""

    config_id: str
    replicate: int
    reason: str
    holdout: bool = False
    """A holdout run: the load is drawn from fresh seeds."""
    early_stop_threshold: float | None = None
    """An objective that is worse than this makes the trial's other runs superfluous; None: all runs are made."""

    @property
    def key(self) -> tuple[str, int]:
        """What identifies the trial within its hardware."""
        return self.config_id, self.replicate


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Nothing more is worth trying; the reason is for the user. Final: the same history always stops."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The next trial depends on one that is still running: ask again when it has ended."""

    reason: str
    gives_back: bool = False
    """The wait is for other nodes, which may need this one's slot: production serves meanwhile."""


class Strategy(Protocol):
    """A search over one plan's configs: a pure function from history and pending trials to the next trial.

    It holds no state of its own: the same history and pending trials give the same answer, so a resumed sweep goes on
    as if it had not been interrupted, and a recorded sweep can be replayed.
    """

    def propose(
        self, history: Sequence[Outcome], pending: Collection[tuple[str, int]], node: str = ""
    ) -> Proposal | Wait | Finished:
        """The next trial, from the trials that ended, in the order in which they ended, and those that run now.

        `pending` holds their (config_id, replicate). Interrupted trials are not in the history. `Wait` is given only
        while something is pending, whichever `node` asks.
        """
        ...

    def trials_made(self, history: Sequence[Outcome]) -> int:
        """How many of these launches count as the trials that the search may make."""
        ...

    def choose(self, history: Sequence[Outcome]) -> str | None:
        """The recommended config after these trials; None when none ran within the SLO."""
        ...


def outcome_of(trial: TrialRecord, spec: SweepSpec) -> Outcome:
    """A recorded trial as the search sees it: the objective read from the objective run, if that may be ranked."""
    run = objective_run(trial.runs, spec)
    return Outcome(
        config_id=trial.config.config_id,
        replicate=trial.replicate,
        status=trial.status,
        value=objective_value(trial, spec) if trial.status == "ok" else None,
        node=trial.node,
        slo_met=judged_slo(spec, run.slo_met if run else None),
        failure_cause=_cause(trial, spec),
        duration_s=trial.duration_s or 0.0,
        holdout=trial.holdout,
        failed_answers=any(reason.code == QUALITY_FAILED for each in trial.runs for reason in each.verdict.reasons),
    )


def _cause(trial: TrialRecord, spec: SweepSpec) -> str | None:
    """Why the trial has no value: its failure, or that no run for the objective describes the engine."""
    if trial.failure is not None:
        return trial.failure.cause
    own = objective_runs(trial.runs, spec)
    return BADLY_MEASURED if own and not any(run.verdict.well_measured for run in own) else None


def objective_runs(runs: Sequence[RunRecord], spec: SweepSpec) -> list[RunRecord]:
    """Those of a trial's runs that the objective is read from: of a sustainable rate, every level of its workload."""
    workload, level = spec.objective_run()
    rate = spec.objective.is_rate
    return [run for run in runs if run.workload.name == workload and (rate or run.level_label == level)]


def judged_slo(spec: SweepSpec, slo_met: bool | None) -> bool | None:
    """Whether the objective run met the SLO; None for a sustainable rate, which meets it by definition."""
    return None if spec.objective.is_rate else slo_met


def history_of(trials: Iterable[TrialRecord], spec: SweepSpec, hardware: str) -> list[Outcome]:
    """What the trials of one hardware taught, in the order in which they ended; interrupted ones taught nothing.

    Values are as measured: an estimate of what nodes differ by changes with each launch, so what the search has decided
    would be decided anew.
    """
    ended = [trial for trial in trials if trial.hardware == hardware and trial.status != "interrupted"]
    return [outcome_of(trial, spec) for trial in sorted(ended, key=lambda trial: trial.ended_at)]


def next_replicate(config_id: str, history: Sequence[Outcome], pending: Collection[tuple[str, int]]) -> int:
    """The number of the config's next launch: 0 for the first."""
    used = {outcome.replicate for outcome in history if outcome.config_id == config_id}
    used |= {replicate for pending_id, replicate in pending if pending_id == config_id}
    return next(number for number in range(len(used) + 1) if number not in used)


def later_launch(
    config_id: str, history: Sequence[Outcome], pending: Collection[tuple[str, int]], *, first: int, reason: str
) -> Proposal:
    """The config's next launch of those that are numbered from `first` on."""
    used = {outcome.replicate for outcome in history if outcome.config_id == config_id}
    used |= {replicate for pending_id, replicate in pending if pending_id == config_id}
    replicate = next(number for number in itertools.count(first) if number not in used)
    return Proposal(config_id=config_id, replicate=replicate, reason=reason)


def compares(search: SearchSpec, plan: Plan) -> bool:
    """Whether the search compares anything: configs of several classes, in several trials."""
    return len({planned.config_class for planned in plan.feasible}) > 1 and search.trials != 1


def by_own_fault(history: Sequence[Outcome], alike: Mapping[str, str] = MappingProxyType({})) -> set[str]:
    """The configs of which a launch failed for a reason that lies in them: another launch would fail too.

    Where the answers of one failed, so would those of all that answer alike (`alike_by_answers`), launched or not.
    """
    failed = {
        outcome.config_id
        for outcome in history
        if outcome.failed_answers or (outcome.status == "failed" and outcome.failure_cause not in TRANSIENT_CAUSES)
    }
    answers = {alike[outcome.config_id] for outcome in history if outcome.failed_answers and outcome.config_id in alike}
    return failed | {config_id for config_id, key in alike.items() if key in answers}


def alike_by_answers(plan: Plan) -> dict[str, str]:
    """Config → what identifies the settings that can change its answers, as far as that is recorded."""
    return {planned.config.config_id: planned.answers for planned in plan.feasible if planned.answers}
