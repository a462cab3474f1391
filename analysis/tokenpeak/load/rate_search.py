"""The highest rate within an SLO, searched for on a server: `max_rate` says which rate, this offers it and looks.

A probe that is too short hides an overload: its backlog has not yet grown to the limit. So a probe's delays are looked
at as they grew, and where they grew beyond doubt they are projected to the length at which an overload of the search's
tolerance would have spent the limit.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from tokenpeak.errors import LoadError
from tokenpeak.load.max_rate import Found, Probe, Search, Try, growth, percentile_spread
from tokenpeak.load.offered import Offered
from tokenpeak.load.order import Stop
from tokenpeak.load.summary import gaps_s, per_request, summarize
from tokenpeak.records import MaxRate, RateProbe
from tokenpeak.workload import ClosedLoad, LoadLevel, MaxRateLoad, OpenLoad, Slo

WARMUP_SHARE = 0.1
START_REQUESTS = 5
START_SHARE = 4.0
"""Without a start, a search begins at this many times the rate of requests sent one after another."""
BEYOND_DOUBT = 3.0
"""Standard errors by which delays must have grown: one quiet probe in a hundred passes for that."""
SPENT_TWICE = 2.0
"""Delays are projected to where an overload of the tolerance would have spent the limit this many times."""

Offer = Callable[[LoadLevel, Stop | None], Offered]


@dataclass(frozen=True, kw_only=True)
class RateFound:
    """How a search ended: the longest probe that held, and the requests of all."""

    max_rate: MaxRate
    best: Offered
    table: pl.DataFrame


def search_rate(level: MaxRateLoad, seed: int, offer: Offer, *, origin_s: float) -> RateFound:
    """Probe rates until the search has its answer. `origin_s`: the trial's zero on the `perf_counter` clock."""
    begin = time.perf_counter()
    slo = level.max_rate_under
    search = Search(
        start_per_s=level.start_rate_per_s or _start(slo, offer),
        tolerance=level.tolerance,
        confidence=level.confidence,
        max_probes=level.max_probes,
    )
    probes: list[Probe] = []
    shown: list[RateProbe] = []
    offers: list[Offered] = []
    random = np.random.default_rng(seed)
    while isinstance(step := search.step(probes, out_of_budget=_too_late(level, probes, begin)), Try):
        number = level.confirming_requests if step.confirming else level.screening_requests
        probe_level = OpenLoad(
            rate_per_s=step.rate_per_s,
            requests=number,
            warmup_requests=int(number * WARMUP_SHARE),
            arrivals=level.arrivals,
            burstiness=level.burstiness,
            max_concurrency=level.max_concurrency,
        )
        offered = offer(probe_level, _stop(slo, number))
        probe, seen = _probe(step.rate_per_s, offered, level, random)
        offers.append(offered)
        probes.append(probe)
        shown.append(seen)
    return _found(step, probes, shown, offers, begin=begin, origin_s=origin_s)


def _start(slo: Slo, offer: Offer) -> float:
    """A rate to begin with: some times that of requests sent one after another."""
    offered = offer(ClosedLoad(concurrency=1, requests=START_REQUESTS), None)
    summary = summarize(offered.table, slo, from_due=False)
    if summary.latency_s.mean is None:
        kinds = ", ".join(summary.failures) or "none sent"
        raise LoadError(f"None of the first {START_REQUESTS} requests ended well ({kinds}); no rate can be searched.")
    return START_SHARE / summary.latency_s.mean


def _found(
    found: Found,
    probes: list[Probe],
    shown: list[RateProbe],
    offers: list[Offered],
    *,
    begin: float,
    origin_s: float,
) -> RateFound:
    best = max(
        range(len(probes)),
        key=lambda number: (probes[number].holds, probes[number].requests, probes[number].rate_per_s),
    )
    max_rate = MaxRate(
        rate_per_s=found.rate_per_s,
        low_per_s=found.low_per_s,
        high_per_s=found.high_per_s,
        confidence=found.confidence,
        ended=found.ended,
        probes=tuple(shown),
        started_s=begin - origin_s,
        duration_s=time.perf_counter() - begin,
    )
    table = pl.concat(
        offered.table if number == best else offered.table.with_columns(phase=pl.lit("probe"))
        for number, offered in enumerate(offers)
    )
    return RateFound(max_rate=max_rate, best=offers[best], table=table)


def _too_late(level: MaxRateLoad, probes: list[Probe], begin: float) -> bool:
    """Whether the next probe, if it takes as long as a confirming one at the last rate, would end after the budget."""
    if not probes:
        return False
    last = level.confirming_requests * (1 + WARMUP_SHARE) / probes[-1].rate_per_s
    return time.perf_counter() - begin + last > level.budget_s


def _stop(slo: Slo, number: int) -> Stop:
    """When a probe is lost: more requests over a limit than three times what its percentile allows."""
    limits: dict[str, float] = {}
    allowed = 0
    for metric, percentile, limit in slo.limits():
        share = 1 - int(percentile.removeprefix("p")) / 100
        allowed = max(allowed, int(3 * share * number) + 3)
        limits[metric] = max(limit, limits.get(metric, 0.0))
    return Stop(violations=allowed, ttft_s=limits.get("ttft_s"), latency_s=limits.get("latency_s"))


def _probe(
    rate_per_s: float, offered: Offered, level: MaxRateLoad, random: np.random.Generator
) -> tuple[Probe, RateProbe]:
    """What a probe showed, for the search and for the record."""
    slo = level.max_rate_under
    summary = summarize(offered.table, slo, from_due=True)
    ok = per_request(offered.table, from_due=True).sort("due_s")
    stopped = offered.seen.stopped is not None
    ratio, spread = 0.0, 0.0
    metrics: dict[str, float] = {}
    for metric, percentile, limit in slo.limits():
        percent = float(percentile.removeprefix("p"))
        values = gaps_s(ok) if metric == "itl_s" else ok[metric].drop_nulls().to_numpy()
        if not values.size and ok.height:
            # Answers of one token have no TPOT and no gaps, so none that is too long.
            continue
        # A failed request is one that took for ever.
        failed = np.full(summary.requests_failed or 0, np.inf)
        together = np.concatenate([values, failed])
        value = float(np.percentile(together, percent, method="higher")) if together.size else np.inf
        if np.isfinite(value):
            metrics[f"{metric}_{percentile}"] = value
        error = percentile_spread(values[:20_000], percent, random)
        if metric in ("ttft_s", "latency_s"):
            due = ok.filter(pl.col(metric).is_not_null())["due_s"].to_numpy()
            slope, slope_error = growth(due, values)
            horizon_s = SPENT_TWICE * limit / level.tolerance
            if slope > BEYOND_DOUBT * slope_error and due.size:
                value += slope * max(0.0, horizon_s - float(due[-1] - due[0]))
                error = max(error, slope_error / slope)
        if value / limit > ratio:
            ratio, spread = value / limit, error
    if stopped:
        # Its percentiles are of the requests that were lucky to end; it missed by at least the share that stopped it.
        ratio = max(ratio, 2.0)
        spread = max(spread, 0.2)
    probe = Probe(
        rate_per_s=rate_per_s,
        requests=summary.requests_sent or 0,
        ratio=ratio,
        spread=spread,
        achieved_per_s=None if stopped else summary.request_per_s,
    )
    shown = RateProbe(
        rate_per_s=rate_per_s,
        requests=summary.requests_sent,
        holds=probe.holds,
        ratio=ratio if np.isfinite(ratio) else None,
        spread=spread,
        achieved_per_s=summary.request_per_s,
        goodput_request_per_s=summary.goodput_request_per_s,
        stopped_early=stopped,
        metrics=metrics,
    )
    return probe, shown
