"""Observations of several workers as one: clocks aligned, replies in order, resources added."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import polars as pl

from tokenpeak.loadgen.http.metrics_page import Sample
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.workers.messages import HostShare, LoadObservation, LoadProgress
from tokenpeak.spec.workload import ClosedLoad, LoadLevel, StagedLoad


@dataclass(frozen=True, kw_only=True)
class WorkerClock:
    """A worker's clock: its time − ours, and by how much that may be wrong."""

    offset_s: float = 0.0
    error_s: float = 0.0


def mean_clock(before: WorkerClock, after: WorkerClock) -> WorkerClock:
    """A clock over the time between two readings of it."""
    drift = abs(after.offset_s - before.offset_s)
    return WorkerClock(
        offset_s=(before.offset_s + after.offset_s) / 2, error_s=max(before.error_s, after.error_s) + drift / 2
    )


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one worker observed, and its clock over the run."""

    name: str
    seen: LoadObservation
    clock: WorkerClock = WorkerClock()

    @property
    def began(self) -> float:
        """When it began, on our clock."""
        return self.seen.start - self.clock.offset_s


def merge(parts: Sequence[Part]) -> LoadObservation:
    """All workers' observations as one on this machine's clock."""
    begin = min(part.began for part in parts)
    seen = [part.seen for part in parts]
    replies = [_shifted(reply, part.began - begin) for part in parts for reply in part.seen.replies]
    received, out_of_order, sent, sent_again = (
        sum(numbers) for numbers in zip(*(part.segments for part in seen), strict=True)
    )
    return LoadObservation(
        replies=tuple(sorted(replies, key=lambda reply: reply.index)),
        lags=tuple(lag for part in seen for lag in part.lags),
        start=begin,
        wall_s=max(part.wall_s for part in seen),
        cpu_s=sum(part.cpu_s for part in seen),
        busiest_share=max(part.busiest_share for part in seen),
        processes=sum(part.processes for part in seen),
        stopped=next((part.stopped for part in seen if part.stopped), None),
        segments=(received, out_of_order, sent, sent_again),
        outages=tuple(
            (out_s + part.began - begin, back_s + part.began - begin)
            for part in parts
            for out_s, back_s in part.seen.outages
        ),
    )


def host_share(part: Part, start: float) -> HostShare:
    """A load host's part of a load that should have begun at `start`."""
    return HostShare(
        load_host=part.name,
        requests=len(part.seen.replies),
        processes=part.seen.processes,
        cpu_s=part.seen.cpu_s,
        began_late_s=part.began - start,
        clock_error_s=part.clock.error_s,
    )


def merge_progress(parts: Iterable[LoadProgress]) -> LoadProgress:
    """The progress of all workers as one."""
    parts = list(parts)
    medians = sorted(part.ttft_s_p50 for part in parts if part.ttft_s_p50 is not None)
    return LoadProgress(
        ended=sum(part.ended for part in parts),
        ok=sum(part.ok for part in parts),
        in_flight=sum(part.in_flight for part in parts),
        packets=sum(part.packets for part in parts),
        ttft_s_p50=medians[len(medians) // 2] if medians else None,
    )


def _shifted(reply: Reply, by: float) -> Reply:
    """A reply on a clock that began `by` seconds earlier."""
    if by == 0:
        return reply

    def moved(moment: float | None) -> float | None:
        return None if moment is None else moment + by

    return replace(
        reply,
        due_s=reply.due_s + by,
        sent_s=moved(reply.sent_s),
        first_byte_s=moved(reply.first_byte_s),
        first_token_s=moved(reply.first_token_s),
        last_token_s=moved(reply.last_token_s),
    )


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What came of one load: its requests, and what the client and the engine say of it."""

    level: LoadLevel
    seen: LoadObservation
    samples: list[Sample]
    drained: bool | None
    table: pl.DataFrame
    began_at: datetime


def from_due(level: LoadLevel) -> bool:
    """Whether latency counts from when a request was due: in an open loop."""
    return not (isinstance(level, ClosedLoad) or (isinstance(level, StagedLoad) and not level.open))
