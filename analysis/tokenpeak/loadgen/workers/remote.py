"""Load hosts that offer an assignment together: each is a worker of another machine, with a worker pool of its own.

`python -m tokenpeak.loadgen.workers.remote` on a load host hears and sends `messages` as lines of JSON on standard
input and output, and ends when its input does. A controller that has gone therefore leaves no load behind. What a login
shell prints before is no message.

Each host stamps its own requests with its own clock, so latencies need no common one. What does is the moment of the
start, and when each request was on the run's clock. So each host's clock is read over the wire before and after each
run, and its error (half the fastest round trip, and half of what it drifted meanwhile) is kept with the run.

A host that ends, or says nothing for half a minute, is lost: the others are stopped, the run is invalid with the host's
name in the reason, and there is no further one.
"""

import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, TypeVar

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.workers.local import Channel, message_pipes
from tokenpeak.loadgen.workers.messages import (
    Assign,
    Begin,
    FromWorker,
    Halt,
    Hello,
    LoadObservation,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Ready,
    ToWorker,
    WorkerFailure,
    decode_from_worker,
    decode_to_worker,
    encode_from_worker,
    encode_to_worker,
    source_digest,
)
from tokenpeak.loadgen.workers.pool import OnProgress, WorkerClock, WorkerPool, host_share, merge
from tokenpeak.node.machine.words import one_line
from tokenpeak.spec import Declaration

PINGS = 12
CONNECT_S = 60.0
SILENCE_S = 30.0
"""A host at work reports its progress every second."""
LINE_LIMIT_BYTES = 64 << 10
OBSERVATION_LIMIT_BYTES = 256 << 20
"""An observation of 10,000 requests of 512 tokens is a line of 33 MB."""
WORDS_CHARACTERS = 1000
MOST_BANNER_LINES = 1000
"""That a login shell prints before the host's first message."""

_Message = TypeVar("_Message", bound=ToWorker)


class LoadHost(Declaration):
    """A machine that offers load, and the command that starts `tokenpeak.loadgen.workers.remote` there."""

    name: str
    argv: tuple[str, ...]


class HostLostError(LoadError):
    """A load host that has failed; `name` says which."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"Load host {name} was lost: {one_line(why)}")
        self.name = name


class HostChannel(Channel):
    """The pipe to one load host: bounded lines of JSON, since the other end is another machine."""

    def __init__(self, host: LoadHost) -> None:
        self.name = host.name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 — it is closed with the channel
        self._awaits_observation = False
        """Whether a load is on, whose observation is the one long line that is read."""
        try:
            super().__init__(host.argv, errors=self._errors)
        except OSError as error:
            self._errors.close()
            raise HostLostError(host.name, str(error)) from error

    def _messages(self) -> Iterator[FromWorker]:
        try:
            if first := self._first_line():
                yield decode_from_worker(first)
            while line := self._output.readline(LINE_LIMIT_BYTES):
                yield decode_from_worker(line if line.endswith(b"\n") else line + self._rest())
        except ValueError as error:
            yield WorkerFailure(text=f"it said what is {error}")

    def _first_line(self) -> bytes:
        """The first message, after what a login shell prints; the last line of that where no message follows."""
        line = left = b""
        for _ in range(MOST_BANNER_LINES):
            line = self._output.readline(LINE_LIMIT_BYTES)
            if not line or (line.startswith(b"{") and b'"kind"' in line):
                break
            left = line if line.strip() else left
        return line or left

    def _rest(self) -> bytes:
        """The rest of a long line; raises ValueError where none is due."""
        if not self._awaits_observation:
            raise ValueError(f"a line of more than {LINE_LIMIT_BYTES} bytes")
        self._awaits_observation = False
        rest = self._output.readline(OBSERVATION_LIMIT_BYTES)
        if len(rest) == OBSERVATION_LIMIT_BYTES:
            raise ValueError(f"an observation of more than {OBSERVATION_LIMIT_BYTES >> 20} MiB")
        return rest

    def _write(self, message: ToWorker) -> None:
        self._awaits_observation = self._awaits_observation or isinstance(message, Begin)
        self._input.write(encode_to_worker(message))

    def lost(self, why: str, *, own_words: bool = False) -> LoadError:
        """The failure, with the last words of the host's command unless `why` has its own."""
        if own_words:
            return HostLostError(self.name, why[:WORDS_CHARACTERS])
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - WORDS_CHARACTERS))
        lines = [
            line for line in self._errors.read(WORDS_CHARACTERS).decode(errors="replace").splitlines() if line.strip()
        ]
        return HostLostError(self.name, f"{why}: {lines[-1]}" if lines else f"{why}.")

    def clock(self) -> WorkerClock:
        """The host's clock against ours, by the fastest of some round trips."""
        best = WorkerClock(error_s=float("inf"))
        for _ in range(PINGS):
            sent = perf_counter()
            self.send(Ping())
            came, pong = self.expect(Pong, SILENCE_S)
            if (came - sent) / 2 < best.error_s:
                best = WorkerClock(offset_s=pong.at_s - (sent + came) / 2, error_s=(came - sent) / 2)
        return best

    def close(self) -> None:
        """Wait until the host's command has ended, and end it if need be."""
        super().close()
        self._errors.close()


class RemoteWorkerPool(WorkerPool):
    """All load hosts of a job, in the place of this machine's workers."""

    lead_s = 0.5
    ready_s = CONNECT_S

    def __init__(self, hosts: Sequence[LoadHost], processes: Callable[[int], int] = lambda _cores: 1) -> None:
        """Connect to every host; `processes` says how many one with so many cores is to have. Raises HostLostError."""
        self._hosts = hosts
        self.cores: dict[str, int] = {}
        """Host → its cores."""
        self._processes_of = processes
        self.silence_s = SILENCE_S
        super().__init__(0)

    def _start_workers(self) -> None:
        for host in self._hosts:
            self._channels.append(HostChannel(host))
        for channel in self._channels:
            _, hello = channel.expect(Hello, CONNECT_S)
            if hello.source != source_digest():
                raise HostLostError(channel.name, "another version of TokenPeak is there; make its environment anew.")
            self.cores[channel.name] = hello.cores
            channel.send(Prepare(processes=self._processes_of(hello.cores)))
        for channel in self._channels:
            self.processes += channel.expect(Prepared, CONNECT_S)[1].processes

    def run(
        self,
        assignment: LoadAssignment,
        on_progress: OnProgress = lambda _: None,
        *,
        await_start: Callable[[], float] | None = None,
    ) -> LoadObservation:
        """Carry out an assignment with all hosts together; without the share of a host that was lost meanwhile."""
        parts, start = self._offer(assignment, on_progress, await_start)
        merged = replace(merge(parts), hosts=tuple(host_share(part, start) for part in parts))
        return merged if self.lost is None else replace(merged, stopped=str(self.lost))

    def _certificates(self, assignment: LoadAssignment) -> str | None:
        ca_file = assignment.target.ca_file
        return None if ca_file is None else Path(ca_file).read_text()

    def _clock(self, channel: Channel) -> WorkerClock:
        assert isinstance(channel, HostChannel)
        return channel.clock()

    def _lose(self, lost: LoadError) -> None:
        if self.lost is None:
            self.lost = lost
            self.halt(str(lost))


class _ControllerGoneError(Exception):
    """The input has ended."""


class RemoteWorker:
    """A thread hears, the main thread works."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._in = incoming
        self._out = outgoing
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
