"""What a sweep found, in lines for a terminal: the ranking, the failures with their causes, the recommended config."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import exp

from tokenpeak.metrics import metric_of, title_of
from tokenpeak.plan.matrix import served_models
from tokenpeak.plan.serving import for_serving
from tokenpeak.predict.demand import objective_run
from tokenpeak.quality.answers import verdict_of
from tokenpeak.ranking.choice import Choice, Launch, choose, precision_of
from tokenpeak.ranking.drift import drift_words
from tokenpeak.ranking.intervals import Interval, ratio_interval
from tokenpeak.ranking.objective import (
    metric_value,
    objective_direction,
    objective_directions,
    objective_value,
    objective_values,
    trade_offs,
)
from tokenpeak.ranking.rank import NOTHING
from tokenpeak.ranking.ties import Verdicts, winner_group
from tokenpeak.records import QUALITY_FAILED, QUALITY_UNKNOWN, Config, Plan, SweepRecord, TrialRecord
from tokenpeak.records.quality import AnswersQuality, SweepQuality
from tokenpeak.results.hindsight import hindsight_lines
from tokenpeak.search.highest import climb_words, highest_lines, searched
from tokenpeak.search.history import history_of
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.command import paste_command

_SHOWN = 10


def precision_lines(
    spec: SweepSpec, plan: Plan, verdicts: Verdicts, recommended: Config, quality: SweepQuality | None
) -> list[str]:
    """Nothing where the recommended config has the baseline's precision, or no baseline gave a result."""
    configs = {planned.config.config_id: planned.config for planned in plan.feasible}
    ranked = [(configs[each.config], each.mean) for each in verdicts.standings if each.config in configs]
    by_name = {config.name: (config, mean) for config, mean in ranked}
    baseline = next((by_name[name] for name in spec.search.baseline if name in by_name), None)
    own = next((mean for config, mean in ranked if config.config_id == recommended.config_id), None)
    if baseline is None or own is None:
        return []
    theirs = precision_of(baseline[0])
    changes = precision_of(recommended).changes(theirs)
    if not changes:
        return []
    # Best first: the first of the baseline's precision is the best that changes none.
    best, mean = next((config, mean) for config, mean in ranked if precision_of(config) == theirs)
    against = baseline[0].name
    equal = (
        f"nothing tried beats {against}"
        if best.name == against
        else f"{best.name}, {_percent(spec, mean, baseline[1])}"
    )
    answers = verdict_of(quality, plan.hardware, recommended.config_id)
    return [
        f"At equal precision with {against}: {equal}",
        f"With {' and '.join(changes)}: {_percent(spec, own, baseline[1])}; {quality_words(answers)}",
    ]


def quality_words(answers: AnswersQuality | None) -> str:
    """What a config's answers are worth, in a few words."""
    if answers is None:
        return "its quality was not measured"
    words = {"pass": "quality passed", "fail": "quality failed", "unknown": "quality not proven"}[
        answers.verdict.status
    ]
    kl, ratio = answers.verdict.kl, answers.verdict.log_ratio
    if kl is None or ratio is None:
        return words
    return f"{words} ({kl.estimate:.4f} nats a token from the reference, perplexity × {exp(ratio.estimate):.4f})"


def _percent(spec: SweepSpec, value: float, baseline: float) -> str:
    """A gain in percent; of a metric that is to be low, how much lower."""
    change = value / baseline - 1
    return f"{change:+.1%}" + (" (lower is better)" if objective_direction(spec) == "lower" else "")


@dataclass(frozen=True, kw_only=True)
class RankedConfigs:
    """The configs of one kind of hardware: `verdicts` rank those of which `trials` gave the objective."""

    trials: tuple[TrialRecord, ...]
    verdicts: Verdicts

    @property
    def configs(self) -> dict[str, Config]:
        """Each config by its id."""
        return {trial.config.config_id: trial.config for trial in self.trials}


def ranking(spec: SweepSpec, trials: Iterable[TrialRecord], hardware: str) -> RankedConfigs:
    """The standings of this hardware's configs, by launches on the same requests."""
    values: dict[str, list[float]] = {}
    nodes: dict[str, list[str]] = {}
    measured = []
    for trial in sorted(trials, key=lambda trial: trial.trial_id):
        counts = trial.status == "ok" and not trial.holdout
        value = objective_value(trial, spec) if counts else None
        if trial.hardware == hardware and value is not None:
            values.setdefault(trial.config.config_id, []).append(value)
            nodes.setdefault(trial.config.config_id, []).append(trial.node)
            measured.append(trial)
    higher = objective_direction(spec) != "lower"
    verdicts = winner_group(values, nodes=nodes, higher_is_better=higher, margin=spec.search.margin)
    return RankedConfigs(trials=tuple(measured), verdicts=verdicts)


def choice(spec: SweepSpec, ranked: RankedConfigs, plan: Plan, engine_version: str | None) -> Choice | None:
    """The recommended config on the plan's hardware."""
    runs = [(trial.config, objective_run(trial.runs, spec)) for trial in ranked.trials]
    launches = [Launch(config=config, slo_met=run.slo_met if run is not None else None) for config, run in runs]
    planned = [each.config for each in plan.feasible]
    return choose(spec, ranked.verdicts, launches, planned, engine_version)


def value_words(spec: SweepSpec, metric: str, value: float) -> str:
    """A metric's value with its unit."""
    declared = metric_of(metric)
    unit = declared[0].unit.replace("currency", spec.energy.currency) if declared else ""
    return f"{value:,.4g} {unit}" if declared and value < 100 else f"{value:,.0f} {unit}"


def trial_words(spec: SweepSpec, record: TrialRecord, trials: Iterable[TrialRecord]) -> tuple[str, str]:
    """An ended trial's objective, and the best of its hardware so far, in words; empty where nothing is ranked yet."""
    value = objective_value(record, spec)
    words = (
        f"no valid objective run{why_invalid(record, spec)}"
        if value is None
        else value_words(spec, spec.objective.metric, value)
    )
    ranked = ranking(spec, trials, record.hardware)
    if not ranked.verdicts.standings:
        return words, ""
    best = ranked.verdicts.standings[0]
    return words, f"{value_words(spec, spec.objective.metric, best.mean)} ({ranked.configs[best.config].name})"


def plan_lines(plans: Sequence[Plan]) -> list[str]:
    """The matrix in a few lines: what is tried on which hardware, what is not and why, and about how long it takes."""
    lines: list[str] = []
    for plan in plans:
        lines.append(f"{plan.hardware} on {', '.join(plan.nodes)}")
        lines += [f"  {reason}" for reason in plan.apart]
        lines.append(f"  {len(plan.feasible)} of {plan.theoretical} configs are feasible")
        lines += [f"  {line}" for line in highest_lines(plan)]
        rules = Counter(dropped.rule for dropped in plan.dropped)
        first = {dropped.rule: dropped.reason for dropped in reversed(plan.dropped)}
        lines += [f"  {count} dropped by {rule}: {first[rule]}" for rule, count in sorted(rules.items())]
        if plan.estimated_duration_s is not None:
            lines.append(f"  about {timedelta(seconds=round(plan.estimated_duration_s))}")
    return lines


def summary_lines(
    record: SweepRecord, spec: SweepSpec, trials: Sequence[TrialRecord], quality: SweepQuality | None = None
) -> list[str]:
    """Ranking, failures, winner and what the trials say of the predictions, for each kind of hardware."""
    workload, level = spec.objective_run()
    # A highest rate is of a workload, not of one of its levels.
    place = workload if spec.objective.is_rate else f"{workload} at {level}"
    title = title_of(spec.objective.metric)
    models = served_models(record.plans)
    lines: list[str] = []
    for plan in record.plans:
        node = next(facts for facts in record.nodes if facts.node in plan.nodes)
        ranked = ranking(spec, trials, plan.hardware)
        lines += ["", f"{plan.hardware}{' (simulated)' if node.simulated else ''}: {title} of {place}"]
        configs, standings = ranked.configs, ranked.verdicts.standings
        known = ranked.verdicts.noise is not None
        close = "tied with the best" if known else f"within {spec.search.margin:.0%} of the best"
        for entry in standings[:_SHOWN]:
            launches = f"  ({entry.launches} launches)" if entry.launches > 1 else ""
            tie = f"  ({close})" if entry.rank > 1 and entry.may_be_recommended else ""
            name = configs[entry.config].name
            lines.append(
                f"{entry.rank:4d}  {value_words(spec, spec.objective.metric, entry.mean):>16}  {name}{launches}{tie}"
            )
        if len(standings) > _SHOWN:
            lines.append(f"      … and {len(standings) - _SHOWN} more")
        lines += [f"not ranked  {configs[config_id].name}: {NOTHING}" for config_id in ranked.verdicts.without_rank]
        lines += trade_off_lines(spec, ranked)
        history = history_of(trials, spec, plan.hardware)
        lines += _without_value([trial for trial in trials if trial.hardware == plan.hardware], spec)
        if climbed := climb_words(plan, history):
            lines.append(f"  {climbed}")
        recommended = choice(spec, ranked, plan, node.engine_version)
        lines += choice_lines(recommended, ranked)
        if recommended is not None:
            lines += [f"  {line}" for line in evidence_lines(spec, trials, plan.hardware, recommended.config)]
            by_precision = precision_lines(spec, plan, ranked.verdicts, recommended.config, quality)
            lines += [f"  {line}" for line in by_precision]
        lines += [f"  {line}" for line in hindsight_lines(spec, searched(plan, history), node, trials, models)]
    return lines


def trade_off_lines(spec: SweepSpec, ranked: RankedConfigs) -> list[str]:
    """The configs that no other beats in all objectives, where the spec names several."""
    names = (spec.objective.metric, *spec.objective.also)
    if len(names) == 1:
        return []
    launches: dict[str, list[tuple[float | None, ...]]] = {entry.config: [] for entry in ranked.verdicts.standings}
    for trial in ranked.trials:
        if trial.config.config_id in launches:
            launches[trial.config.config_id].append(objective_values(trial, spec))
    front = trade_offs(launches, objective_directions(spec))
    titles = ", ".join(title_of(name) for name in names)
    lines = [f"  Not beaten in all of {titles}, by means: {len(front)} of {len(launches)} configs"]
    for config_id, means in list(front.items())[:_SHOWN]:
        values = ", ".join(value_words(spec, name, mean) for name, mean in zip(names, means, strict=True))
        lines.append(f"      {ranked.configs[config_id].name}: {values}")
    return [*lines, f"      … and {len(front) - _SHOWN} more"] if len(front) > _SHOWN else lines


def choice_lines(recommended: Choice | None, ranked: RankedConfigs) -> list[str]:
    """The recommended config, with the confidence that its launches give, and its command."""
    if recommended is None:
        return ["  No config gave a result."]
    if recommended.config.endpoint is not None:
        return []
    if recommended.words:
        words = f"Recommended: {recommended.config.name}: {recommended.words}"
    elif ranked.verdicts.noise is None and len(ranked.verdicts.standings) > 1:
        words = (
            f"Best, by too few launches for a confidence: {recommended.config.name} (search.replicates launches again)"
        )
    else:
        words = f"Winner: {recommended.config.name}"
    argv = next(trial.argv for trial in ranked.trials if trial.config.config_id == recommended.config.config_id)
    served = for_serving(recommended.config, argv)
    if served.problem:
        return ["", f"  {words}", f"    {served.problem}"]
    return ["", f"  {words}", f"    {paste_command(served.config)}", *([f"    {served.note}"] if served.note else [])]


def evidence_lines(spec: SweepSpec, trials: Sequence[TrialRecord], hardware: str, recommended: Config) -> list[str]:
    """The recommended config's gain over each baseline, its holdout run, and whether the node changed."""
    ended = [trial for trial in trials if trial.hardware == hardware and trial.status == "ok"]
    own = [trial for trial in ended if not trial.holdout]
    launches: dict[str, list[tuple[float, float]]] = {}
    for trial in sorted(own, key=lambda trial: trial.started_at):
        value = objective_value(trial, spec)
        if value is not None:
            since_s = (trial.started_at - own[0].started_at).total_seconds()
            launches.setdefault(trial.config.config_id, []).append((since_s, value))
    names = {trial.config.name: trial.config.config_id for trial in own}
    verdicts = ranking(spec, trials, hardware).verdicts
    lines = []
    for baseline in spec.search.baseline:
        config_id = names.get(baseline)
        if config_id in launches and config_id != recommended.config_id:
            gain = _gain(launches, verdicts, recommended.config_id, config_id)
            bounds = "" if gain.low is None or gain.high is None else f" ({gain.low - 1:+.1%} to {gain.high - 1:+.1%})"
            lines.append(f"{gain.estimate - 1:+.1%}{bounds} against {baseline}")
    for trial in ended:
        value = objective_value(trial, spec)
        if trial.holdout and value is not None:
            whose = "" if trial.config.config_id == recommended.config_id else f" {trial.config.name}"
            words = value_words(spec, spec.objective.metric, value)
            lines.append(f"Holdout run on fresh requests{whose}: {words} (1 launch, which selected nothing)")
    timed = [
        (trial.node, trial.config.name, (trial.started_at - own[0].started_at).total_seconds(), value)
        for trial in own
        if (value := objective_value(trial, spec)) and not trial.holdout
    ]
    lines += drift_words(timed, baseline=spec.search.baseline, margin=spec.search.margin)
    return lines


def _gain(
    launches: Mapping[str, Sequence[tuple[float, float]]], verdicts: Verdicts, config_id: str, other: str
) -> Interval:
    """How many times the other's value a config's is; on several nodes without what these differ by."""
    own, others = ([value for _, value in launches[each]] for each in (config_id, other))
    means = {standing.config: standing.mean for standing in verdicts.standings}
    half = (
        verdicts.half_width(config_id, other) if verdicts.node_effects and {config_id, other} <= means.keys() else None
    )
    if half is None:
        return ratio_interval(own, others)
    ratio, n = means[config_id] / means[other], min(len(own), len(others))
    return Interval(estimate=ratio, low=ratio * math.exp(-half), high=ratio * math.exp(half), n=n)


def _without_value(trials: Sequence[TrialRecord], spec: SweepSpec) -> list[str]:
    """The trials that gave no value of the objective, and why."""
    lines = []
    for trial in trials:
        if trial.status == "failed" and trial.failure is not None:
            message = trial.failure.message.splitlines()[0] if trial.failure.message else ""
            lines.append(f"failed  {trial.config.name}: {trial.failure.cause}: {message}")
        elif trial.status == "ok" and objective_value(trial, spec) is None:
            lines.append(f"not ranked  {trial.config.name}{unproven_value(trial, spec)}{why_invalid(trial, spec)}")
    return lines


def unproven_value(trial: TrialRecord, spec: SweepSpec) -> str:
    """The objective of a launch whose answers did not pass, in brackets; empty for any other, and for a rate."""
    if not any(
        reason.code in (QUALITY_FAILED, QUALITY_UNKNOWN) for run in trial.runs for reason in run.verdict.reasons
    ):
        return ""
    own = (run for run in trial.runs if (run.workload.name, run.level_label) == spec.objective_run())
    gpus = trial.config.gpus
    value = next((metric_value(run, spec.objective.metric, spec.energy, gpus=gpus) for run in own), None)
    return "" if value is None else f" ({value_words(spec, spec.objective.metric, value)}, not proven)"


def why_invalid(trial: TrialRecord, spec: SweepSpec) -> str:
    """The first reason of the objective's run's verdict, after a colon; empty when no such run was made."""
    reasons = (
        reason.text
        for run in trial.runs
        if (run.workload.name, run.level_label) == spec.objective_run()
        for reason in run.verdict.reasons
    )
    return f": {text}" if (text := next(reasons, "")) else ""
