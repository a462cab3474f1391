"""Replay: what a strategy would have done on a landscape, the measured objective of every config of a plan.

Each seed draws anew which launch of a config a trial meets, in which order nodes ask, and the strategy's own lots. A
hit is a choice whose true mean is within the margin of the best.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from tokenpeak.errors import ArchiveError
from tokenpeak.plan.matrix import predicted_again
from tokenpeak.ranking.intervals import clopper_pearson_interval, variance
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.records import Plan, SweepRecord, TrialRecord
from tokenpeak.search.history import Outcome, Proposal, Strategy, outcome_of
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SearchSpec, SweepSpec, parse_spec

Searcher = Literal["adaptive", "random", "grid"]

LEAST_MARGIN = 0.01
"""A choice within 1% of the best is a hit, or within the noise between launches where that is more."""


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """The launches of each config of `plan`, by config_id: the objective's value, None for a launch that gave none."""

    name: str
    plan: Plan
    metric: str
    launches: Mapping[str, tuple[float | None, ...]]
    durations_s: Mapping[str, tuple[float, ...]] | None = None
    """How long each of the launches took, of a sweep; None where one is not known."""

    @property
    def sign(self) -> float:
        """1 when the objective is to be high, −1 when it is to be low."""
        return -1.0 if metric_direction(self.metric) == "lower" else 1.0

    def truth(self) -> dict[str, float]:
        """The mean log objective, best high, of each config that works: most of its launches gave a value."""
        means = {}
        for config_id, launches in self.launches.items():
            values = [math.log(value) for value in launches if value is not None]
            if values and 2 * len(values) > len(launches):
                means[config_id] = self.sign * fmean(values)
        return means

    def noise(self) -> float | None:
        """Standard deviation of log objective between launches of a config, over all configs; None without repeats."""
        groups = [[math.log(value) for value in launches if value is not None] for launches in self.launches.values()]
        repeated = [values for values in groups if len(values) > 1]
        if not repeated:
            return None
        freedom = sum(len(values) - 1 for values in repeated)
        return math.sqrt(sum(variance(values) * (len(values) - 1) for values in repeated) / freedom)

    def margin(self) -> float:
        """How far (log) from the best a hit may be."""
        return math.log1p(max(LEAST_MARGIN, self.noise() or 0.0))


def landscapes_of(
    name: str, sweep: SweepRecord, trials: Iterable[TrialRecord], spec: SweepSpec
) -> tuple[Landscape, ...]:
    """The landscape of each kind of hardware in an archive: all configs that were launched.

    When `spec` asks for another run than the archive's own objective, predictions are made for that run.
    """
    launches: dict[str, dict[str, list[float | None]]] = {}
    took_s: dict[str, dict[str, list[float | None]]] = {}
    for trial in trials:
        if trial.status == "interrupted":
            continue
        outcome = outcome_of(trial, spec)
        value = outcome.value if outcome.feasible and (outcome.value or 0) > 0 else None
        launches.setdefault(trial.hardware, {}).setdefault(trial.config.config_id, []).append(value)
        took_s.setdefault(trial.hardware, {}).setdefault(trial.config.config_id, []).append(trial.duration_s)
    nodes = {node.node: node for node in sweep.nodes}
    is_other_run = parse_spec(sweep.spec, Path(f"{name}/sweep.json")).objective_run() != spec.objective_run()
    landscapes = []
    for plan in sweep.plans:
        if is_other_run and any(planned.prediction for planned in plan.feasible):
            plan = predicted_again(plan, spec, nodes[plan.nodes[0]])
        tried = launches.get(plan.hardware, {})
        launched = tuple(planned for planned in plan.feasible if planned.config.config_id in tried)
        landscape = Landscape(
            name=f"{name} {plan.hardware}",
            plan=plan.model_copy(update={"feasible": launched, "highest": None}),
            metric=spec.objective.metric,
            launches={planned.config.config_id: tuple(tried[planned.config.config_id]) for planned in launched},
            durations_s=_durations_s(took_s.get(plan.hardware, {})),
        )
        if landscape.truth():
            landscapes.append(landscape)
    if not landscapes:
        raise ArchiveError(f"{name} has no trial whose {spec.objective.metric} may be ranked; nothing to replay.")
    return tuple(landscapes)


def _durations_s(took_s: Mapping[str, Sequence[float | None]]) -> dict[str, tuple[float, ...]] | None:
    """The durations of all launches; None where one is not known."""
    durations_s = {config_id: tuple(s for s in each if s is not None) for config_id, each in took_s.items()}
    return durations_s if all(len(durations_s[key]) == len(each) for key, each in took_s.items()) else None


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One search: whether its choice was a hit, its regret as a share, the trial that first met a hit, trials made."""

    hit: bool
    regret: float
    first_hit: int | None
    trials: int
    wall_s: float | None
    """How long its rounds take, each as long as its longest trial; None where durations are not known."""
    alone_s: float | None
    """How long its trials take one after another."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Many replays. A median of trials is None when half of the searches never met a hit."""

    hit_rate: float
    hit_rate_low: float
    hit_rate_high: float
    median_regret: float
    p95_regret: float
    median_trials_to_hit: float | None
    mean_trials: float
    mean_wall_s: float | None
    mean_alone_s: float | None


def replay(
    landscape: Landscape,
    searcher: Searcher,
    *,
    trials: int,
    seeds: int,
    nodes: int = 1,
    jobs: int = 1,
) -> list[Replay]:
    """A search for each of `seeds` seeds, on `jobs` processes; the same whatever `jobs` is.

    With several `nodes` trials are made in rounds, one on each node: a round is proposed before its results are known.
    """
    one = partial(_replay_one, landscape, searcher, trials, nodes)
    if jobs <= 1:
        return [one(seed) for seed in range(seeds)]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(seeds), chunksize=max(1, seeds // (4 * jobs))))


def summarize(replays: Sequence[Replay]) -> Summary:
    """Hit rate with its exact interval, regret and trials to the first hit."""
    hits = sum(one.hit for one in replays)
    interval = clopper_pearson_interval(hits, len(replays))
    regrets = sorted(one.regret for one in replays)
    first = median(one.first_hit or math.inf for one in replays)
    return Summary(
        hit_rate=hits / len(replays),
        hit_rate_low=interval.low or 0.0,
        hit_rate_high=1.0 if interval.high is None else interval.high,
        median_regret=median(regrets),
        p95_regret=regrets[min(len(regrets) - 1, math.ceil(0.95 * len(regrets)) - 1)],
        median_trials_to_hit=first if math.isfinite(first) else None,
        mean_trials=fmean(one.trials for one in replays),
        mean_wall_s=_mean([one.wall_s for one in replays]),
        mean_alone_s=_mean([one.alone_s for one in replays]),
    )


def _mean(seconds: Sequence[float | None]) -> float | None:
    times = [each for each in seconds if each is not None]
    return fmean(times) if len(times) == len(seconds) else None


def _replay_one(landscape: Landscape, searcher: Searcher, trials: int, nodes: int, seed: int) -> Replay:
    truth = landscape.truth()
    best, margin = max(truth.values()), landscape.margin()
    strategy = _strategy(landscape, searcher, trials, seed)
    lots = random.Random(f"replay {seed}")  # noqa: S311 - which launch is met, not a secret
    drawn = {key: lots.sample(range(len(each)), len(each)) for key, each in sorted(landscape.launches.items())}
    names = [f"node {number}" for number in range(1, nodes + 1)]
    asking = random.Random(f"nodes {seed}")  # noqa: S311
    history: list[Outcome] = []
    first_hit: int | None = None
    rounds: list[list[float]] = []
    while steps := _round(strategy, history, nodes):
        rounds.append([])
        for step, node in zip(steps, asking.sample(names, len(steps)), strict=True):
            order = drawn[step.config_id]
            launch = order[step.replicate % len(order)]
            value = landscape.launches[step.config_id][launch]
            if landscape.durations_s is not None:
                rounds[-1].append(landscape.durations_s[step.config_id][launch])
            history.append(
                Outcome(
                    config_id=step.config_id,
                    replicate=step.replicate,
                    status="failed" if value is None else "ok",
                    value=value,
                    node=node,
                    failure_cause="crashed" if value is None else None,
                )
            )
            if first_hit is None and value is not None and truth.get(step.config_id, -math.inf) >= best - margin:
                first_hit = len(history)
    choice = strategy.choose(history)
    reached = truth.get(choice, -math.inf) if choice else -math.inf
    regret = 1.0 - math.exp(reached - best)
    is_timed = landscape.durations_s is not None
    return Replay(
        hit=reached >= best - margin,
        regret=regret,
        first_hit=first_hit,
        trials=len(history),
        wall_s=sum(map(max, rounds)) if is_timed else None,
        alone_s=sum(map(sum, rounds)) if is_timed else None,
    )


def _round(strategy: Strategy, history: Sequence[Outcome], nodes: int) -> list[Proposal]:
    """The next trials, at most one for each node; each is proposed while those before it are pending."""
    steps: list[Proposal] = []
    while len(steps) < nodes:
        step = strategy.propose(history, [(one.config_id, one.replicate) for one in steps])
        if not isinstance(step, Proposal):
            break
        steps.append(step)
    return steps


def _strategy(landscape: Landscape, searcher: Searcher, trials: int, seed: int) -> Strategy:
    """The strategy as a sweep would have it, without finalists; a grid goes through the plan in its own order."""
    plan = landscape.plan
    if searcher == "grid":
        plan = plan.model_copy(update={"feasible": plan.feasible[:trials]})
    search = SearchSpec(strategy=searcher, trials=trials, finalists=0, anchor_every=None, seed=seed)
    return make_strategy(search, plan, metric=landscape.metric)
