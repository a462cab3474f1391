"""Worker pool: splits a load assignment among workers, starts them at one moment, merges what they observed.

Here they are processes of this machine, where `perf_counter` is one clock; remote.py has load hosts.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter

import polars as pl

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.http.metrics_page import Sample
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.workers.local import Channel, local_channel
from tokenpeak.loadgen.workers.messages import (
    Assign,
    Begin,
    FromWorker,
    Halt,
    HostShare,
    LoadObservation,
    LoadProgress,
    Prepared,
    Ready,
)
from tokenpeak.results.network import PathWatch
from tokenpeak.spec.load import ClosedLoad, LoadLevel, StagedLoad


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
    """One worker's observation, and its clock over the run."""

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
        first_answer_s=moved(reply.first_answer_s),
    )


@dataclass(frozen=True, kw_only=True)
class Offered:
    """A load that was offered: its requests, and what client and engine observed."""

    level: LoadLevel
    seen: LoadObservation
    samples: list[Sample]
    drained: bool | None
    table: pl.DataFrame
    began_at: datetime
    due: int | None = None
    """Requests that the level asks for, warm-up included; None where time bounds it."""


def from_due(level: LoadLevel) -> bool:
    """Whether latency counts from when a request was due: in an open loop."""
    return not (isinstance(level, ClosedLoad) or (isinstance(level, StagedLoad) and not level.open))


OnProgress = Callable[[LoadProgress], None]


class WorkerPool:
    """Workers that are ready for load assignments; `close` ends them. `lost` says which one failed and why."""

    lead_s = 0.05
    """From the start message to the start: the message travels, and connections are opened in it."""
    ready_s: float | None = None
    silence_s: float | None = None
    """The longest time to wait for a worker's next message; None: its process ends when it fails."""

    def __init__(self, processes: int) -> None:
        self.lost: LoadError | None = None
        self.processes = processes
        self._channels: list[Channel] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self._start_workers()
            undo.pop_all()

    def _start_workers(self) -> None:
        self._channels += [local_channel() for _ in range(self.processes)]
        for channel in self._channels:
            channel.expect(Prepared)

    def close(self) -> None:
        """End the workers."""
        for channel in self._channels:
            channel.hang_up()
        for channel in self._channels:
            channel.close()

    def run(
        self,
        assignment: LoadAssignment,
        on_progress: OnProgress = lambda _: None,
        *,
        await_start: Callable[[], float] | None = None,
    ) -> LoadObservation:
        """Carry out an assignment with all workers together; raises LoadError when one of them dies.

        `await_start` is called once all are ready and returns the moment of the start; without it they start at once.
        """
        with closing(PathWatch(assignment.target.host, assignment.target.port)) as path:
            parts, _ = self._offer(assignment, on_progress, await_start)
        merged = merge(parts)
        outages = tuple((out - merged.start, back - merged.start) for out, back in path.outages())
        return replace(merged, outages=outages)

    def _offer(
        self, assignment: LoadAssignment, on_progress: OnProgress, await_start: Callable[[], float] | None
    ) -> tuple[list[Part], float]:
        """Each worker's observation, without the share of one that was lost meanwhile; and when all had to start."""
        if self.lost is not None:
            raise self.lost
        channels = self._channels[: assignment.most_workers(len(self._channels))]
        certificates = self._certificates(assignment)
        for part, channel in enumerate(channels):
            channel.send(Assign(assignment=assignment.share(part, len(channels)), certificates=certificates))
        for channel in channels:
            channel.expect(Ready, self.ready_s)
        before = [self._clock(channel) for channel in channels]
        start = await_start() if await_start is not None else perf_counter() + self.lead_s
        for channel, clock in zip(channels, before, strict=True):
            channel.send(Begin(at_s=start + clock.offset_s))
        observations = self._collect(channels, on_progress)
        parts: list[Part] = []
        for channel, clock in zip(channels, before, strict=True):
            if channel in observations:
                after = clock if self.lost is not None else self._clock(channel)
                parts.append(Part(name=channel.name, seen=observations[channel], clock=mean_clock(clock, after)))
        if not parts:
            assert self.lost is not None
            raise self.lost
        return parts, start

    def _certificates(self, assignment: LoadAssignment) -> str | None:
        """Text of the file of certificates for a worker that cannot read it; None: it can."""
        return None

    def _clock(self, channel: Channel) -> WorkerClock:
        return WorkerClock()

    def _collect(self, channels: Sequence[Channel], on_progress: OnProgress) -> dict[Channel, LoadObservation]:
        """Each worker's observation; those of the others, cut short, when one is lost."""
        observations: dict[Channel, LoadObservation] = {}
        progress: dict[Channel, LoadProgress] = {}
        inbox: queue.Queue[tuple[Channel, FromWorker | LoadError]] = queue.Queue()

        def follow(channel: Channel) -> None:
            try:
                while True:
                    _, message = channel.receive(self.silence_s)
                    inbox.put((channel, message))
                    if isinstance(message, LoadObservation):
                        return
            except LoadError as error:
                inbox.put((channel, error))

        for channel in channels:
            threading.Thread(target=follow, args=(channel,), daemon=True).start()
        awaited = set(channels)
        while awaited:
            channel, message = inbox.get()
            if isinstance(message, LoadError):
                awaited.discard(channel)
                self._lose(message)
            elif isinstance(message, LoadObservation):
                awaited.discard(channel)
                observations[channel] = message
            elif isinstance(message, LoadProgress):
                progress[channel] = message
                on_progress(merge_progress(progress.values()))
        return observations

    def _lose(self, lost: LoadError) -> None:
        """A worker has failed, and with it the run."""
        raise lost

    def halt(self, why: str) -> None:
        """Cut the load that is under way short; for another thread than the one that waits for it."""
        for channel in self._channels:
            try:
                channel.send(Halt(why=why))
            except LoadError:
                # That worker has ended, which the thread that follows it sees.
                continue


STREAMS_PER_PROCESS = 1024


def processes_of_share(streams: int, hosts: int) -> int:
    """How many processes a machine needs for its share of so many requests in flight, divided among so many hosts."""
    share = -(-streams // hosts)
    return max(1, -(-share // STREAMS_PER_PROCESS))


def processes_borne(cores: int) -> int:
    """How many processes a machine bears: one a core, but for the core that everything else there has."""
    return max(1, cores - 1)


def most_streams(levels: Iterable[LoadLevel]) -> int:
    """The most requests in flight that any of the levels asks for."""
    return max(map(_streams, levels))


def _streams(level: LoadLevel) -> int:
    """The most requests in flight that a level asks for; 1 when it does not say."""
    if isinstance(level, StagedLoad):
        return max(stage.concurrency or 1 for stage in level.stages)
    return getattr(level, "concurrency", None) or getattr(level, "max_concurrency", None) or 1
