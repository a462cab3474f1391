"""Candidates of the decision from a sweep's launches: as records, where a sweep has just ended, or as rows of frames.

Configs of one class cannot differ under the workload, so they are one candidate: that of what runs now where it is of
the class, else of the one that changes the fewest settings.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from tokenpeak.metrics import metric_of
from tokenpeak.plan.baseline import DEFAULTS
from tokenpeak.predict.demand import objective_run
from tokenpeak.predict.model import are_other_models
from tokenpeak.ranking.comparisons import Answers, Candidate, Hold
from tokenpeak.ranking.decision import Decision, decide
from tokenpeak.ranking.intervals import CONFIDENCE, assurance_of_all
from tokenpeak.ranking.objective import column_of, metric_value, objective_direction, objective_value
from tokenpeak.ranking.precision import precision_of, setting_changes
from tokenpeak.records import Config, Plan, RunRecord, TrialRecord
from tokenpeak.records.quality import SweepQuality
from tokenpeak.spec.load import level_kind
from tokenpeak.spec.pooling import OBJECTIVE
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.renames import speculative_config

Row = Mapping[str, Any]
DEFAULT_PERCENTILE = "p95"
"""Of a latency that the SLO does not limit."""


def throughput_column(spec: SweepSpec) -> str:
    """The column of throughput: input tokens per second of a pooling model, output tokens per second of any other."""
    return OBJECTIVE if spec.pools else "output_tok_per_s"


def latency_columns(spec: SweepSpec) -> tuple[str, str]:
    """The columns of TTFT and TPOT at the percentiles that the SLO limits; p95 of one that it does not limit.

    Of a pooling model, which has neither, those of its latency: at the percentile that the SLO limits, and p50.
    """
    limited = {name: percentile for name, percentile, _ in reversed(list(spec.slo.limits()))}
    if spec.pools:
        other = "p50" if limited.get("latency_s") != "p50" else DEFAULT_PERCENTILE
        return f"latency_s_{limited.get('latency_s', DEFAULT_PERCENTILE)}", f"latency_s_{other}"
    ttft, tpot = (f"{name}_{limited.get(name, DEFAULT_PERCENTILE)}" for name in ("ttft_s", "tpot_s"))
    return ttft, tpot


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch with a value of the objective."""

    config_id: str
    node: str
    value: float
    slo_met: bool | None
    within_limits: Mapping[str, int] = field(default_factory=dict)
    requests: int | None = None
    """How many requests `within_limits` are of."""
    excess: float | None = None
    workloads: Mapping[str, float] = field(default_factory=dict)
    latency: Mapping[str, float] = field(default_factory=dict)


def launches_of_records(spec: SweepSpec, trials: Iterable[TrialRecord]) -> list[Launch]:
    """The launches of trials of one kind of hardware that count, in the order of their ids."""
    launches = []
    for trial in sorted(trials, key=lambda trial: trial.trial_id):
        counts = trial.status == "ok" and not trial.holdout
        value = objective_value(trial, spec) if counts else None
        if value is None:
            continue
        runs = {(run.workload.name, run.level_label): _figures(run, spec, trial.config.gpus) for run in trial.runs}
        run = objective_run(trial.runs, spec)
        launch = Launch(
            config_id=trial.config.config_id, node=trial.node, value=value, slo_met=run.slo_met if run else None
        )
        if run is not None:
            launch = replace(launch, within_limits=run.summary.within_limits, requests=run.summary.requests_sent)
        launches.append(_with_figures(launch, spec, runs))
    return launches


def launches_of_rows(spec: SweepSpec, trials: Iterable[Row], runs: Iterable[Row]) -> list[Launch]:
    """The same from the rows of the frames of trials and runs."""
    of_trial: dict[str, list[Row]] = defaultdict(list)
    for row in runs:
        of_trial[row["trial_id"]].append(row)
    launches = []
    for trial in trials:
        if trial["objective"] is None or trial["holdout"]:
            continue
        own = {(row["workload_name"], row["level_label"]): row for row in of_trial[trial["trial_id"]]}
        run = own.get(spec.objective_run())
        launch = Launch(
            config_id=trial["config_id"], node=trial["node"], value=trial["objective"], slo_met=trial["slo_met"]
        )
        if run is not None and run["verdict"] != "invalid":
            within = run["within_limits"]
            within = json.loads(within) if isinstance(within, str) else within
            launch = replace(launch, within_limits=within or {}, requests=run["requests_sent"])
        launches.append(_with_figures(launch, spec, own))
    return launches


def _figures(run: RunRecord, spec: SweepSpec, gpus: int | None) -> Row:
    """What a run's row in the frames has of it, as far as a decision asks for it."""
    columns = {column_of(spec.objective.metric), *latency_columns(spec)}
    columns |= {f"{name}_{percentile}" for name, percentile, _ in spec.slo.limits()}
    return {
        "verdict": run.verdict.status,
        "level_kind": level_kind(run.level),
        "level_label": run.level_label,
        **{column: metric_value(run, column, spec.energy, gpus=gpus) for column in columns},
    }


def _with_figures(launch: Launch, spec: SweepSpec, runs: Mapping[tuple[str, str], Row]) -> Launch:
    """The launch with what its runs say of limits, latency and other loads; invalid ones say nothing."""
    place, metric = spec.objective_run(), column_of(spec.objective.metric)
    valid = {key: run for key, run in runs.items() if run["verdict"] != "invalid"}
    own = valid.get(place)
    workloads = {
        " at ".join(key): float(run[metric])
        for key, run in valid.items()
        if key != place and run.get(metric) is not None and _says(metric, run)
    }
    if own is None or spec.objective.is_rate:
        return replace(launch, workloads=workloads)
    limits = [(own.get(f"{name}_{percentile}"), limit_s) for name, percentile, limit_s in spec.slo.limits()]
    return replace(
        launch,
        workloads=workloads,
        excess=max((value / limit_s for value, limit_s in limits if value is not None), default=None),
        latency={
            name: float(own[name]) for name in latency_columns(spec) if own.get(name) is not None and name != metric
        },
    )


def _says(metric: str, run: Row) -> bool:
    """Whether a run under another load is compared by the objective's metric: of an open one, by latencies alone."""
    declared = metric_of(metric)
    is_latency = declared is not None and declared[0].distribution
    return run["level_label"] != "max_rate" and (is_latency or run["level_kind"] != "open")


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The candidates of one kind of hardware and their decision."""

    all: tuple[Candidate, ...]
    of: Mapping[str, str]
    """For each launched config the one that stands for its class."""
    hold_confidence: Mapping[str, float | None]
    """That the SLO is held, by candidate (0..1); None: not counted, or not held."""
    decision: Decision


def decided(
    spec: SweepSpec,
    launches: Sequence[Launch],
    *,
    plan: Plan | None,
    quality: Mapping[str, str],
    engine_version: str | None,
) -> Candidates:
    """A candidate for each config, or class of configs, that was launched, in the order of their first launches.

    Without a plan each config is a candidate that changes nothing. `quality` is the verdict on each config's answers
    (pass, fail or unknown), where they were measured; what a config leaves unset stands at the default of
    `engine_version`.
    """
    configs = {each.config.config_id: each.config for each in plan.feasible} if plan is not None else {}
    launched = {launch.config_id for launch in launches}
    now = reference(spec, [configs[config_id] for config_id in configs if config_id in launched])
    beside = now or reference(spec, list(configs.values()))
    changes = {
        config_id: setting_changes(configs[config_id], beside, engine_version) if config_id in configs else 0
        for config_id in dict.fromkeys(launch.config_id for launch in launches)
    }
    models = {each.model.name: None for config_id, each in configs.items() if config_id in launched}
    first = beside.model.name if beside is not None else next(iter(models), None)
    # With nothing that runs now, several models have none of which the others could be settings.
    is_mixed = beside is None and any(are_other_models(*pair) for pair in combinations(sorted(models), 2))
    of = representatives(plan, changes, now.config_id if now is not None else None)
    own: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        own[of[launch.config_id]].append(launch)
    confidence = {config_id: hold_confidence(spec.slo, each) for config_id, each in own.items()}
    found = tuple(
        Candidate(
            config=config_id,
            launches=[launch.value for launch in each],
            nodes=[launch.node for launch in each],
            hold=_hold(spec, each, confidence[config_id]),
            excess=max((launch.excess for launch in each if launch.excess is not None), default=None),
            answers="another_model"
            if is_mixed
            else _answers(configs.get(config_id), beside, first, quality.get(config_id)),
            workloads=_of_all([launch.workloads for launch in each]),
            latency=_of_all([launch.latency for launch in each]),
            changes=changes[config_id],
            is_current=now is not None and config_id == now.config_id,
        )
        for config_id, each in own.items()
    )
    higher = objective_direction(spec) != "lower"
    return Candidates(
        all=found,
        of=of,
        hold_confidence=confidence,
        decision=decide(found, higher_is_better=higher, margin=spec.search.margin),
    )


def decided_by_records(
    spec: SweepSpec,
    trials: Sequence[TrialRecord],
    *,
    plan: Plan,
    quality: SweepQuality | None,
    engine_version: str | None,
) -> Candidates:
    """The same from the trials of the plan's hardware, as they were judged by their answers."""
    verdicts = quality.verdicts if quality is not None else ()
    status = {
        config_id: each.verdict.status
        for each in verdicts
        if each.hardware == plan.hardware
        for config_id in each.config_ids
    }
    launches = launches_of_records(spec, trials)
    return decided(spec, launches, plan=plan, quality=status, engine_version=engine_version)


def representatives(plan: Plan | None, changes: Mapping[str, int], now: str | None) -> dict[str, str]:
    """For each launched config the one that stands for its class: what runs now, else that of the fewest changes."""
    planned = plan.feasible if plan is not None else ()
    classes = {each.config.config_id: each.config_class for each in planned}
    order = sorted(changes, key=lambda config_id: (config_id != now, changes[config_id]))
    first: dict[str, str] = {}
    for config_id in order:
        first.setdefault(classes.get(config_id, config_id), config_id)
    return {config_id: first[classes.get(config_id, config_id)] for config_id in changes}


def reference(spec: SweepSpec, configs: Sequence[Config]) -> Config | None:
    """What runs now, as far as is known: production, or the baseline the user named, else the engine's defaults."""
    names = [*(name for name in spec.search.baseline if name != DEFAULTS), DEFAULTS]
    known = {config.name: config for config in configs}
    return next((known[name] for name in names if name in known), None)


def _hold(spec: SweepSpec, launches: Sequence[Launch], confidence: float | None) -> Hold:
    """Whether a config's launches hold the SLO, with confidence by the requests of all of them."""
    if spec.objective.is_rate or not spec.slo.limits():
        # A rate within the SLO has been judged by it already.
        return "no_limit"
    if any(launch.slo_met is False for launch in launches):
        return "broken"
    return "held" if confidence is not None and confidence >= CONFIDENCE else "not_proven"


def hold_confidence(slo: Slo, launches: Sequence[Launch]) -> float | None:
    """The confidence (0..1) that all requests hold the SLO, by those of all launches.

    None where a launch broke it, or has no counts.
    """
    if not all(launch.slo_met for launch in launches):
        return None
    return assurance_of_all(slo, [(launch.within_limits, launch.requests) for launch in launches])


def _answers(config: Config | None, beside: Config | None, model: str | None, status: str | None) -> Answers:
    """What is known of a config's answers beside those of what runs now, by precision, model and speculation.

    `model` is the name of the model that runs now, or of the first that was launched.
    """
    if config is not None and beside is not None and are_other_models(config.model.name, beside.model.name):
        return "another_model"
    if status in ("pass", "fail"):
        return "passed" if status == "pass" else "failed"
    if config is None:
        return "same"
    plain = config.model_copy(update={"flags": {}})
    other = beside if beside is not None else plain
    # A GGUF file brings its quantization without a flag.
    theirs = precision_of(other) if beside is not None else replace(precision_of(plain), quantization="")
    changed = precision_of(config).changes(theirs)
    changed_draft = speculative_config(config.flags) != speculative_config(other.flags)
    changed_model = config.model.name != model
    return "not_compared" if changed or changed_draft or changed_model or status is not None else "same"


def _of_all(launches: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The values that each launch has, by name."""
    names = [name for name in launches[0] if all(name in own for own in launches)]
    return {name: [own[name] for own in launches] for name in names}
