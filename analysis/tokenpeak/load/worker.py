"""The process that sends: `python -m tokenpeak.load.worker DESCRIPTOR`, with a socket to its parent in DESCRIPTOR.

It imports nothing that the hot path does not need, and collects no garbage and writes no log while a run is on.
Parent to worker: `("run", order, start)`, `("stop", why)`, `("end",)`. Worker to parent: `("ready",)`,
`("progress", …)` about once a second, and `("result", …)`.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from multiprocessing.connection import Connection as Pipe
from time import perf_counter, process_time

import uvloop

from tokenpeak.load.offering import Offering
from tokenpeak.load.order import Order

REAL_TIME_PRIORITY = 1
"""A stopwatch should not wait behind what it measures. On a machine whose cores the engine keeps busy a normal process
waits up to 150 ms for its turn, one of niceness -10 as long where sessions share by group (Linux's autogroup), and a
real-time one 1.3 ms at most (measured beside vLLM on two cores)."""


class Worker:
    """Takes orders from the pipe, one at a time."""

    def __init__(self, pipe: Pipe, loop: asyncio.AbstractEventLoop) -> None:
        self._pipe = pipe
        self._loop = loop
        self._offering: Offering | None = None
        self._working: asyncio.Task[None] | None = None
        self._orders: asyncio.Queue[tuple[Order, float]] = asyncio.Queue()

    async def work(self) -> None:
        """Carry out orders until the parent says that it is enough, or has gone: then at once, even amid a run."""
        self._working = asyncio.current_task()
        self._loop.add_reader(self._pipe.fileno(), self._hear)
        # The loop has made it non-blocking, but a result is larger than the pipe.
        os.set_blocking(self._pipe.fileno(), True)
        self._pipe.send(("ready",))
        while True:
            order, start = await self._orders.get()
            self._pipe.send(("result", await self._carry_out(order, start)))

    def _hear(self) -> None:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            message = ("end",)
        if message[0] == "run":
            self._orders.put_nowait((message[1], message[2]))
        elif message[0] == "stop":
            if self._offering is not None:
                self._offering.stop(message[1])
        else:
            self._loop.remove_reader(self._pipe.fileno())
            assert self._working is not None, "the pipe is heard from within work"
            self._working.cancel()

    async def _carry_out(self, order: Order, start: float) -> dict[str, object]:
        gc.collect()
        gc.freeze()
        gc.disable()
        offering = self._offering = Offering(order, start, self._loop)
        cpu = process_time()
        teller = self._loop.create_task(self._tell(offering))
        try:
            replies = await offering.run()
        finally:
            teller.cancel()
            self._offering = None
            gc.enable()
            gc.unfreeze()
        return {
            "replies": replies,
            "lags": offering.lags,
            "cpu_s": process_time() - cpu,
            "start": offering.start,
            "wall_s": perf_counter() - offering.start,
            "stopped": offering.stopped,
            "segments": offering.segments,
        }

    async def _tell(self, offering: Offering) -> None:
        while True:
            await asyncio.sleep(1.0)
            with contextlib.suppress(BrokenPipeError):
                self._pipe.send(("progress", offering.progress()))


def main() -> None:
    """Run until the parent is done with this process."""
    # Not every user may; the verdict then tells whether the client was late.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))
    # Ctrl-C reaches the whole foreground group; the parent decides what becomes of the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(int(sys.argv[1]))
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(Worker(pipe, loop).work())
    finally:
        loop.close()


if __name__ == "__main__":
    main()
