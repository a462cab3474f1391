"""Worker process that sends the requests: `python -m tokenpeak.loadgen.workers.local`, started by a worker pool.

It imports nothing that the hot path does not need, and collects no garbage and writes no log while a run is on. It
hears and sends `messages`, pickled, on standard input and output.
"""

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import threading
from time import perf_counter, process_time
from typing import BinaryIO

import uvloop

from tokenpeak.loadgen.generator import LoadGenerator
from tokenpeak.loadgen.workers.channel import message_pipes
from tokenpeak.loadgen.workers.messages import (
    Assign,
    Begin,
    FromWorker,
    Halt,
    LoadObservation,
    Prepared,
    Ready,
    ToWorker,
)

REAL_TIME_PRIORITY = 1
"""A stopwatch should not wait behind what it measures. On a machine whose cores the engine keeps busy a normal process
waits up to 150 ms for its turn, one of niceness -10 as long where sessions share by group (Linux's autogroup), and a
real-time one 1.3 ms at most (measured beside vLLM on two cores)."""


class LocalWorker:
    """Carries out assignments, one at a time."""

    def __init__(self, heard: BinaryIO, said: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self._in = heard
        self._out = said
        self._loop = loop
        self._generator: LoadGenerator | None = None
        self._halted: str | None = None
        self._messages: asyncio.Queue[ToWorker] = asyncio.Queue()

    async def work(self) -> None:
        """Carry out assignments until the input ends: then at once, even amid a run."""
        working = asyncio.current_task()
        assert working is not None
        threading.Thread(target=self._hear, args=(working,), daemon=True).start()
        self._send(Prepared(processes=1))
        while True:
            message = await self._messages.get()
            if not isinstance(message, Assign):
                continue
            self._halted = None
            gc.collect()
            gc.freeze()
            self._send(Ready())
            while not isinstance(start := await self._messages.get(), Begin):
                continue
            self._send(await self._carry_out(LoadGenerator(message.assignment, start.at_s, self._loop)))
            gc.unfreeze()

    def _hear(self, working: "asyncio.Task[None]") -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message: ToWorker = pickle.load(self._in)  # noqa: S301 — from the process that has started this one
                if isinstance(message, Halt):
                    self._loop.call_soon_threadsafe(self._halt, message.why)
                else:
                    self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
        self._loop.call_soon_threadsafe(working.cancel)

    def _halt(self, why: str) -> None:
        self._halted = why
        if self._generator is not None:
            self._generator.stop(why)

    async def _carry_out(self, generator: LoadGenerator) -> LoadObservation:
        self._generator = generator
        if self._halted is not None:
            generator.stop(self._halted)
        gc.disable()
        cpu = process_time()
        progress = self._loop.create_task(self._show_progress(generator))
        try:
            replies = await generator.run()
        finally:
            progress.cancel()
            self._generator = None
            gc.enable()
        cpu_s, wall_s = process_time() - cpu, perf_counter() - generator.start
        return LoadObservation(
            replies=tuple(replies),
            lags=tuple(generator.lags),
            start=generator.start,
            wall_s=wall_s,
            cpu_s=cpu_s,
            busiest_share=cpu_s / max(wall_s, 1e-3),
            processes=1,
            stopped=generator.stopped,
            segments=generator.segments,
        )

    async def _show_progress(self, generator: LoadGenerator) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._send(generator.progress())

    def _send(self, message: FromWorker) -> None:
        # A parent that has gone is seen where its messages are heard.
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self._out, pickle.HIGHEST_PROTOCOL)
            self._out.flush()


def main() -> None:
    """Run until the parent is done with this process."""
    # Not every user may; the verdict then shows whether the client was late.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))
    # The parent decides what becomes of the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(LocalWorker(*message_pipes(), loop).work())
    finally:
        loop.close()


if __name__ == "__main__":
    main()
