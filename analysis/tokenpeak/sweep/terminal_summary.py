"""What a sweep found, in lines for a terminal: the ranking, the failures with their causes, the recommended config."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from math import exp
from statistics import fmean

from tokenpeak.metrics import metric_of, title_of
from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.plan.matrix import served_models
from tokenpeak.plan.other_server import launched_line
from tokenpeak.plan.serving import for_serving
from tokenpeak.quality.answers import verdict_of
from tokenpeak.ranking.candidates import Candidates, decided_by_records
from tokenpeak.ranking.decision_words import current_words, faster_words, headline, plain, reasons
from tokenpeak.ranking.drift import drift_words
from tokenpeak.ranking.objective import (
    metric_value,
    objective_direction,
    objective_directions,
    objective_value,
    objective_values,
    trade_offs,
)
from tokenpeak.ranking.rank import NOTHING, effects_of, ranks
from tokenpeak.records import QUALITY_FAILED, QUALITY_UNKNOWN, Plan, SweepRecord, TrialRecord
from tokenpeak.records.quality import AnswersQuality, SweepQuality
from tokenpeak.results.hindsight import hindsight_lines
from tokenpeak.search.highest import climb_words, highest_lines, searched
from tokenpeak.search.history import history_of
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.command import paste_command

_SHOWN = 10


def quality_words(answers: AnswersQuality) -> str:
    """What a config's answers are worth, in a few words."""
    words = {"pass": "Quality passed", "fail": "Quality failed", "unknown": "Quality not proven"}[
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
    values: dict[str, list[float]] = {}
    nodes: dict[str, list[str]] = {}
    for trial in trials:
        counts = trial.hardware == record.hardware and trial.status == "ok" and not trial.holdout
        if counts and (own := objective_value(trial, spec)) is not None:
            values.setdefault(trial.config.name, []).append(own)
            nodes.setdefault(trial.config.name, []).append(trial.node)
    higher = objective_direction(spec) != "lower"
    ranked = ranks(values, effects=effects_of(values, nodes), higher_is_better=higher)
    if not ranked or ranked[0].rank is None:
        return words, ""
    return words, f"{value_words(spec, spec.objective.metric, ranked[0].mean)} ({ranked[0].config})"


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
        own = [trial for trial in trials if trial.hardware == plan.hardware]
        found = decided_by_records(spec, own, plan=plan, quality=quality, engine_version=node.engine_version)
        names = {trial.config.config_id: trial.config.name for trial in own}
        lines += ["", f"{plan.hardware}{' (simulated)' if node.simulated else ''}: {title} of {place}"]
        lines += ranking_lines(spec, found, names)
        lines += trade_off_lines(spec, own, found)
        history = history_of(trials, spec, plan.hardware)
        lines += _without_value(own, spec)
        if climbed := climb_words(plan, history):
            lines.append(f"  {climbed}")
        lines += decision_lines(spec, plan, own, found, quality)
        lines += [f"  {line}" for line in evidence_lines(spec, own)]
        lines += [f"  {line}" for line in hindsight_lines(spec, searched(plan, history), node, trials, models)]
    return lines


def ranking_lines(spec: SweepSpec, found: Candidates, names: Mapping[str, str]) -> list[str]:
    """The configs with a result, best first, and what keeps one from being run."""
    decision, holds = found.decision, {each.config: each for each in found.all}
    known = decision.measured.noise is not None
    close = "tied" if known else f"within {spec.search.margin:.0%} of the best"
    mates = Counter(found.of.values())
    lines = []
    for entry in decision.measured.standings[:_SHOWN]:
        marks = [f"{entry.launches} launches"] if entry.launches > 1 else []
        marks += [f"{mates[entry.config]} configs that cannot differ"] if mates[entry.config] > 1 else []
        marks += [close] if entry.config in decision.group and len(decision.group) > 1 else []
        marks += ["breaks the SLO"] if holds[entry.config].hold == "broken" else []
        marks += ["answers not compared"] if holds[entry.config].answers == "not_compared" else []
        launches = holds[entry.config].launches
        # Of a rate the lowest launch: a mean of rates never ran.
        shown = min(launches) if spec.objective.is_rate else entry.mean
        if spec.objective.is_rate and len(launches) > 1:
            marks.insert(1, f"the lowest of {', '.join(f'{each:.4g}' for each in launches)}")
        value = value_words(spec, spec.objective.metric, shown)
        words = f"  ({', '.join(marks)})" if marks else ""
        lines.append(f"{entry.rank:4d}  {value:>16}  {names[entry.config]}{words}")
    if (more := len(decision.measured.standings) - _SHOWN) > 0:
        lines.append(f"      … and {more} more")
    return lines + [f"not ranked  {names[config_id]}: {NOTHING}" for config_id in decision.measured.without_rank]


def trade_off_lines(spec: SweepSpec, trials: Sequence[TrialRecord], found: Candidates) -> list[str]:
    """The configs that no other beats in all objectives, where the spec names several."""
    titles = [title_of(name) for name in (spec.objective.metric, *spec.objective.also)]
    if len(titles) == 1:
        return []
    names: dict[str, str] = {}
    launches: dict[str, list[tuple[float | None, ...]]] = {each: [] for each in found.decision.measured.ranked}
    for trial in trials:
        config_id = found.of.get(trial.config.config_id)
        if config_id in launches and trial.status == "ok" and not trial.holdout:
            names.setdefault(config_id, trial.config.name)
            launches[config_id].append(objective_values(trial, spec))
    front = trade_offs(launches, objective_directions(spec))
    lines = [f"  Not beaten in all of {', '.join(titles)}, by means: {len(front)} of {len(launches)} configs"]
    for config_id, means in list(front.items())[:_SHOWN]:
        metrics = (spec.objective.metric, *spec.objective.also)
        values = ", ".join(value_words(spec, name, mean) for name, mean in zip(metrics, means, strict=True))
        lines.append(f"      {names[config_id]}: {values}")
    return [*lines, f"      … and {len(front) - _SHOWN} more"] if len(front) > _SHOWN else lines


def decision_lines(
    spec: SweepSpec, plan: Plan, trials: Sequence[TrialRecord], found: Candidates, quality: SweepQuality | None
) -> list[str]:
    """The decision with its reasons, what may not be run, and the command of a config to run or to keep."""
    decision, ended = found.decision, [trial for trial in trials if trial.status == "ok"]
    if not decision.measured.standings:
        return ["  No config gave a result."]
    if any(trial.config.endpoint is not None for trial in ended):
        return []
    higher = objective_direction(spec) != "lower"
    names = {trial.config.config_id: trial.config.name for trial in ended}
    launch_s = fmean([trial.duration_s or 0.0 for trial in ended])
    now = current_words(names.get(decision.current or ""))

    words = reasons(decision, now, higher_is_better=higher, launch_s=launch_s)
    words += faster_words(decision.faster, higher_is_better=higher)
    lines = ["", f"  {plain(headline(decision, now), names)}", *(f"    {plain(each, names)}" for each in words)]
    answers = verdict_of(quality, plan.hardware, decision.config or "")
    lines += [f"    {quality_words(answers)}"] if answers is not None else []
    if not decision.is_startable:
        return lines
    trial = next(trial for trial in ended if trial.config.config_id == decision.config)
    served = for_serving(trial.config, trial.argv)
    if served.problem:
        return [*lines, f"    {served.problem}"]
    is_own = is_vllm(trial.config.engine_version)
    pasted = paste_command(served.config) if is_own else launched_line(trial.config, trial.argv)
    return [*lines, f"    {pasted}", *([f"    {served.note}"] if served.note else [])]


def evidence_lines(spec: SweepSpec, trials: Sequence[TrialRecord]) -> list[str]:
    """Holdout runs, and whether the node changed."""
    ended = [(trial, objective_value(trial, spec)) for trial in trials if trial.status == "ok"]
    lines = [
        f"Holdout run on fresh requests, {trial.config.name}: {value_words(spec, spec.objective.metric, value)} "
        "(1 launch, which selected nothing)"
        for trial, value in ended
        if trial.holdout and value is not None
    ]
    own = [(trial, value) for trial, value in ended if not trial.holdout and value]
    first = min((trial.started_at for trial, _ in own), default=None)
    timed = [
        (trial.node, trial.config.name, (trial.started_at - first).total_seconds(), value)
        for trial, value in own
        if first is not None
    ]
    return lines + drift_words(timed, baseline=spec.search.baseline, margin=spec.search.margin)


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
