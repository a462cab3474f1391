"""What a sweep found, in lines for a terminal: the ranking, the failures with their causes, the winner's command."""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean

from tokenpeak.drive.ledger import Ledger
from tokenpeak.metrics import BY_NAME
from tokenpeak.plan.command import paste_command
from tokenpeak.plan.spec import SweepSpec
from tokenpeak.records import Config, Plan, TrialRecord
from tokenpeak.stats.objective import objective_direction, objective_value

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A config of one hardware with the mean of its objective over its launches."""

    config: Config
    value: float
    launches: int


def ranking(spec: SweepSpec, trials: Iterable[TrialRecord], hardware: str) -> list[Ranked]:
    """The configs of this hardware that have an objective, best first."""
    values: dict[str, list[float]] = {}
    configs: dict[str, Config] = {}
    for trial in trials:
        value = objective_value(trial.runs, spec) if trial.status == "ok" else None
        if trial.hardware == hardware and value is not None:
            values.setdefault(trial.config.config_id, []).append(value)
            configs[trial.config.config_id] = trial.config
    ranked = [
        Ranked(config=configs[config_id], value=fmean(found), launches=len(found))
        for config_id, found in values.items()
    ]
    sign = 1 if objective_direction(spec) == "lower" else -1
    return sorted(ranked, key=lambda entry: (sign * entry.value, entry.config.name))


def value_words(spec: SweepSpec, value: float) -> str:
    """The objective's value with its unit."""
    name = spec.objective.metric
    metric = BY_NAME.get(name) or BY_NAME.get(name.rpartition("_")[0])
    return f"{value:,.4g} {metric.unit}" if metric and value < 100 else f"{value:,.0f} {metric.unit if metric else ''}"


class Describer:
    """Words for a trial that ended, and for the best so far."""

    def __init__(self, spec: SweepSpec, ledger: Ledger) -> None:
        self._spec = spec
        self._ledger = ledger
        self._lock = threading.Lock()

    def describe(self, record: TrialRecord) -> tuple[str, str]:
        """The trial's objective, and the best of its hardware so far, in words."""
        with self._lock:
            value = objective_value(record.runs, self._spec)
            ranked = ranking(self._spec, tuple(self._ledger.records), record.hardware)
        words = "no valid objective run" if value is None else value_words(self._spec, value)
        best = f"{value_words(self._spec, ranked[0].value)} ({ranked[0].config.name})" if ranked else ""
        return words, best


def plan_lines(plans: Sequence[Plan]) -> list[str]:
    """The matrix in a few lines: what is tried on which hardware, what is not and why, and about how long it takes."""
    lines: list[str] = []
    for plan in plans:
        lines.append(f"{plan.hardware} on {', '.join(plan.nodes)}")
        lines.append(f"  {len(plan.feasible)} of {plan.theoretical} configs are feasible")
        rules = Counter(dropped.rule for dropped in plan.dropped)
        first = {dropped.rule: dropped.reason for dropped in reversed(plan.dropped)}
        lines += [f"  {count} dropped by {rule}: {first[rule]}" for rule, count in sorted(rules.items())]
        if plan.estimated_duration_s is not None:
            lines.append(f"  about {timedelta(seconds=round(plan.estimated_duration_s))}")
    return lines


def summary_lines(spec: SweepSpec, trials: Sequence[TrialRecord], hardware: Sequence[str]) -> list[str]:
    """Ranking, failures and winner of each hardware."""
    workload, level = spec.objective_run()
    metric = BY_NAME.get(spec.objective.metric)
    title = metric.title if metric else spec.objective.metric
    simulated = " (simulated)" if any(trial.simulated for trial in trials) else ""
    lines: list[str] = []
    for kind in hardware:
        ranked = ranking(spec, trials, kind)
        lines += ["", f"{kind}{simulated}: {title} of {workload} at {level}"]
        for place, entry in enumerate(ranked[:_SHOWN], start=1):
            launches = f"  ({entry.launches} launches)" if entry.launches > 1 else ""
            lines.append(f"{place:4d}  {value_words(spec, entry.value):>16}  {entry.config.name}{launches}")
        if len(ranked) > _SHOWN:
            lines.append(f"      … and {len(ranked) - _SHOWN} more")
        lines += _failures([trial for trial in trials if trial.hardware == kind])
        if ranked:
            lines += ["", f"  Winner: {ranked[0].config.name}", f"    {paste_command(ranked[0].config)}"]
        else:
            lines.append("  No config gave a result.")
    return lines


def _failures(trials: Sequence[TrialRecord]) -> list[str]:
    lines = []
    for trial in trials:
        if trial.status == "failed" and trial.failure is not None:
            message = trial.failure.message.splitlines()[0] if trial.failure.message else ""
            lines.append(f"failed  {trial.config.name}: {trial.failure.cause}: {message}")
    return lines
