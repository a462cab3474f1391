"""Traffic of production: what a person reads of it, and the requests that replay it, as one JSON file.

The file is a trace. What production's own histograms said of TTFT and TPOT meanwhile is in it, so that a replay on
production's own settings can be held against it.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.traffic.arrivals import ObservedArrivals, even_arrivals, observed_arrivals
from tokenpeak.loadgen.traffic.lengths import Histogram, ObservedLengths, observed_lengths
from tokenpeak.loadgen.traffic.readings import Readings, readings_of
from tokenpeak.records import ProductionTraffic, Series
from tokenpeak.spec import Declaration

_PAIR = re.compile(r"\[\s+([\d.e+-]+),\s+([\d.e+-]+)\s+\]")
"""Pairs of numbers are a line each."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
FEWEST_REQUESTS = 20
MOST_SINCE_START = 1000
"""Requests of a replay whose lengths are those since production's start."""
ENDED = "finished:"
HISTOGRAMS = ("prompts_tokens", "answers_tokens", "ttft", "tpot")


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
    finished: dict[str, float]
    """Share of requests that ended for each reason, such as `stop` or `length`, by vLLM's own count."""
    lengths_together: bool
    """Whether prompts and answers were seen together; else each length is drawn by itself."""
    seen_alone: int
    """Requests whose prompt and answer were seen together."""
    source: Literal["observed", "since_start"]
    """observed: while metrics were read; since_start: too little came meanwhile, so that lengths, mean rate and hits
    are those since production's start, and requests are due by chance at that rate."""


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
    since_start_s: float | None
    """How long production had run by then; None: its metrics do not say."""
    figures: TrafficFigures
    """What a person reads of it."""
    ttft_s: tuple[tuple[float, float], ...]
    """Production's own TTFT meanwhile: bounds of buckets, and the share of requests up to each."""
    tpot_s: tuple[tuple[float, float], ...]
    """Likewise its TPOT."""
    requests: tuple[TrafficRequest, ...]
    """A replay of it. Which length came when is by chance; how often each came is as observed."""

    def words(self) -> str:
        """The traffic in a sentence's part, for a terminal."""
        figures = self.figures
        over_s = self.since_start_s if figures.source == "since_start" else self.seconds
        shown = [
            f"{figures.requests} requests in {over_s or 0:.0f} s ({figures.rate_per_s:.3g}/s)",
            f"prompts of {figures.input_tokens.mean:.0f} tokens",
            f"answers of {figures.output_tokens.mean:.0f}",
        ]
        if figures.source == "since_start":
            shown[0] = f"{figures.rate_per_s:.3g} requests/s since production's start"
        if figures.prefix_hit_rate is not None:
            shown.append(f"{figures.prefix_hit_rate:.0%} of prompt tokens cached")
        if figures.burstiness is not None:
            shown.append(f"burstiness {figures.burstiness:.2g}")
        if not figures.lengths_together:
            shown.append("prompts and answers not seen together")
        return f"{self.node}: {', '.join(shown)}"

    def record(self) -> ProductionTraffic:
        """What an archive's plan says of it."""
        figures = self.figures
        return ProductionTraffic(
            node=self.node,
            seconds=self.seconds if figures.source == "observed" else self.since_start_s or 0.0,
            source=figures.source,
            requests=figures.requests,
            rate_per_s=figures.rate_per_s,
            burstiness=figures.burstiness,
            input_tokens=figures.input_tokens.mean,
            output_tokens=figures.output_tokens.mean,
            prefix_hit_rate=figures.prefix_hit_rate,
            lengths_together=figures.lengths_together,
            ttft_s=self.ttft_s,
            tpot_s=self.tpot_s,
        )


def traffic_of(readings: Series, histograms: Series, *, node: str, model: str | None, seed: int = 0) -> Traffic:
    """The traffic that a node's answer shows; WorkloadError where there was too little, or what it needs is missing."""
    seen = readings_of(readings.t_s, readings.columns)
    random = np.random.default_rng([seed, 0x7A])
    arrivals = observed_arrivals(seen, random)
    source: Literal["observed", "since_start"] = "observed"
    grown = {name: _growth(histograms, name) for name in HISTOGRAMS}
    seconds = float(seen.t_s[-1])
    up_s = _last(readings, "up_s")
    if len(arrivals.at_s) < FEWEST_REQUESTS:
        source = "since_start"
        since = {name: _growth(histograms, name, whole=True) for name in HISTOGRAMS}
        came = float(seen.counts["prompts"][-1])
        if up_s is None or came < FEWEST_REQUESTS:
            raise WorkloadError(
                f"{len(arrivals.at_s)} requests came to production in {seconds:.0f} s, which is too little to "
                f"tune for (at least {FEWEST_REQUESTS}). Observe it for longer, or when it is used."
            )
        grown, seen = since, seen.since_start(up_s)
        arrivals = even_arrivals(min(MOST_SINCE_START, int(came)), came / up_s, random)
    lengths = observed_lengths(seen, grown, len(arrivals.at_s), random)
    return Traffic(
        node=node,
        model=model,
        began_at=datetime.fromtimestamp(readings.t_s[0], UTC),
        seconds=round(seconds, 1),
        readings=len(readings.t_s),
        since_start_s=None if up_s is None else round(up_s, 1),
        figures=_figures(seen, arrivals, lengths, source, _finished(readings, whole=source == "since_start")),
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
    head = _PAIR.sub(r"[\1, \2]", head)
    rows = ",\n".join(f"  {each.model_dump_json()}" for each in traffic.requests)
    return f'{head.removesuffix("}").rstrip()},\n "requests": [\n{rows}\n ]\n}}'


def _finished(readings: Series, *, whole: bool) -> dict[str, float]:
    """The share of each reason for which requests ended, meanwhile or since the start."""
    ended: dict[str, float] = {}
    for name, values in readings.columns.items():
        known = [value for value in values if value is not None]
        if name.startswith(ENDED) and known:
            ended[name.removeprefix(ENDED)] = max(0.0, known[-1] - (0.0 if whole else known[0]))
    total = sum(ended.values())
    return {reason: round(number / total, 4) for reason, number in ended.items() if number} if total else {}


def _last(series: Series, name: str) -> float | None:
    values = [value for value in series.columns.get(name, ()) if value is not None]
    return values[-1] if values else None


def _growth(histograms: Series, name: str, *, whole: bool = False) -> Histogram:
    """How many values came up to each bound between the first reading and the last; `whole`: since the start."""
    mark = f"{name}_le:"
    rows = []
    for column, values in histograms.columns.items():
        first, last = values[0], values[-1]
        if column.startswith(mark) and first is not None and last is not None:
            bound = float(column.removeprefix(mark).replace("+Inf", "inf"))
            rows.append((bound, max(0.0, last - (0.0 if whole else first))))
    return sorted(rows)


def _shares(histogram: Histogram) -> tuple[tuple[float, float], ...]:
    total = histogram[-1][1] if histogram else 0.0
    return tuple((bound, round(upto / total, 5)) for bound, upto in histogram if bound < np.inf) if total else ()


def _figures(
    readings: Readings,
    arrivals: ObservedArrivals,
    lengths: ObservedLengths,
    source: Literal["observed", "since_start"],
    finished: dict[str, float],
) -> TrafficFigures:
    queries, hits = (float(readings.between(name).sum()) for name in ("queries", "hits"))
    return TrafficFigures(
        requests=len(arrivals.at_s),
        rate_per_s=round(arrivals.rate_per_s, 4),
        burstiness=None if arrivals.burstiness is None else round(arrivals.burstiness, 3),
        rates=tuple((round(begin, 1), round(rate, 4)) for begin, rate in arrivals.rates),
        input_tokens=_length_figures([each.input_tokens for each in lengths.requests]),
        output_tokens=_length_figures([each.output_tokens for each in lengths.requests]),
        prefix_hit_rate=round(hits / queries, 4) if queries else None,
        finished=finished,
        lengths_together=lengths.is_joint,
        seen_alone=lengths.alone,
        source=source,
    )


def _length_figures(lengths: Sequence[int]) -> LengthFigures:
    return LengthFigures(
        mean=round(float(np.mean(lengths)), 1),
        quantiles={f"p{quantile * 100:g}": int(np.quantile(lengths, quantile)) for quantile in QUANTILES},
    )
