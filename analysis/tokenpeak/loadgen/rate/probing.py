"""Search for the sustainable rate on a server: `sustainable_rate` chooses each probe, this offers and reads it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import model_validator

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.rate.probe import ProbeAsked, ProbeSeen
from tokenpeak.loadgen.rate.queue import NEVER, WARMUP_SHARE, Numbers, Timings
from tokenpeak.loadgen.rate.sustainable import SustainableRateSearch
from tokenpeak.loadgen.workers.pool import Offered
from tokenpeak.ranking.intervals import share
from tokenpeak.records import MaxRate, RateProbe
from tokenpeak.results.run_summary import gaps_s, per_request, summarize
from tokenpeak.results.steady_state import percentile_intervals, steady_state_of
from tokenpeak.spec.load import ClosedLoad, LoadLevel, MaxRateLoad, OpenLoad
from tokenpeak.spec.slo import Slo

RAMP_STEPS = 16
"""A first step of a sixteenth of the slots lets as many workers share them."""

Offer = Callable[[LoadLevel], Offered]


class SaturationLoad(ClosedLoad):
    """A closed loop that ends by its requests or by its time, whichever comes first; its slots begin within a ramp."""

    ramp_s: float = 0.0

    @property
    def caps(self) -> tuple[tuple[float, int], ...]:
        """How many may be in flight from when on."""
        steps = min(RAMP_STEPS, self.concurrency) if self.ramp_s else 1
        return tuple((self.ramp_s * step / steps, -(-self.concurrency * (step + 1) // steps)) for step in range(steps))

    @model_validator(mode="after")
    def _bounded(self) -> "SaturationLoad":
        return self


@dataclass(frozen=True, kw_only=True)
class RateFound:
    """How a search ended: the longest probe that held, and the requests of all."""

    max_rate: MaxRate
    best: Offered
    table: pl.DataFrame


def search_rate(level: MaxRateLoad, offer: Offer, *, origin_s: float) -> RateFound:
    """Probe until the search has its answer. `origin_s`: the trial's zero on the `perf_counter` clock."""
    begin = time.perf_counter()
    slo = level.max_rate_under
    search = SustainableRateSearch(
        limits=slo.limits(),
        arrivals=level.arrivals,
        burstiness=level.burstiness,
        budget_s=level.budget_s,
    )
    probes: list[ProbeSeen] = []
    shown: list[RateProbe] = []
    offers: list[Offered] = []
    while isinstance(step := search.step(probes), ProbeAsked):
        began = time.perf_counter()
        offered = offer(_level(step, level))
        last_s = offered.table["last_token_s"].max()
        took_s = max(time.perf_counter() - began, float(last_s or 0.0))  # type: ignore[arg-type]
        probe = _seen(step, offered, slo, took_s)
        offers.append(offered)
        probes.append(probe)
        shown.append(_shown(search, probe, offered, slo))
    return _found(step, shown, offers, begin=begin, origin_s=origin_s)


def _level(asked: ProbeAsked, level: MaxRateLoad) -> LoadLevel:
    if asked.concurrency is not None:
        return SaturationLoad(
            concurrency=asked.concurrency, requests=asked.requests, duration_s=asked.duration_s, ramp_s=asked.ramp_s
        )
    warmup = int(asked.requests * WARMUP_SHARE)
    return OpenLoad(
        rate_per_s=asked.rate_per_s,
        requests=asked.requests - warmup,
        warmup_requests=warmup,
        arrivals=level.arrivals,
        burstiness=level.burstiness,
        max_concurrency=level.max_concurrency,
    )


def _seen(asked: ProbeAsked, offered: Offered, slo: Slo, duration_s: float) -> ProbeSeen:
    """The probe as the search sees it."""
    opened = asked.rate_per_s is not None
    # An open loop's request counts from when it was due: what the client's cap held back waited all the same.
    began = "due_s" if opened else "sent_s"
    ok = offered.table.filter(pl.col("error").is_null()).sort(began)
    if ok.is_empty() and not opened:
        kinds = ", ".join(summarize(offered.table, slo, from_due=False).failures) or "none sent"
        raise LoadError(
            f"None of the first {offered.table.height} requests ended well ({kinds}); no rate can be searched."
        )
    limited = {percentile for metric, percentile, _ in slo.limits() if metric == "itl_s"}
    gaps = gaps_s(per_request(offered.table, from_due=opened)) if limited else np.empty(0)
    return ProbeSeen(
        asked=asked,
        timings=Timings(
            due_s=ok[began].to_numpy(),
            # A pooling model has no first token: its answers come whole.
            first_s=ok["first_token_s"].fill_null(ok["last_token_s"]).to_numpy(),
            last_s=ok["last_token_s"].to_numpy(),
            tokens=ok["output_tokens"].fill_null(ok["events"]).cast(pl.Float64).to_numpy(),
            answer_shares=_answer_shares(ok),
        ),
        failed=offered.table.height - ok.height,
        duration_s=duration_s,
        gaps={name: float(np.quantile(gaps, share(name))) for name in limited if gaps.size},
    )


def _answer_shares(ok: pl.DataFrame) -> Numbers:
    """How far through a request's tokens its answer began, in 0..1 by time; NEVER where only thoughts came."""
    first, last = pl.col("first_token_s"), pl.col("last_token_s")
    spans = pl.when(last > first).then((pl.col("first_answer_s") - first) / (last - first)).otherwise(0.0)
    answered = pl.col("first_answer_s").is_not_null()
    return ok.select(pl.when(answered).then(spans).otherwise(NEVER)).to_series().to_numpy()


def _shown(search: SustainableRateSearch, probe: ProbeSeen, offered: Offered, slo: Slo) -> RateProbe:
    """The probe as it is recorded."""
    asked, timings = probe.asked, probe.timings
    summary = summarize(offered.table, slo, from_due=asked.rate_per_s is not None)
    ratio = search.observed_ratio(probe)
    state = steady_state_of(offered.table) if asked.rate_per_s is not None else None
    metrics = {
        f"{metric}_{percentile}": value
        for metric, percentile, _ in slo.limits()
        if (value := getattr(getattr(summary, metric), percentile)) is not None
    }
    achieved = probe.completions_per_s()[0] if timings.due_s.size else None
    return RateProbe(
        rate_per_s=asked.rate_per_s if asked.rate_per_s is not None else achieved or 0.0,
        concurrency=asked.concurrency,
        requests=probe.failed + timings.due_s.size,
        holds=asked.rate_per_s is not None and ratio <= 1 and state is not None and state.state != "overloaded",
        ratio=ratio if np.isfinite(ratio) else None,
        spread=search.observed_spread(probe),
        achieved_per_s=achieved if asked.concurrency is not None else summary.request_per_s,
        goodput_request_per_s=summary.goodput_request_per_s,
        stopped_early=offered.seen.stopped is not None,
        metrics=metrics,
        percentile_intervals=percentile_intervals(offered.table, slo, state) if state else {},
        state=state.state if state else None,
        duration_s=probe.duration_s,
    )


def _found(
    answer: MaxRate, shown: Sequence[RateProbe], offers: Sequence[Offered], *, begin: float, origin_s: float
) -> RateFound:
    best = max(
        range(len(shown)),
        key=lambda number: (
            shown[number].concurrency is None,
            shown[number].holds,
            shown[number].requests,
            shown[number].rate_per_s,
        ),
    )
    record = {"probes": tuple(shown), "started_s": begin - origin_s, "duration_s": time.perf_counter() - begin}
    max_rate = answer.model_copy(update=record)
    before = np.cumsum([0, *(offered.table.height for offered in offers)])
    table = pl.concat(
        offered.table.with_columns(
            request_index=pl.col("request_index") + int(before[number]),
            phase=pl.col("phase") if number == best else pl.lit("probe"),
        )
        for number, offered in enumerate(offers)
    )
    return RateFound(max_rate=max_rate, best=offers[best], table=table)
