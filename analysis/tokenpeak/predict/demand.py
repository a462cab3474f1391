"""Demand of a workload at a load level, reduced to the numbers that a prediction needs."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev

from tokenpeak.errors import SpecError
from tokenpeak.records import RunRecord
from tokenpeak.spec.lengths import Length, LengthDistribution
from tokenpeak.spec.load import AnyLevel, ClosedLoad, ExternalLoad, LoadLevel, MaxRateLoad, OpenLoad, ReplayLoad
from tokenpeak.spec.sweep import SweepSpec, WorkloadPlan
from tokenpeak.spec.workload import (
    AnyWorkload,
    ConversationWorkload,
    DatasetWorkload,
    ExternalWorkload,
    FixedWorkload,
    PoolingWorkload,
    ProductionWorkload,
    SyntheticWorkload,
    Workload,
)

TOKENS_PER_WORD = 1.35
"""English prose under the vocabularies of recent models."""

DATASET_INPUT_TOKENS, DATASET_OUTPUT_TOKENS = 220, 200
"""Means of ShareGPT as vLLM's benchmarks sample it; used for data sets, whose lengths are known only when read."""

DATASET_SPREAD = 1.0
"""Coefficient of variation of both there."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One run: mean and largest lengths in tokens, how many requests, and how they come."""

    input_tokens: float
    output_tokens: float
    longest_tokens: int | None
    """Most tokens of input and output together; None when only the data show it."""
    longest_input_tokens: int | None
    requests: int | None
    warmup_requests: int
    duration_s: float | None
    concurrency: int | None
    """Most requests in flight; None when nothing limits them."""
    rate_per_s: float | None
    prefix_hit_rate: float = 0.0
    shared_tokens: int | None = 0
    """Most tokens that requests have in common with others, each counted once; None when only the data show it."""
    search: MaxRateLoad | None = None
    """The rate is searched for."""
    input_spread: float = 0.0
    output_spread: float = 0.0
    """Coefficients of variation of the lengths; 0: all alike, so that requests sent together also end together."""
    generates: bool = True
    """False of a pooling workload: each of its texts is a sequence here, and the performance model does not hold."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps of a rate: 1 is Poisson, infinite is constant."""


def _mean(length: Length) -> float:
    if not isinstance(length, LengthDistribution):
        return float(length)
    if length.distribution == "table":
        weights = sum(weight for _, weight in length.table)
        return sum(value * weight for value, weight in length.table) / weights
    if length.mean is not None:
        return length.mean
    return (length.low + (length.high or length.low)) / 2


def _spread(length: Length) -> float:
    """Coefficient of variation."""
    if not isinstance(length, LengthDistribution):
        return 0.0
    if length.distribution == "table":
        weights = sum(weight for _, weight in length.table)
        squares = sum(value**2 * weight for value, weight in length.table) / weights
        return math.sqrt(max(0.0, squares - _mean(length) ** 2)) / _mean(length)
    if length.distribution == "uniform":
        return ((length.high or length.low) - length.low) / math.sqrt(12) / _mean(length)
    return (length.std or 0.0) / _mean(length)


def _most(length: Length) -> int | None:
    if not isinstance(length, LengthDistribution):
        return length
    if length.distribution == "table":
        return max(value for value, _ in length.table)
    return length.high


def _sum(*parts: int | None) -> int | None:
    return None if any(part is None for part in parts) else sum(part for part in parts if part is not None)


@dataclass(frozen=True, kw_only=True)
class _Lengths:
    """Means, spreads and largest lengths of a workload's requests, and the share of input in the prefix cache."""

    input_tokens: float
    output_tokens: float
    longest_input: int | None
    longest: int | None
    hits: float
    input_spread: float = 0.0
    output_spread: float = 0.0


def _tokens_of(text: str) -> int:
    return max(1, round(len(text.split()) * TOKENS_PER_WORD))


def _lengths(workload: Workload | ProductionWorkload) -> _Lengths:
    hits = workload.intended_hit_rate or 0.0
    if isinstance(workload, FixedWorkload):
        prompt, output = _tokens_of(workload.prompt), workload.output_tokens
        return _Lengths(
            input_tokens=prompt, output_tokens=output, longest_input=prompt, longest=prompt + output, hits=hits
        )
    if isinstance(workload, SyntheticWorkload):
        prompts, outputs = workload.input_tokens, workload.output_tokens
        return _Lengths(
            input_tokens=_mean(prompts),
            output_tokens=_mean(outputs),
            longest_input=_most(prompts),
            longest=_sum(_most(prompts), _most(outputs)),
            hits=hits,
            input_spread=_spread(prompts),
            output_spread=_spread(outputs),
        )
    if isinstance(workload, ConversationWorkload):
        return _conversation(workload, hits)
    if isinstance(workload, PoolingWorkload):
        return _pooling(workload, hits)
    dataset = workload if isinstance(workload, DatasetWorkload) else None
    output_tokens = dataset.output_tokens if dataset else None
    return _Lengths(
        input_tokens=DATASET_INPUT_TOKENS,
        output_tokens=float(output_tokens or DATASET_OUTPUT_TOKENS),
        longest_input=dataset.max_input_tokens if dataset else None,
        longest=None,
        hits=hits,
        input_spread=DATASET_SPREAD,
        output_spread=0.0 if output_tokens else DATASET_SPREAD,
    )


def _pooling(workload: PoolingWorkload, hits: float) -> _Lengths:
    """A text, and the query that it is compared with."""
    texts, query = workload.input_tokens, workload.query_tokens
    longest = _sum(_most(texts), 0 if query is None else _most(query))
    return _Lengths(
        input_tokens=_mean(texts) + (0.0 if query is None else _mean(query)),
        output_tokens=0.0,
        longest_input=longest,
        longest=longest,
        hits=hits,
        input_spread=_spread(texts),
    )


def _conversation(workload: ConversationWorkload, hits: float) -> _Lengths:
    """Each turn brings all before it again; what is new of it, are the last answer and the turn's own words."""
    # How long texts of a file are, is not looked up: a plan reads no data.
    first = _mean(workload.starter_tokens) if workload.starter_tokens is not None else DATASET_INPUT_TOKENS
    said = _tokens_of(workload.turn_text or "") if workload.turn_input_tokens is None else workload.turn_input_tokens
    more, out = _mean(said), _mean(workload.output_tokens)
    turns = workload.turns
    inputs = [first + more + turn * (more + out) for turn in range(turns)]
    whole = fmean(inputs)
    new = more + (turns - 1) / turns * out
    longest = _sum(
        _most(workload.starter_tokens) if workload.starter_tokens is not None else None,
        *[_most(said)] * turns,
        *[_most(workload.output_tokens)] * (turns - 1),
    )
    return _Lengths(
        input_tokens=whole,
        output_tokens=out,
        longest_input=longest,
        longest=_sum(longest, _most(workload.output_tokens)),
        hits=hits or 1 - new / whole,
        input_spread=pstdev(inputs) / whole,
        output_spread=_spread(workload.output_tokens),
    )


def _shared(workload: Workload | ProductionWorkload) -> int | None:
    """Tokens that a prefix cache may go on holding for requests to come, beside what runs."""
    if isinstance(workload, ConversationWorkload):
        if workload.starter_tokens is None or not isinstance(workload.starters, int):
            return None
        longest = _most(workload.starter_tokens)
        return None if longest is None else workload.starters * longest
    if isinstance(workload, SyntheticWorkload) and (most := _most(workload.input_tokens)) is not None:
        return round(workload.prefix_hit_rate * most)
    return None if isinstance(workload, DatasetWorkload) else 0


def _burstiness(level: LoadLevel) -> float:
    if not isinstance(level, OpenLoad | MaxRateLoad) or level.arrivals == "poisson":
        return 1.0
    return math.inf if level.arrivals == "constant" else level.burstiness


def _replay_s(workload: Workload | ProductionWorkload, level: LoadLevel) -> float | None:
    """How long a replay of production's traffic takes; None where that is not known before it is read."""
    replays = isinstance(level, ReplayLoad) and level.requests is None
    return workload.replay_s if replays and isinstance(workload, ProductionWorkload) else None


def demand(workload: Workload | ProductionWorkload, level: LoadLevel) -> Demand:
    """The run of `workload` at `level`."""
    lengths = _lengths(workload)
    closed = level if isinstance(level, ClosedLoad) else None
    open_ = level if isinstance(level, OpenLoad) else None
    concurrency = closed.concurrency if closed else (open_.max_concurrency if open_ else None)
    if concurrency is None and level.requests is not None:
        concurrency = level.requests + level.warmup_requests
    texts = workload.inputs if isinstance(workload, PoolingWorkload) else 1
    return Demand(
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        longest_tokens=lengths.longest,
        longest_input_tokens=lengths.longest_input,
        requests=None if level.requests is None else level.requests * texts,
        warmup_requests=level.warmup_requests * texts,
        duration_s=_replay_s(workload, level) or level.duration_s,
        concurrency=None if concurrency is None else concurrency * texts,
        rate_per_s=open_.rate_per_s * texts if open_ else None,
        prefix_hit_rate=lengths.hits,
        shared_tokens=_shared(workload),
        search=level if isinstance(level, MaxRateLoad) else None,
        input_spread=lengths.input_spread,
        output_spread=lengths.output_spread,
        generates=not isinstance(workload, PoolingWorkload),
        burstiness=_burstiness(level),
    )


def _own(workload: AnyWorkload, level: AnyLevel) -> Demand:
    """The run, which must be one that this load client can offer."""
    if isinstance(workload, ExternalWorkload) or isinstance(level, ExternalLoad):
        raise SpecError(
            f"Workload {workload.name!r} at {level.label} was offered by another tool and cannot be offered again. "
            "Describe it as a synthetic, dataset, conversation or trace workload."
        )
    return demand(workload, level)


def demands(plans: tuple[WorkloadPlan, ...]) -> tuple[Demand, ...]:
    """Every run of a trial, in order."""
    return tuple(_own(plan.workload, level) for plan in plans for level in plan.levels)


def objective_demand(spec: SweepSpec) -> Demand:
    """Demand of the run that the objective is read from."""
    name, label = spec.objective_run()
    for plan in spec.workloads:
        for level in plan.levels:
            if plan.workload.name == name and level.label == label:
                return _own(plan.workload, level)
    raise AssertionError(f"objective_run() named {name} at {label}, which the spec does not hold")


def objective_run(runs: Sequence[RunRecord], spec: SweepSpec) -> RunRecord | None:
    """The run that the objective is read from; None when it was not made or may not be ranked."""
    workload, level = spec.objective_run()
    for run in runs:
        if run.workload.name == workload and run.level_label == level and run.verdict.status != "invalid":
            return run
    return None


STEPS = (0.7548776662466927, 0.5698402909980532)
"""Multiples of them, modulo 1, fill a square evenly however many there are: inverse powers of the plastic number."""


def lengths(demand: Demand) -> Iterator[tuple[int, int]]:
    """(input, output) of one request after another, spread as widely as the demand says."""
    prompt, both = demand.longest_input_tokens, demand.longest_tokens
    output = both - prompt if prompt is not None and both is not None else None
    place = 0
    while True:
        place += 1
        first, second = ((place * step) % 1 for step in STEPS)
        yield (
            _length(demand.input_tokens, demand.input_spread, first, prompt),
            _length(demand.output_tokens, demand.output_spread, second, output),
        )


def _length(mean: float, spread: float, quantile: float, most: int | None) -> int:
    """A quantile of the lognormal distribution with that mean and coefficient of variation."""
    if not spread:
        return max(1, round(mean))
    sigma = math.sqrt(math.log(1 + spread**2))
    value = mean * math.exp(sigma * NormalDist().inv_cdf(quantile) - sigma**2 / 2)
    return max(1, round(min(value, most or value)))


def arrivals(demand: Demand, number: int) -> list[float]:
    """When so many requests of a rate are due, from 0 on, always alike; their mean rate is exact. Empty without one."""
    if demand.rate_per_s is None:
        return []
    draw = random.Random(0)  # noqa: S311 - arrivals, not secrets
    shape, moments = demand.burstiness, [0.0]
    for _ in range(number - 1):
        moments.append(moments[-1] + (1.0 if math.isinf(shape) else draw.gammavariate(shape, 1 / shape)))
    scale = (number - 1) / moments[-1] / demand.rate_per_s if number > 1 else 0.0
    return [moment * scale for moment in moments]
