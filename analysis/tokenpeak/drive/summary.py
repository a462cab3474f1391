"""What a sweep found, in lines for a terminal: the ranking, the failures with their causes, the winner's command."""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tokenpeak.drive.ledger import Ledger
from tokenpeak.metrics import BY_NAME
from tokenpeak.plan.command import paste_command
from tokenpeak.plan.hindsight import hindsight_lines
from tokenpeak.plan.matrix import model_facts_of
from tokenpeak.plan.spec import ModelSpec, SweepSpec
from tokenpeak.records import Config, Plan, SweepRecord, TrialRecord
from tokenpeak.stats.drift import drift
from tokenpeak.stats.intervals import ratio_interval
from tokenpeak.stats.objective import objective_direction, objective_value
from tokenpeak.stats.ties import winner_group

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A config of one hardware among the others. `is_tied`: it may be as good as the best for all that is known."""

    config: Config
    value: float
    """Geometric mean of its launches' objectives."""
    launches: int
    is_tied: bool


def ranking(spec: SweepSpec, trials: Iterable[TrialRecord], hardware: str) -> list[Ranked]:
    """The configs of this hardware that have an objective, best first.

    Where no launch was repeated nothing can be told of noise, and whatever is within the spec's margin is tied.
    """
    values: dict[str, list[float]] = {}
    configs: dict[str, Config] = {}
    for trial in trials:
        value = objective_value(trial.runs, spec) if trial.status == "ok" else None
        if trial.hardware == hardware and value is not None and value > 0:
            values.setdefault(trial.config.config_id, []).append(value)
            configs[trial.config.config_id] = trial.config
    margin = spec.search.margin
    found = winner_group(values, higher_is_better=objective_direction(spec) != "lower", margin=margin)
    return [
        Ranked(
            config=configs[entry.config],
            value=entry.mean,
            launches=entry.launches,
            is_tied=entry.standing in ("tied", "equal")
            or (entry.standing == "unknown" and abs(entry.ratio - 1) <= margin),
        )
        for entry in found.standings
    ]


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


def summary_lines(record: SweepRecord, spec: SweepSpec, trials: Sequence[TrialRecord]) -> list[str]:
    """Ranking, failures, winner and what the trials say of the predictions, for each kind of hardware."""
    workload, level = spec.objective_run()
    metric = BY_NAME.get(spec.objective.metric)
    title = metric.title if metric else spec.objective.metric
    models = model_facts_of(spec, _model_of(record))
    lines: list[str] = []
    for plan in record.plans:
        node = next(facts for facts in record.nodes if facts.hardware == plan.hardware)
        ranked = ranking(spec, trials, plan.hardware)
        lines += ["", f"{plan.hardware}{' (simulated)' if node.simulated else ''}: {title} of {workload} at {level}"]
        for place, entry in enumerate(ranked[:_SHOWN], start=1):
            launches = f"  ({entry.launches} launches)" if entry.launches > 1 else ""
            tie = "  (tied with the best)" if entry.is_tied else ""
            lines.append(f"{place:4d}  {value_words(spec, entry.value):>16}  {entry.config.name}{launches}{tie}")
        if len(ranked) > _SHOWN:
            lines.append(f"      … and {len(ranked) - _SHOWN} more")
        lines += _failures([trial for trial in trials if trial.hardware == plan.hardware])
        lines += _winner(ranked)
        lines += [f"  {line}" for line in evidence_lines(spec, trials, plan.hardware, ranked)]
        lines += [f"  {line}" for line in hindsight_lines(spec, plan, node, trials, models)]
    return lines


def _model_of(record: SweepRecord) -> ModelSpec | None:
    """The model that the sweep's inventory named, as its configs have it."""
    for plan in record.plans:
        for planned in plan.feasible:
            return ModelSpec(name=planned.config.model.name, served_name=planned.config.model.served_name)
    return None


def _winner(ranked: Sequence[Ranked]) -> list[str]:
    """The best config, no surer than its launches make it, and its command."""
    if not ranked:
        return ["  No config gave a result."]
    best = ranked[0]
    tied = sum(entry.is_tied for entry in ranked)
    if best.config.endpoint is not None:
        return []
    if tied:
        words = f"Best of a tie of {tied + 1}: {best.config.name}"
    elif best.launches == 1 and len(ranked) > 1:
        words = f"Best by one launch of each: {best.config.name} (search.replicates tells how sure that is)"
    else:
        words = f"Winner: {best.config.name}"
    return ["", f"  {words}", f"    {paste_command(best.config)}"]


def evidence_lines(
    spec: SweepSpec, trials: Sequence[TrialRecord], hardware: str, ranked: Sequence[Ranked]
) -> list[str]:
    """What the best config gains over each baseline, with its interval, and whether the node changed meanwhile."""
    own = [trial for trial in trials if trial.hardware == hardware and trial.status == "ok"]
    launches: dict[str, list[tuple[float, float]]] = {}
    for trial in sorted(own, key=lambda trial: trial.started_at):
        value = objective_value(trial.runs, spec)
        if value is not None and value > 0:
            since_s = (trial.started_at - own[0].started_at).total_seconds()
            launches.setdefault(trial.config.config_id, []).append((since_s, value))
    if not ranked or not launches:
        return []
    names = {trial.config.name: trial.config.config_id for trial in own}
    best = ranked[0].config
    lines = []
    for baseline in spec.search.baseline:
        config_id = names.get(baseline)
        if config_id in launches and config_id != best.config_id:
            own_values, others = ([value for _, value in launches[each]] for each in (best.config_id, config_id))
            gain = ratio_interval(own_values, others)
            bounds = "" if gain.low is None or gain.high is None else f" ({gain.low - 1:+.1%} to {gain.high - 1:+.1%})"
            lines.append(f"{gain.estimate - 1:+.1%}{bounds} against {baseline}")
    seen = drift(max(launches.values(), key=len), margin=spec.search.margin)
    if seen.verdict == "steady" and seen.change is not None:
        lines.append(f"The node drifted by {seen.change - 1:+.1%} over the sweep, by launches of one config again.")
    elif seen.verdict == "erratic" and seen.spread is not None:
        lines.append(f"Launches of one config vary by {seen.spread:.1%}: compare within blocks, or on a quieter node.")
    return lines


def _failures(trials: Sequence[TrialRecord]) -> list[str]:
    lines = []
    for trial in trials:
        if trial.status == "failed" and trial.failure is not None:
            message = trial.failure.message.splitlines()[0] if trial.failure.message else ""
            lines.append(f"failed  {trial.config.name}: {trial.failure.cause}: {message}")
    return lines
