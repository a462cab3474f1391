"""Load generator: one run in one process, which request goes out when, on which connection.

Closed and open loop are one queue with a cap. In a closed loop the next request is due as soon as fewer than the cap
are in flight. In an open loop it is due by its timetable, and waits in the queue only for the cap.
"""

import asyncio
import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable
from time import perf_counter, sleep

from tokenpeak.loadgen.assignment import LoadAssignment, RequestSource, payload
from tokenpeak.loadgen.http.connection import RESPONSE_LIMIT_BYTES, Connection, Exchange
from tokenpeak.loadgen.http.pool import SPARE_CONNECTIONS, ConnectionPool, connect_failure
from tokenpeak.loadgen.http.pooled_answer import read_pooled
from tokenpeak.loadgen.http.stream import Reply, read
from tokenpeak.loadgen.workers.messages import LoadProgress

TICK_S = 0.01
OPEN_AHEAD_AT_MOST = 4096
PAUSE_AFTER_FAILURE_S = 0.25
COALESCE_ABOVE_PER_S = 5000.0
COALESCE_S = 0.001
"""Above this many packets a second the loop looks for packets every millisecond instead of waking for each one.

Waking costs more than reading (measured at 12,000 tok/s: 20 µs of CPU a token waking for each, 11 so); a packet is then
stamped up to a millisecond late. Below, every packet wakes the loop and is stamped within about 0.1 ms.
"""
RAW_BYTES_KEPT = 320 * 1024 * 1024
"""Packets of ended requests are read after the run; beyond this many bytes the oldest are read during it."""
IN_FLIGHT_LIMIT_BYTES = 1 << 30
"""The most that all responses in flight may hold together: 1,024 streams of 2,000 tokens hold 0.8 GB."""
_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


class Alarm:
    """Calls `callback` once at the moment given to `set`, which replaces an earlier one.

    uvloop rounds its timers to whole milliseconds. A Linux timerfd wakes the loop through a file descriptor within the
    kernel's slack of some tens of microseconds; elsewhere the loop's own timer has to do.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._descriptor = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._ring)

    def set(self, moment: float) -> None:
        """Ring at `moment`, in `perf_counter` seconds; a moment that has passed rings at once."""
        delay = max(moment - perf_counter(), 1e-6)
        if self._descriptor >= 0:
            nanoseconds = int(delay * 1e9)
            value = _Timespec(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
            self._libc.timerfd_settime(self._descriptor, 0, ctypes.byref(_Itimerspec(_Timespec(), value)), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(delay, self._callback)

    def _ring(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            # Set again after it had expired: the new moment is still to come.
            return
        self._callback()

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


class LoadGenerator:
    """A run under way. `await run()` gives its replies; `progress()` says how far it is."""

    def __init__(self, assignment: LoadAssignment, start: float, loop: asyncio.AbstractEventLoop) -> None:
        self.assignment = assignment
        self.start = start
        self.lags: list[float] = []
        self.stopped: str | None = None
        self._loop = loop
        self._done: asyncio.Future[None] = loop.create_future()
        self._alarm = Alarm(loop, self._on_alarm)
        self._pool = ConnectionPool(assignment.target, self)
        self._busy: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._source = RequestSource(assignment)
        self._queue: deque[Exchange] = deque()
        self._pausing = 0
        self._in_flight = 0
        self._ended: deque[Exchange] = deque()
        self._raw_bytes = 0
        self._replies: list[Reply] = []
        self._count_ended = 0
        self._count_ok = 0
        self._packets = 0
        self._ttfts: deque[float] = deque(maxlen=200)
        self._ticks = 0
        self._packets_ended = 0
        self._packets_watched = (0, start)
        self._coalescing = False

    @property
    def segments(self) -> tuple[int, int, int, int]:
        """Of all connections that have ended: segments received, of them out of order, sent, sent again."""
        total = self._pool.segments
        return total.received, total.out_of_order, total.sent, total.sent_again

    # When it is sent

    async def run(self) -> list[Reply]:
        """Offer the load from `start` on, wait until everything has ended, and read what came."""
        assignment = self.assignment
        cap = self._source.cap if self._source.cap is not None else SPARE_CONNECTIONS
        await self._pool.open_ahead(min(cap, assignment.requests or cap, OPEN_AHEAD_AT_MOST))
        # Connecting may have taken longer than was allowed for: the run then starts late, not with a burst.
        self.start = self._source.start = max(self.start, perf_counter())
        self._alarm.set(self.start)
        tick = self._loop.create_task(self._tick())
        try:
            await self._done
        finally:
            tick.cancel()
            self._alarm.close()
            self._pool.close()
            for connection in self._busy:
                connection.close()
            for task in list(self._tasks):
                task.cancel()
        while self._ended:
            self._read_oldest()
        return self._replies

    def _on_alarm(self) -> None:
        """Something is due: a request of the timetable, a later turn of a conversation, or another cap."""
        self._queue.extend(self._source.due(perf_counter()))
        self._pump()

    def _pump(self) -> None:
        """Send all that is due, as far as the cap allows, and set the alarm for what comes next."""
        source = self._source
        closed = self.assignment.due_s is None
        while source.cap is None or self._in_flight + self._pausing < source.cap:
            if self._queue:
                exchange = self._queue.popleft()
            elif closed and not source.exhausted() and perf_counter() >= self.start:
                # Think time belongs to a conversation's user: the slot is taken while that user thinks.
                if source.later and source.cap is not None and self._in_flight + len(source.later) >= source.cap:
                    break
                exchange = source.take(perf_counter())
            else:
                break
            self._dispatch(exchange)
        if self._in_flight == 0 and not self._queue and not source.later and source.exhausted():
            if not self._done.done():
                self._done.set_result(None)
            return
        moment = source.next_moment()
        if moment is not None:
            self._alarm.set(moment)

    def _dispatch(self, exchange: Exchange) -> None:
        self._in_flight += 1
        connection = self._pool.take()
        if connection is not None:
            self._busy.add(connection)
            connection.send(exchange, payload(self.assignment, exchange))
        else:
            self._spawn(self._connect_and_send(exchange))
        if self.assignment.due_s is not None:
            for _ in range(self._pool.spares_wanted()):
                self._spawn(self._pool.open_spare())

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished_task)

    def _finished_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._done.done():
            self._done.set_exception(error)

    async def _connect_and_send(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(self.assignment.stall_s):
                connection = await self._pool.connect()
        except OSError as error:
            exchange.error = connect_failure(error)
            exchange.detail = str(error)
            exchange.ended = perf_counter()
            self._account(exchange)
            return
        self._busy.add(connection)
        connection.send(exchange, payload(self.assignment, exchange))

    # What came back

    def ended(self, connection: Connection, exchange: Exchange) -> None:
        """An exchange has ended: its connection serves the next one."""
        self._busy.discard(connection)
        if connection.usable:
            self._pool.put(connection)
        self._account(exchange)

    def gone(self, connection: Connection) -> None:
        """The server closed an idle connection."""
        self._pool.forget(connection)

    def resend(self, exchange: Exchange) -> None:
        """The kept connection was stale: the request goes out on a new one."""
        self._busy = {connection for connection in self._busy if connection.exchange is not None}
        self._spawn(self._connect_and_send(exchange))

    def _account(self, exchange: Exchange) -> None:
        self._in_flight -= 1
        self._count_ended += 1
        ok = exchange.error is None and exchange.status == 200
        if ok:
            self._count_ok += 1
            self._packets += len(exchange.packets)
            if self.assignment.results is None:
                # The response's head, usage and end are packets of their own on most servers; a hint is enough here.
                self._ttfts.append(exchange.times[min(1, len(exchange.times) - 1)] - (exchange.sent or exchange.due))
        if ok and (following := self._source.following(exchange)) is not None:
            self._queue.append(following)
        self._ended.append(exchange)
        self._packets_ended += len(exchange.packets)
        self._raw_bytes += exchange.weigh()
        while self._raw_bytes > RAW_BYTES_KEPT:
            self._read_oldest()
        if not ok and self.assignment.due_s is None and self.stopped is None:
            # A server that refuses at once must not turn a closed loop into a flood.
            self._pausing += 1
            self._loop.call_later(PAUSE_AFTER_FAILURE_S, self._resume)
            if self._count_ok == 0 and self._count_ended >= max(16, 2 * (self._source.cap or 1)):
                self.stop("every request failed")
        self._pump()

    def _resume(self) -> None:
        self._pausing -= 1
        self._pump()

    def _read_oldest(self) -> None:
        exchange = self._ended.popleft()
        self._raw_bytes -= exchange.size
        if (results := self.assignment.results) is not None:
            self._replies.append(read_pooled(exchange, self.start, results=results))
            return
        by_events = self.assignment.events_for_usage
        self._replies.append(read(exchange, self.start, events_for_usage=by_events))

    # Watching

    async def _tick(self) -> None:
        """Notice the loop's own lateness, stalled streams and the deadline."""
        while True:
            expected = perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            now = perf_counter()
            if now >= self.start:
                self.lags.append(max(0.0, now - expected))
            self._ticks += 1
            if self._ticks % 25 == 0:
                self._watch(now)

    def _watch(self, now: float) -> None:
        assignment = self.assignment
        self._choose_pace(now)
        overdue = now > self.start + assignment.deadline_s
        if overdue:
            self.stop("the run's deadline passed")
        if sum(c.exchange.weigh() for c in self._busy if c.exchange is not None) > IN_FLIGHT_LIMIT_BYTES:
            self.stop(f"the responses in flight were longer than {IN_FLIGHT_LIMIT_BYTES >> 20} MiB together")
        for connection in list(self._busy):
            exchange = connection.exchange
            if exchange is None:
                self._busy.discard(connection)
            elif exchange.size > RESPONSE_LIMIT_BYTES:
                connection.refuse(exchange)
            elif overdue:
                connection.give_up("deadline", f"still running after the run's deadline of {assignment.deadline_s:g} s")
            elif now - (exchange.times[-1] if exchange.times else (exchange.sent or exchange.due)) > assignment.stall_s:
                connection.give_up("stalled", f"no byte came for {assignment.stall_s:g} s")

    def _choose_pace(self, now: float) -> None:
        """Coalesce packets or not, by how many came since the last look."""
        flowing = sum(len(c.exchange.packets) for c in self._busy if c.exchange is not None)
        before, at = self._packets_watched
        packets = self._packets_ended + flowing
        self._packets_watched = (packets, now)
        rate = (packets - before) / max(now - at, 1e-3)
        if rate > COALESCE_ABOVE_PER_S and not self._coalescing:
            self._coalescing = True
            self._loop.call_soon(self._breathe)
        elif rate < COALESCE_ABOVE_PER_S / 2:
            self._coalescing = False

    def _breathe(self) -> None:
        """Let packets gather before the loop looks for them: with a callback always pending, it never waits itself."""
        if self._coalescing and not self._done.done():
            sleep(COALESCE_S)
            self._loop.call_soon(self._breathe)

    def stop(self, why: str) -> None:
        """Send nothing more; what is queued was due and counts as failed, what is in flight is cut."""
        if self.stopped is not None:
            return
        self.stopped = why
        for exchange in [*self._queue, *self._source.stop()]:
            exchange.error = "not_sent"
            exchange.detail = why
            self._ended.append(exchange)
        self._queue.clear()
        self._loop.call_soon(self._cut)

    def _cut(self) -> None:
        for connection in list(self._busy):
            if connection.exchange is not None:
                connection.give_up("cut", self.stopped or "")
        self._pump()

    def progress(self) -> LoadProgress:
        """How far the run is."""
        ttfts = sorted(self._ttfts)
        return LoadProgress(
            ended=self._count_ended,
            ok=self._count_ok,
            in_flight=self._in_flight,
            packets=self._packets + sum(len(c.exchange.packets) for c in self._busy if c.exchange is not None),
            ttft_s_p50=ttfts[len(ttfts) // 2] if ttfts else None,
        )
