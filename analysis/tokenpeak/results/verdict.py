"""Verdict of a run: every reason why it is excluded from the ranking, with the value and the limit it broke. Pure.

The client's own lateness is held against what it would falsify: 10% of the median TTFT, but never less than 10 ms for
a dispatch. Loop lag is sampled by ticks that also fall between packets, so it overstates: its floor is 20 ms.

A run at a rate that the engine cannot keep up with is well measured, but its figures depend on how long it went on:
it shows that the rate is not sustainable, and is excluded from the ranking. Its reason is `overloaded`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tokenpeak.records import OVERLOADED, ClientHealth, EngineCounters, Reason, RunSummary, Verdict
from tokenpeak.results.closed_window import held_concurrency
from tokenpeak.results.run_summary import per_request, token_moments
from tokenpeak.results.steady_state import steady_state_of
from tokenpeak.spec.load import ClosedLoad, LoadLevel, OpenLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import ConversationWorkload, Workload

DISPATCH_FLOOR_S = 0.010
LOOP_LAG_FLOOR_S = 0.020
LATENESS_SHARE_OF_TTFT = 0.10
CPU_SHARE_LIMIT = 0.90
CONCURRENCY_SHARE = 0.90
CACHE_TOLERANCE = 0.05
TREND_LIMIT = 0.5
TREND_REQUESTS = 40
TOGETHER_SHARE = 0.01
TOGETHER_FLOOR_S = 0.050
CLOCK_FALL_LIMIT = 0.10
SLOWED_SHARE_LIMIT = 0.10
CLOCK_SAMPLES = 8
SEGMENTS_LOST_SHARE = 0.001
SEGMENTS_LOST_FLOOR = 5
GAP_SHARE = 0.5
DELIVERED_SHARE = 0.95
NETWORK_OUTAGE = "network_outage"
"""Code of the reason that the path to the server was cut during a run."""
OVERLAP = Reason(
    code="production_overlap",
    text="Production was started by somebody while the trial was under way, and ran beside the engine.",
)
RECOMPUTED_LIMIT = 0.01
"""Of the tokens computed, how many preemption may add; vLLM calls preemption normal unless it is frequent."""


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """Evidence of a verdict."""

    workload: Workload
    level: LoadLevel
    slo: Slo
    requests: pl.DataFrame
    summary: RunSummary
    client: ClientHealth
    busiest_share: float
    engine: EngineCounters | None = None
    engine_restarted: bool = False
    drained: bool | None = None
    stopped: str | None = None
    due: int | None = None
    """Requests that the level asks for, warm-up included; None where time bounds it."""


def judge(evidence: RunEvidence) -> Verdict:
    """Valid, or invalid with every reason that holds."""
    reasons = [
        reason
        for check in (
            _failures,
            _delivered,
            _dispatch,
            _loop_lag,
            _cpu,
            _began_together,
            _outages,
            _segments,
            _concurrency,
            _tokens,
            _prefix_cache,
            _engine,
            _enough_requests,
            _steady,
        )
        if (reason := check(evidence)) is not None
    ]
    return Verdict(status="invalid" if reasons else "valid", reasons=tuple(reasons))


def _lateness_limit(evidence: RunEvidence, floor_s: float) -> float:
    summary = evidence.summary
    # A pooling model has no first token: its latency is what lateness would falsify.
    return max(floor_s, LATENESS_SHARE_OF_TTFT * (summary.ttft_s.p50 or summary.latency_s.p50 or 0.0))


def _failures(evidence: RunEvidence) -> Reason | None:
    summary = evidence.summary
    if evidence.stopped is not None:
        return Reason(code="stopped", text=f"The run was stopped before its end: {evidence.stopped}.")
    if summary.requests_ok == 0:
        return Reason(
            code="no_requests",
            text=f"None of {summary.requests_sent} requests ended well: "
            + ", ".join(f"{count} {kind}" for kind, count in summary.failures.items()),
            value=0,
        )
    return None


def _delivered(evidence: RunEvidence) -> Reason | None:
    """A load that was smaller than asked for, though nothing stopped it.

    Of a conversation the turns after a failed answer are not sent, and each process ends its share within a chat.
    """
    due, sent = evidence.due, evidence.requests.height
    if due is None or evidence.stopped is not None:
        return None
    turns = evidence.requests["turn"].max()
    further = turns if isinstance(turns, int) else 0
    if isinstance(evidence.workload, ConversationWorkload):
        further = evidence.workload.turns - 1
    failed = evidence.requests.filter(pl.col("error").is_not_null()).height
    limit = DELIVERED_SHARE * due - further * (failed + (evidence.client.processes or 1))
    text = f"Only {sent} of the {due} requests that were due were sent, so the load was smaller than its level says."
    return Reason(code="too_few_sent", text=text, value=sent, limit=limit) if sent < limit else None


def _beyond(code: str, value: float | None, limit: float, text: str) -> Reason | None:
    """The reason that a value is beyond its limit; None where it is not, or is not known."""
    return Reason(code=code, text=text, value=value, limit=limit) if value is not None and value > limit else None


def _dispatch(evidence: RunEvidence) -> Reason | None:
    late, limit = evidence.client.dispatch_delay_s.p99, _lateness_limit(evidence, DISPATCH_FLOOR_S)
    text = f"Requests left up to {_ms(late)} (p99) after they were due; the limit is {_ms(limit)}."
    return _beyond("late_dispatch", late, limit, text)


def _loop_lag(evidence: RunEvidence) -> Reason | None:
    lag, limit = evidence.client.loop_lag_s.p99, _lateness_limit(evidence, LOOP_LAG_FLOOR_S)
    text = f"The client's event loop was up to {_ms(lag)} (p99) late; the limit is {_ms(limit)}."
    return _beyond("loop_lag", lag, limit, text)


def _ms(seconds: float | None) -> str:
    return f"{(seconds or 0.0) * 1e3:.1f} ms"


def _cpu(evidence: RunEvidence) -> Reason | None:
    share = evidence.busiest_share
    text = f"The busiest load process used {share:.0%} of a core; give it more processes or hosts."
    return _beyond("client_cpu", share, CPU_SHARE_LIMIT, text)


def _began_together(evidence: RunEvidence) -> Reason | None:
    """Throughput counts from the first host's start, so a host that begins late, or may have, falsifies it."""
    limit = max(TOGETHER_FLOOR_S, TOGETHER_SHARE * (evidence.summary.duration_s or 0.0))
    for host in evidence.client.hosts:
        apart = abs(host.began_late_s) + host.clock_error_s
        if apart > limit:
            text = (
                f"Load host {host.load_host} began {host.began_late_s * 1e3:.0f} ms after the moment agreed on, "
                f"by a clock known to {host.clock_error_s * 1e3:.1f} ms; the limit is {limit * 1e3:.0f} ms."
            )
            return Reason(code="not_together", text=text, value=apart, limit=limit)
    return None


def _outages(evidence: RunEvidence) -> Reason | None:
    """Time in which the path was interrupted while requests were in flight and none received a token.

    An engine that pauses leaves gaps common to all streams too; its machine's kernel answers meanwhile.
    """
    network = evidence.client.network
    if network is None or not network.outages_s:
        return None
    sent = evidence.requests.filter(pl.col("sent_s").is_not_null())
    begins, ends = sent["sent_s"].to_numpy(), sent["last_token_s"].fill_null(np.inf).to_numpy()
    moments = np.sort(token_moments(sent)[0])
    felt = [
        (begin, end)
        for begin, end in network.outages_s
        if np.any((begins <= end) & (ends >= begin)) and _longest_gap(moments, begin, end) >= GAP_SHARE * (end - begin)
    ]
    if not felt:
        return None
    silent = sum(end - begin for begin, end in felt)
    text = (
        f"The network to the server was interrupted {len(felt)} time{'s' if len(felt) > 1 else ''}, for "
        f"{silent:.1f} s in all, first {felt[0][0]:.1f} s after the run's start: no stream received anything, and the "
        "server's machine answered no probe."
    )
    return Reason(code=NETWORK_OUTAGE, text=text, value=silent, limit=0)


def _longest_gap(moments: NDArray[np.float64], begin: float, end: float) -> float:
    inside = moments[(moments > begin) & (moments < end)]
    return float(np.max(np.diff(np.concatenate([[begin], inside, [end]]))))


def _segments(evidence: RunEvidence) -> Reason | None:
    network = evidence.client.network
    if network is None:
        return None
    limit = max(SEGMENTS_LOST_FLOOR, SEGMENTS_LOST_SHARE * network.segments)
    share = network.segments_lost / max(network.segments, 1)
    text = (
        f"{network.segments_lost} of {network.segments} TCP segments ({share:.2%}) were lost on the way or came "
        f"out of order; the limit is {limit:.0f}. Look at the network between the load generator and the server."
    )
    return _beyond("segments_lost", network.segments_lost, limit, text)


def reached_concurrency(requests: pl.DataFrame) -> float:
    """Mean number of requests in flight between the first measured dispatch and the last dispatch of the run."""
    sent = requests.filter(pl.col("sent_s").is_not_null())
    measured = sent.filter(pl.col("phase") == "measured")
    if measured.is_empty():
        return 0.0
    begin, end = float(measured["sent_s"].min()), float(sent["sent_s"].max())  # type: ignore[arg-type]
    starts = sent["sent_s"].to_numpy()
    ends = sent["last_token_s"].fill_null(strategy="zero").to_numpy()
    ends = np.maximum(ends, starts)
    if end - begin <= 0:
        return float(np.sum((starts <= begin) & (ends >= begin)))
    return float(np.clip(np.minimum(ends, end) - np.maximum(starts, begin), 0, None).sum() / (end - begin))


def _concurrency(evidence: RunEvidence) -> Reason | None:
    level = evidence.level
    # A user who thinks keeps a slot without a request in flight.
    thinks = held_concurrency(level, evidence.workload) is None
    if not isinstance(level, ClosedLoad) or thinks or evidence.summary.requests_ok == 0:
        return None
    limit = CONCURRENCY_SHARE * min(level.concurrency, evidence.requests.height)
    reached = reached_concurrency(evidence.requests)
    text = f"On average {reached:.1f} of {level.concurrency} requests were in flight."
    is_reached = reached >= limit
    return None if is_reached else Reason(code="concurrency_not_reached", text=text, value=reached, limit=limit)


def _tokens(evidence: RunEvidence) -> Reason | None:
    ok = evidence.requests.filter(pl.col("error").is_null())
    odd = ok.filter(pl.col("events") > pl.col("output_tokens") + 1).height
    text = f"{odd} of {ok.height} requests sent more token events than usage counts tokens."
    return _beyond("token_counts", odd, 0, text)


def _prefix_cache(evidence: RunEvidence) -> Reason | None:
    rate = evidence.engine.prefix_cache_hit_rate if evidence.engine is not None else None
    expected = evidence.workload.intended_hit_rate
    if rate is None or expected is None or abs(rate - expected) <= CACHE_TOLERANCE:
        return None
    text = f"The prefix cache served {rate:.0%} of the prompt tokens where the workload means {expected:.0%}."
    return Reason(code="prefix_cache", text=text, value=rate, limit=expected)


def _engine(evidence: RunEvidence) -> Reason | None:
    if evidence.engine_restarted:
        return Reason(code="engine_restarted", text="The engine was started again during the run.")
    if evidence.drained is False:
        return Reason(code="not_drained", text="Requests of before were still on the engine when the run began.")
    preemptions = evidence.engine.preemptions if evidence.engine is not None else None
    recomputed = evidence.summary.recomputed_share(preemptions or 0)
    text = (
        f"The engine preempted {preemptions} requests and computed about {recomputed:.1%} of the tokens "
        f"again: its KV cache was too small for this load. The limit is {RECOMPUTED_LIMIT:.0%}."
    )
    return _beyond("preemptions", recomputed, RECOMPUTED_LIMIT, text)


def _enough_requests(evidence: RunEvidence) -> Reason | None:
    needed = evidence.slo.requests_needed()
    sent = evidence.summary.requests_sent or 0
    if sent >= needed:
        return None
    text = f"{sent} requests cannot show the SLO's percentile; it needs {needed}."
    return Reason(code="too_few_requests", text=text, value=sent, limit=needed)


def _steady(evidence: RunEvidence) -> Reason | None:
    """A run at one rate by the steady-state test; in all runs, a trend of the latency."""
    if isinstance(evidence.level, OpenLoad) and (reason := _overloaded(evidence)) is not None:
        return reason
    closed = isinstance(evidence.level, ClosedLoad)
    ok = per_request(evidence.requests, from_due=not closed).sort("due_s")
    if ok.height < TREND_REQUESTS:
        return None
    quarter = ok.height // 4
    # A pooling model's answers have no tokens; its latency is per token that it read.
    tokens = ok["output_tokens"].fill_null(ok["input_tokens"])
    latency = ok["latency_s"].to_numpy() / np.maximum(tokens.to_numpy(), 1)
    early, late = float(np.median(latency[:quarter])), float(np.median(latency[-quarter:]))
    ranks = np.argsort(np.argsort(latency)).astype(float)
    correlation = float(np.corrcoef(ranks, np.arange(latency.size))[0, 1]) if np.ptp(latency) > 0 else 0.0
    trend = (late - early) / early if early > 0 else 0.0
    if abs(trend) <= TREND_LIMIT or abs(correlation) < 0.5:
        return None
    change = f"{'rose' if trend > 0 else 'fell'} by {abs(trend):.0%} from the run's first quarter to its last"
    if trend > 0 and not closed:
        if isinstance(evidence.level, OpenLoad):
            # The test above says whether the queue grew; it may be too short a run for that.
            return None
        text = f"More requests came than the engine could serve, so the queue grew: latency per token {change}."
        return Reason(code=OVERLOADED, text=text, value=trend, limit=TREND_LIMIT)
    return Reason(code="not_steady", text=f"Latency per token {change}.", value=trend, limit=TREND_LIMIT)


def _overloaded(evidence: RunEvidence) -> Reason | None:
    state = steady_state_of(evidence.requests)
    if state.state != "overloaded" or state.growth is None:
        return None
    stayed = f"of 100 requests that came, {100 * state.growth:.0f} stayed."
    text = f"More requests came than the engine could serve, so the queue grew: {stayed}"
    return Reason(code=OVERLOADED, text=text, value=state.growth, limit=0)


def clock_reason(gpu: str, clocks_mhz: Sequence[float], slowed: Sequence[float]) -> Reason | None:
    """Why a GPU's clock speaks against a run, by its busy samples in order of time; None when nothing does.

    `slowed` is 1 for a sample at which the driver held it back for heat or its supply, and where the driver says so its
    word decides. Elsewhere the highest clock of the run's second half is held against that of its first: a healthy
    board under its power limit moves by a third between prefill and decode (1380 to 1980 MHz on an H100 SXM at 700 W)
    and comes back to the top all the time, one that grows too hot does not. The node's telemetry is joined after the
    load has ended, so the caller adds this to the verdict by `Verdict.with_reasons`.
    """
    if slowed:
        share = float(np.mean(slowed))
        text = f"{gpu} was slowed down by its driver, for heat or its power supply, in {share:.0%} of the samples."
        return _beyond("clock_throttled", share, SLOWED_SHARE_LIMIT, text)
    if len(clocks_mhz) < CLOCK_SAMPLES:
        return None
    early, late = (float(np.max(half)) for half in np.array_split(np.asarray(clocks_mhz), 2))
    fall = (early - late) / early if early > 0 else 0.0
    text = f"{gpu}'s highest clock fell from {early:.0f} to {late:.0f} MHz during the run: heat or a power limit."
    return _beyond("clock_throttled", fall, CLOCK_FALL_LIMIT, text)
