"""Replay: what a strategy would have done on a known landscape, over many seeds.

Each seed draws anew which launch of a config a trial meets, in which order nodes ask, and the strategy's own lots. A
hit is a choice whose true mean is within the margin of the best.
"""

import math
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Literal

from tokenpeak.ranking.intervals import clopper_pearson_interval
from tokenpeak.search.history import Outcome, Proposal, Strategy
from tokenpeak.search.landscape import Landscape
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SearchSpec

Searcher = Literal["adaptive", "random", "grid"]


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
    known = [each for each in seconds if each is not None]
    return fmean(known) if len(known) == len(seconds) else None


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
