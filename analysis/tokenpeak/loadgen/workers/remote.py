"""Remote worker: `python -m tokenpeak.loadgen.workers.remote` on a load host, over a channel, with a pool of workers.

It hears and sends `messages` as lines of JSON on standard input and output, and ends when its input does. A controller
that has gone therefore leaves no load behind. What a login shell prints before is no message.
"""

import os
import queue
import tempfile
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, TypeVar

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.workers.channel import message_pipes
from tokenpeak.loadgen.workers.messages import (
    Assign,
    Begin,
    FromWorker,
    Halt,
    Hello,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Ready,
    ToWorker,
    WorkerFailure,
    decode_to_worker,
    encode_from_worker,
    source_digest,
)
from tokenpeak.loadgen.workers.pool import WorkerPool

_Message = TypeVar("_Message", bound=ToWorker)


class _ControllerGoneError(Exception):
    """The input has ended."""


class RemoteWorker:
    """A thread hears, the main thread works."""

    def __init__(self, heard: BinaryIO, said: BinaryIO) -> None:
        self._in = heard
        self._out = said
        self._lock = threading.Lock()
        self._messages: queue.Queue[ToWorker | None] = queue.Queue()
        self._pool: WorkerPool | None = None

    def work(self) -> None:
        """Carry out assignments until the controller has gone, or something is wrong here, which is reported first."""
        threading.Thread(target=self._hear, daemon=True).start()
        # What a login shell has printed may have left its line open.
        self._out.write(b"\n")
        self._send(Hello(source=source_digest(), cores=os.cpu_count() or 1))
        try:
            with closing(WorkerPool(self._next(Prepare).processes)) as self._pool:
                self._send(Prepared(processes=self._pool.processes))
                while True:
                    self._carry_out(self._pool, self._next(Assign))
        except _ControllerGoneError:
            return
        except (LoadError, ValueError, OSError) as error:
            self._send(WorkerFailure(text=str(error) or type(error).__name__))

    def _next(self, kind: type[_Message]) -> _Message:
        message = self._messages.get()
        if message is None:
            raise _ControllerGoneError
        if not isinstance(message, kind):
            raise ValueError(f"{message.kind} came where {kind.__name__.lower()} was due")
        return message

    def _carry_out(self, pool: WorkerPool, assign: Assign) -> None:
        def await_start() -> float:
            self._send(Ready())
            return self._next(Begin).at_s

        with tempfile.TemporaryDirectory() as folder:
            assignment = _with_certificates(assign, Path(folder))
            self._send(pool.run(assignment, self._send, await_start=await_start))

    def _hear(self) -> None:
        why = "the controller has gone"
        try:
            for line in self._in:
                message = decode_to_worker(line)
                if isinstance(message, Ping):
                    self._send(Pong(at_s=perf_counter()))
                elif isinstance(message, Halt):
                    self._halt(message.why)
                else:
                    self._messages.put(message)
        except (ValueError, OSError) as error:
            why = str(error)
        self._messages.put(None)
        self._halt(why)

    def _halt(self, why: str) -> None:
        if self._pool is not None:
            self._pool.halt(why)

    def _send(self, message: FromWorker) -> None:
        with self._lock:
            try:
                self._out.write(encode_from_worker(message))
                self._out.flush()
            except OSError:
                # The controller has gone; the end of the input says so too.
                return


def _with_certificates(assign: Assign, folder: Path) -> LoadAssignment:
    """The assignment with the controller's own certificates, where it has some, in a file of this host."""
    if assign.certificates is None:
        return assign.assignment
    path = folder / "ca.pem"
    path.write_text(assign.certificates)
    return replace(assign.assignment, target=replace(assign.assignment.target, ca_file=str(path)))


def main() -> None:
    """Serve on standard input and output."""
    RemoteWorker(*message_pipes()).work()


if __name__ == "__main__":
    main()
