"""Diagnosis: advice from a run observation, by rules over its series and the engine's counters, each with evidence."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from tokenpeak.predict.memory_plan import MemoryPlan
from tokenpeak.records import Config, RunRecord, Series

FULL, FREE = 0.95, 0.70
"""KV cache usage that counts as full, and as free."""

LONG = 0.3
"""Share of a run's samples that counts as long."""

STALL_RATIO = 5.0
"""A p99 gap between tokens this many times the median one is a stall."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to try, and the figures that suggest it."""

    rule: str
    text: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class RunObservation:
    """One run with what is known of its config; the columns hold the run's own samples, None left out."""

    config: Config
    run: RunRecord
    memory: MemoryPlan | None
    running: tuple[float, ...]
    waiting: tuple[float, ...]
    kv_usage: tuple[float, ...]

    @property
    def seats(self) -> int | None:
        """max_num_seqs: as set, or the engine's default where it is known."""
        value = self.config.flags.get("max_num_seqs")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        return self.memory.deployment.max_num_seqs if self.memory else None


def observe(config: Config, run: RunRecord, series: Series, memory: MemoryPlan | None) -> RunObservation:
    """The samples of `run` cut out of its trial's series, warm-up left out; none where its window was not kept."""
    start, end = run.window_s or (math.inf, math.inf)

    def column(name: str) -> tuple[float, ...]:
        values = series.columns.get(name, ())
        inside = zip(series.t_s, values, strict=False)
        return tuple(value for t, value in inside if start <= t <= end and value is not None)

    return RunObservation(
        config=config,
        run=run,
        memory=memory,
        running=column("requests_running"),
        waiting=column("requests_waiting"),
        kv_usage=column("kv_cache_usage"),
    )


Words = tuple[str, str]
"""What to try, and the figures that suggest it."""


def _kv_full(seen: RunObservation) -> Words | None:
    long = sum(value > FULL for value in seen.kv_usage) / max(1, len(seen.kv_usage))
    if long < LONG:
        return None
    return (
        "Lower max_num_seqs, or give the KV cache more: gpu_memory_utilization up, kv_cache_dtype fp8, more GPUs",
        f"KV cache above {FULL:.0%} in {long:.0%} of the samples, {max(seen.kv_usage):.0%} at most",
    )


def _preempted(seen: RunObservation) -> Words | None:
    count = seen.run.engine.preemptions if seen.run.engine else None
    if not count:
        return None
    return (
        "Lower max_num_seqs or raise gpu_memory_utilization: what is preempted is computed again from its start",
        f"{count} preemptions in {seen.run.summary.requests_sent} requests",
    )


def _queues_with_kv_free(seen: RunObservation) -> bool:
    if not (seen.running and seen.waiting and seen.kv_usage and seen.seats):
        return False
    return fmean(seen.waiting) >= 1 and max(seen.kv_usage) <= FREE


def _seats_full(seen: RunObservation) -> Words | None:
    """Running at the limit with requests waiting and KV cache free: the limit itself is in the way."""
    if not _queues_with_kv_free(seen) or max(seen.running) < 0.95 * (seen.seats or 0):
        return None
    return (
        f"Raise max_num_seqs above {seen.seats}",
        f"{fmean(seen.waiting):.1f} requests waiting in the mean with {max(seen.running):.0f} running, "
        f"KV cache {max(seen.kv_usage):.0%} full at most",
    )


def _prompts_queue(seen: RunObservation) -> Words | None:
    """Waiting with seats and KV cache free: prompts wait for their share of the step's tokens."""
    if not _queues_with_kv_free(seen) or max(seen.running) >= 0.95 * (seen.seats or 0):
        return None
    return (
        "For sooner first tokens raise max_num_batched_tokens: prompts wait although sequences and KV cache are free",
        f"{fmean(seen.waiting):.1f} requests waiting in the mean, {max(seen.running):.0f} of {seen.seats} running, "
        f"KV cache {max(seen.kv_usage):.0%} full at most",
    )


def _always_low(seen: RunObservation) -> Words | None:
    if not (seen.running and seen.seats and seen.waiting):
        return None
    if max(seen.running) > 0.25 * seen.seats or max(seen.waiting) > 0:
        return None
    return (
        "Offer more requests to see what this config can do; for this load "
        f"max_num_seqs = {max(1, seen.seats // 4)} would do and leave more memory to the KV cache",
        f"{max(seen.running):.0f} of {seen.seats} sequences running at most, none waiting",
    )


def _decode_starved(seen: RunObservation) -> Words | None:
    gaps = seen.run.summary.itl_s
    if not gaps.p50 or not gaps.p99 or gaps.p99 < STALL_RATIO * gaps.p50:
        return None
    return (
        "For steadier tokens lower max_num_batched_tokens (chunked prefill on): "
        "a long prompt then stalls the others for less time",
        f"p99 gap between tokens {gaps.p99 * 1000:.0f} ms, {gaps.p99 / gaps.p50:.0f} times the median",
    )


def _needlessly_eager(seen: RunObservation) -> Words | None:
    memory = seen.memory
    if memory is None or not memory.deployment.eager or memory.deployment.gpu.vendor == "cpu":
        return None
    with_graphs = replace(memory, deployment=replace(memory.deployment, eager=False))
    if not with_graphs.fits:
        return None
    return (
        "Try without enforce_eager: graphs take the host's launches out of each step",
        f"with graphs {with_graphs.kv_cache_tokens:,} of {memory.kv_cache_tokens:,} tokens are left",
    )


RULES: dict[str, Callable[[RunObservation], Words | None]] = {
    "kv_cache_full": _kv_full,
    "preemptions": _preempted,
    "queueing_with_kv_free": _seats_full,
    "prompts_queue": _prompts_queue,
    "running_low": _always_low,
    "prefill_starves_decode": _decode_starved,
    "eager_where_graphs_fit": _needlessly_eager,
}


def diagnose(config: Config, run: RunRecord, series: Series, memory: MemoryPlan | None = None) -> tuple[Advice, ...]:
    """What the run suggests, in the order of RULES; a rule whose figures were not recorded says nothing."""
    seen = observe(config, run, series, memory)
    return tuple(
        Advice(rule=name, text=words[0], evidence=words[1])
        for name, rule in RULES.items()
        if (words := rule(seen)) is not None
    )
