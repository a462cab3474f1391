"""Traffic of production: what a person reads of it, and the requests that replay it, as one JSON file.

The file is a trace. What production's own histograms said of TTFT and TPOT meanwhile is in it, so that a replay on
production's own settings can be held against it.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.traffic.arrivals import ObservedArrivals, observed_arrivals
from tokenpeak.loadgen.traffic.lengths import Histogram, ObservedLengths, observed_lengths
from tokenpeak.loadgen.traffic.readings import Readings, readings_of
from tokenpeak.records import Series
from tokenpeak.spec import Declaration

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
FEWEST_REQUESTS = 20


class LengthFigures(Declaration):
    """Lengths in tokens over all requests."""

    mean: float
    """The mean."""
    quantiles: dict[str, int]
    """Quantiles, by name."""


class TrafficFigures(Declaration):
    """What a person reads of the traffic."""

    requests: int
    """Requests that came."""
    rate_per_s: float
    """Requests per second on average."""
    burstiness: float | None
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier; None: too few requests to say."""
    rates: tuple[tuple[float, float], ...]
    """The rate over time: begin in seconds, and requests per second from there on."""
    input_tokens: LengthFigures
    """Lengths of prompts."""
    output_tokens: LengthFigures
    """Lengths of answers."""
    prefix_hit_rate: float | None
    """Share of prompt tokens that production's prefix cache served; None: it has none."""
    lengths_together: bool
    """Whether prompts and answers were seen together; else each length is drawn by itself."""
    seen_alone: int
    """Requests whose prompt and answer were seen together."""


class TrafficRequest(Declaration):
    """A request that replays production's traffic."""

    timestamp_s: float
    """When it is due, from the first reading on."""
    input_tokens: PositiveInt
    """Tokens of its prompt."""
    cached_tokens: Annotated[int, Field(ge=0)]
    """How many of them, from the beginning, a prefix cache has."""
    output_tokens: PositiveInt
    """Tokens of its answer."""


class Traffic(Declaration):
    """Traffic of one node's production over a while."""

    tokenpeak_traffic: Literal[1] = 1
    """Says what this file is."""
    node: str
    """The node."""
    model: str | None
    """What production serves, by its name."""
    began_at: datetime
    """When the first reading was made."""
    seconds: float
    """How long it was observed."""
    readings: int
    """How often its metrics were read."""
    figures: TrafficFigures
    """What a person reads of it."""
    ttft_s: tuple[tuple[float, float], ...]
    """Production's own TTFT meanwhile: bounds of buckets, and the share of requests up to each."""
    tpot_s: tuple[tuple[float, float], ...]
    """Likewise its TPOT."""
    requests: tuple[TrafficRequest, ...]
    """A replay of it. Which length came when is by chance; how often each came is as observed."""


def traffic_of(readings: Series, histograms: Series, *, node: str, model: str | None, seed: int = 0) -> Traffic:
    """The traffic that a node's answer shows; WorkloadError where there was too little, or what it needs is missing."""
    seen = readings_of(readings.t_s, readings.columns)
    random = np.random.default_rng([seed, 0x7A])
    arrivals = observed_arrivals(seen, random)
    if len(arrivals.at_s) < FEWEST_REQUESTS:
        raise WorkloadError(
            f"{node}: {len(arrivals.at_s)} requests came to production in {seen.t_s[-1]:.0f} s, which is too little to "
            f"tune for (at least {FEWEST_REQUESTS}). Observe it for longer, or when it is used."
        )
    grown = {name: _growth(histograms, name) for name in ("prompts_tokens", "answers_tokens", "ttft", "tpot")}
    lengths = observed_lengths(seen, grown, len(arrivals.at_s), random)
    return Traffic(
        node=node,
        model=model,
        began_at=datetime.fromtimestamp(readings.t_s[0], UTC),
        seconds=round(float(seen.t_s[-1]), 1),
        readings=len(seen.t_s),
        figures=_figures(seen, arrivals, lengths),
        ttft_s=_shares(grown["ttft"]),
        tpot_s=_shares(grown["tpot"]),
        requests=tuple(
            TrafficRequest(
                timestamp_s=round(at_s, 4),
                input_tokens=each.input_tokens,
                cached_tokens=each.cached_tokens,
                output_tokens=each.output_tokens,
            )
            for at_s, each in zip(arrivals.at_s, lengths.requests, strict=True)
        ),
    )


def as_text(traffic: Traffic) -> str:
    """The file: what a person reads first, then a line for each request."""
    head = json.dumps(traffic.model_dump(mode="json", exclude={"requests"}), indent=1)
    rows = ",\n".join(f"  {each.model_dump_json()}" for each in traffic.requests)
    return f'{head.removesuffix("}").rstrip()},\n "requests": [\n{rows}\n ]\n}}'


def _growth(histograms: Series, name: str) -> Histogram:
    """How many values came up to each bound between the first reading and the last."""
    mark = f"{name}_le:"
    rows = []
    for column, values in histograms.columns.items():
        first, last = values[0], values[-1]
        if column.startswith(mark) and first is not None and last is not None:
            rows.append((float(column.removeprefix(mark).replace("+Inf", "inf")), max(0.0, last - first)))
    return sorted(rows)


def _shares(histogram: Histogram) -> tuple[tuple[float, float], ...]:
    total = histogram[-1][1] if histogram else 0.0
    return tuple((bound, round(upto / total, 5)) for bound, upto in histogram if bound < np.inf) if total else ()


def _figures(readings: Readings, arrivals: ObservedArrivals, lengths: ObservedLengths) -> TrafficFigures:
    queries, hits = (float(readings.between(name).sum()) for name in ("queries", "hits"))
    return TrafficFigures(
        requests=len(arrivals.at_s),
        rate_per_s=round(arrivals.rate_per_s, 4),
        burstiness=None if arrivals.burstiness is None else round(arrivals.burstiness, 3),
        rates=tuple((round(begin, 1), round(rate, 4)) for begin, rate in arrivals.rates),
        input_tokens=_length_figures([each.input_tokens for each in lengths.requests]),
        output_tokens=_length_figures([each.output_tokens for each in lengths.requests]),
        prefix_hit_rate=round(hits / queries, 4) if queries else None,
        lengths_together=lengths.is_joint,
        seen_alone=lengths.alone,
    )


def _length_figures(lengths: Sequence[int]) -> LengthFigures:
    return LengthFigures(
        mean=round(float(np.mean(lengths)), 1),
        quantiles={f"p{quantile * 100:g}": int(np.quantile(lengths, quantile)) for quantile in QUANTILES},
    )
