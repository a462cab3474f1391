"""Channel to one worker: its process, the pipes to it, and a thread that stamps each message when it comes."""

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import IO, BinaryIO, TypeVar

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.workers.messages import FromWorker, ToWorker, WorkerFailure

HEARD_LIMIT = 1000
_END_S = 5.0
_Message = TypeVar("_Message", bound=FromWorker)


def message_pipes() -> tuple[BinaryIO, BinaryIO]:
    """A worker's input and output for messages; whatever else would be printed goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return os.fdopen(os.dup(0), "rb"), output


class Channel:
    """A worker of this machine. Messages are pickled: both ends are this program."""

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
