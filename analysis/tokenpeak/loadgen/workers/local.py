"""Worker process of this machine, which sends the requests, and the channel to it.

`python -m tokenpeak.loadgen.workers.local`, started by a worker pool, hears and sends `messages`, pickled, on standard
input and output. It imports nothing that the hot path does not need, and collects no garbage and writes no log while a
run is on.
"""

import asyncio
import contextlib
import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter, process_time
from typing import IO, BinaryIO, TypeVar

import uvloop

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.generator import LoadGenerator
from tokenpeak.loadgen.workers.messages import (
    Assign,
    Begin,
    FromWorker,
    Halt,
    LoadObservation,
    Prepared,
    Ready,
    ToWorker,
    WorkerFailure,
)

HEARD_LIMIT = 1000
_END_S = 5.0
REAL_TIME_PRIORITY = 1
"""A stopwatch should not wait behind what it measures. On a machine whose cores the engine keeps busy a normal process
waits up to 150 ms for its turn, one of niceness -10 as long where sessions share by group (Linux's autogroup), and a
real-time one 1.3 ms at most (measured beside vLLM on two cores)."""
_Message = TypeVar("_Message", bound=FromWorker)


def message_pipes() -> tuple[BinaryIO, BinaryIO]:
    """A worker's input and output for messages; whatever else would be printed goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return os.fdopen(os.dup(0), "rb"), output


class Channel:
    """A worker's process, the pipes to it, and a thread that stamps each message when it comes.

    Messages are pickled: both ends are this program.
    """

    name = "a load process"

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, errors: IO[bytes] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            start_new_session=True,  # Ctrl-C ends the run here first; the worker ends with its pipe
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        self._heard: queue.Queue[tuple[float, FromWorker | None]] = queue.Queue(HEARD_LIMIT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for message in self._messages():
            self._heard.put((perf_counter(), message))
        self._heard.put((perf_counter(), None))

    def _messages(self) -> Iterator[FromWorker]:
        """The worker's messages until it ends."""
        with suppress(EOFError, OSError):
            while True:
                yield pickle.load(self._output)  # noqa: S301 — from a process that this one has started

    def _write(self, message: ToWorker) -> None:
        pickle.dump(message, self._input, pickle.HIGHEST_PROTOCOL)

    def send(self, message: ToWorker) -> None:
        """Send a message, from any thread; raises LoadError when nobody reads it."""
        try:
            with self._lock:
                self._write(message)
                self._input.flush()
        except (OSError, ValueError) as error:
            raise self.lost("its connection broke") from error

    def receive(self, timeout_s: float | None = None) -> tuple[float, FromWorker]:
        """The next message and when it came; raises LoadError when there is none, or the worker has failed."""
        try:
            at, message = self._heard.get(timeout=timeout_s)
        except queue.Empty:
            raise self.lost(f"it said nothing for {timeout_s:g} s") from None
        if message is None:
            raise self.lost("it ended")
        if isinstance(message, WorkerFailure):
            raise self.lost(message.text, own_words=True)
        return at, message

    def expect(self, kind: type[_Message], timeout_s: float | None = None) -> tuple[float, _Message]:
        """The next message, which must be of this kind."""
        at, message = self.receive(timeout_s)
        if not isinstance(message, kind):
            raise self.lost(f"it sent {message.kind} where {kind.__name__.lower()} was due", own_words=True)
        return at, message

    def lost(self, why: str, *, own_words: bool = False) -> LoadError:
        """The failure of this worker."""
        return LoadError(
            "A load process ended before its run did; its own message is above. "
            "If the machine is out of memory, ask for fewer requests at a time."
        )

    def hang_up(self) -> None:
        """Close the worker's input, which ends it."""
        try:
            self._input.close()
        except OSError:
            # Its end of the pipe has gone already.
            self._process.kill()

    def close(self) -> None:
        """Wait until the worker has ended, and end it if need be."""
        self.hang_up()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)
        self._output.close()


def local_channel() -> Channel:
    """A worker process of this machine."""
    path = os.pathsep.join(filter(None, sys.path))
    return Channel(
        [sys.executable, "-P", "-m", "tokenpeak.loadgen.workers.local"], env={**os.environ, "PYTHONPATH": path}
    )


class LocalWorker:
    """Carries out assignments, one at a time."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self._in = incoming
        self._out = outgoing
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
