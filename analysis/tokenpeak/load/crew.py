"""The worker processes of a job, from the parent's side: split an order, start together, merge what was observed.

`perf_counter` is one clock for all processes of a Linux machine, so their replies need no alignment.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from time import perf_counter
from typing import Any

from tokenpeak.errors import LoadError
from tokenpeak.load.network import PathWatch, Span
from tokenpeak.load.order import Order
from tokenpeak.load.stream import Reply
from tokenpeak.records import LoadHostHealth

LEAD_S = 0.05
"""From giving the order to the run's start: connections are opened in it."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What all processes saw of a run. `start` is in `perf_counter` seconds; replies are in order of their index."""

    replies: tuple[Reply, ...]
    lags: tuple[float, ...]
    start: float
    wall_s: float
    cpu_s: float
    busiest_share: float
    """CPU time of the busiest process ÷ wall-clock."""
    processes: int
    stopped: str | None
    segments: tuple[int, int, int, int] = (0, 0, 0, 0)
    """TCP segments received, of them out of order, sent, and of them sent again."""
    outages: tuple[Span, ...] = ()
    """When the path to the server was interrupted, in seconds after the start."""
    hosts: tuple[LoadHostHealth, ...] = ()
    """Each load host's part; empty when this machine offered all of it."""


Progress = dict[str, float | int | None]


def share(order: Order, part: int, parts: int) -> Order:
    """What process `part` of `parts` does of an order: every `parts`-th request, its part of each cap."""
    if parts == 1:
        return order

    def slice_of(total: int) -> int:
        return total // parts + (part < total % parts)

    return replace(
        order,
        asks=order.asks[part::parts] or order.asks,
        talks=order.talks[part::parts] or order.talks,
        due_s=None if order.due_s is None else order.due_s[part::parts],
        caps=tuple((offset, slice_of(cap)) for offset, cap in order.caps),
        max_in_flight=None if order.max_in_flight is None else max(1, slice_of(order.max_in_flight)),
        requests=None if order.requests is None else slice_of(order.requests),
        first=order.first + part * order.stride,
        stride=order.stride * parts,
        stop=None if order.stop is None else replace(order.stop, violations=max(1, slice_of(order.stop.violations))),
    )


class Crew:
    """Worker processes that are ready for orders."""

    def __init__(self, processes: int) -> None:
        self._workers: list[tuple[subprocess.Popen[bytes], Pipe]] = []
        for _ in range(processes):
            ours, theirs = socket.socketpair()
            process = subprocess.Popen(
                [sys.executable, "-m", "tokenpeak.load.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            theirs.close()
            self._workers.append((process, Pipe(ours.detach())))
        for _, pipe in self._workers:
            self._receive(pipe)

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self._workers)

    def _receive(self, pipe: Pipe) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = pipe.recv()
        except EOFError as error:
            raise LoadError(
                "A load process ended before its run did; its own message is above. "
                "If the machine is out of memory, ask for fewer requests at a time."
            ) from error
        return message

    def run(
        self, order: Order, on_progress: Callable[[Progress], None] = lambda _: None, *, start: float | None = None
    ) -> Observation:
        """Carry out an order with all processes together; raises LoadError when one of them dies."""
        start = perf_counter() + LEAD_S if start is None else start
        parts = len(self._workers)
        for part, (_, pipe) in enumerate(self._workers):
            pipe.send(("run", share(order, part, parts), start))
        with PathWatch(order.target.host, order.target.port) as path:
            results = self._collect(on_progress)
        found = [results[part] for part in range(parts)]
        begin = min(result["start"] for result in found)
        replies = [shifted(reply, result["start"] - begin) for result in found for reply in result["replies"]]
        return Observation(
            replies=tuple(sorted(replies, key=lambda reply: reply.index)),
            lags=tuple(lag for result in found for lag in result["lags"]),
            start=begin,
            wall_s=max(result["wall_s"] for result in found),
            cpu_s=sum(result["cpu_s"] for result in found),
            busiest_share=max(result["cpu_s"] / max(result["wall_s"], 1e-3) for result in found),
            processes=parts,
            stopped=next((result["stopped"] for result in found if result["stopped"]), None),
            segments=added(result["segments"] for result in found),
            outages=tuple((out - begin, back - begin) for out, back in path.outages()),
        )

    def _collect(self, on_progress: Callable[[Progress], None]) -> dict[int, dict[str, Any]]:
        """Each process's result, by its number."""
        results: dict[int, dict[str, Any]] = {}
        progress: dict[int, Progress] = {}
        pipes = [pipe for _, pipe in self._workers]
        try:
            while len(results) < len(pipes):
                for ready in wait(pipes):
                    part = pipes.index(ready)  # type: ignore[arg-type]
                    message = self._receive(pipes[part])
                    if message[0] == "result":
                        results[part] = message[1]
                    else:
                        progress[part] = message[1]
                        on_progress(together(list(progress.values())))
        except KeyboardInterrupt:
            for pipe in pipes:
                pipe.send(("stop", "interrupted"))
            raise
        return results

    def stop(self, why: str) -> None:
        """Cut the run that is under way short; for another thread than the one that waits for it."""
        for _, pipe in self._workers:
            try:
                pipe.send(("stop", why))
            except OSError:
                # That process has ended, which its run's own thread sees.
                continue

    def close(self) -> None:
        """End the processes."""
        for _, pipe in self._workers:
            try:
                pipe.send(("end",))
            except OSError:
                # It has ended already.
                continue
            finally:
                pipe.close()
        for process, _ in self._workers:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def crew(processes: int) -> Iterator[Crew]:
    """A crew that ends with the block."""
    workers = Crew(processes)
    try:
        yield workers
    finally:
        workers.close()


def added(parts: Iterable[Sequence[int]]) -> tuple[int, int, int, int]:
    """The segments of several as one's."""
    received, out_of_order, sent, sent_again = (sum(numbers) for numbers in zip(*parts, strict=True))
    return received, out_of_order, sent, sent_again


def together(parts: list[Progress]) -> Progress:
    """The progress of all processes as one."""
    medians = sorted(part["ttft_s_p50"] for part in parts if part["ttft_s_p50"] is not None)
    merged: Progress = {key: sum(part[key] or 0 for part in parts) for key in ("ended", "ok", "in_flight", "packets")}
    merged["ttft_s_p50"] = medians[len(medians) // 2] if medians else None
    return merged


def shifted(reply: Reply, by: float) -> Reply:
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
