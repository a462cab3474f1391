"""Load hosts that offer an order together, from the controller's side: split it, start at one moment, merge.

Each host stamps its own requests with its own clock, so latencies need no common one. What does is the moment of the
start, and when each request was on the run's clock. So each host's clock is read over the wire before and after each
run, and its error (half the fastest round trip, and half of what it drifted meanwhile) is kept with the run.

A host that ends, or says nothing for half a minute, is lost: the others are stopped, the run is condemned by name, and
there is no further one.
"""

import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from tokenpeak.errors import LoadError
from tokenpeak.load.crew import Observation, Progress, added, share, shifted, together
from tokenpeak.load.order import Order
from tokenpeak.load.wire import (
    Message,
    decoded,
    encoded,
    observation_of,
    order_text,
    progress_of,
    source_digest,
)
from tokenpeak.records import LoadHostHealth
from tokenpeak.workload import Declaration

LEAD_S = 0.5
"""From the word to the start: it travels, and connections are opened in it."""
PINGS = 12
CONNECT_S = 60.0
SILENCE_S = 30.0
"""A host at work tells its progress every second."""
LINE_LIMIT_BYTES = 64 << 10
SEEN_LIMIT_BYTES = 256 << 20
"""An observation of 10,000 requests of 512 tokens is a line of 30 MB."""
HEARD_LIMIT = 1000
WORDS_CHARACTERS = 1000
NUMBER_LIMIT = 1e12
_END_S = 5.0


class LoadHost(Declaration):
    """A machine that offers load, and the command that starts `tokenpeak.load.host` there."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A host's clock as read over the wire: its time − ours, and by how much that may be wrong."""

    offset_s: float
    error_s: float


class HostLostError(LoadError):
    """A load host that has failed; `name` says which."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"Load host {name} was lost: {why}")
        self.name = name


class Channel:
    """The pipe to one host. A thread reads it, so that every message is stamped when it comes."""

    def __init__(self, host: LoadHost) -> None:
        self.name = host.name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 — it is closed with the channel
        self._heard: queue.Queue[tuple[float, Message | None]] = queue.Queue(HEARD_LIMIT)
        self._awaits_seen = False
        """Whether an order is out, whose observation is the one long line that is read."""
        try:
            self._process = subprocess.Popen(
                host.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C ends the run here first; the host hears of it by its pipe
            )
        except OSError as error:
            self._errors.close()
            raise HostLostError(host.name, str(error)) from error
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while line := self._process.stdout.readline(LINE_LIMIT_BYTES):
                at = perf_counter()
                if not line.endswith(b"\n"):
                    line += self._rest()
                self._heard.put((at, decoded(line)))
        except ValueError as error:
            self._heard.put((perf_counter(), {"kind": "trouble", "text": f"it said what is {error}"}))
        self._heard.put((perf_counter(), None))

    def _rest(self) -> bytes:
        """What follows of a long line; raises ValueError where none is due."""
        assert self._process.stdout is not None
        if not self._awaits_seen:
            raise ValueError(f"a line of more than {LINE_LIMIT_BYTES} bytes")
        self._awaits_seen = False
        rest = self._process.stdout.readline(SEEN_LIMIT_BYTES)
        if len(rest) == SEEN_LIMIT_BYTES:
            raise ValueError(f"an observation of more than {SEEN_LIMIT_BYTES >> 20} MiB")
        return rest

    def say(self, kind: str, **content: Any) -> None:
        """Send a message; raises HostLostError when nobody reads it."""
        assert self._process.stdin is not None
        self._awaits_seen = self._awaits_seen or kind == "go"
        try:
            self._process.stdin.write(encoded(kind, **content))
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self.lost("its connection broke") from error

    def hear(self, timeout_s: float) -> tuple[float, Message]:
        """The next message and when it came; raises HostLostError when there is none."""
        try:
            at, message = self._heard.get(timeout=timeout_s)
        except queue.Empty:
            raise self.lost(f"it said nothing for {timeout_s:g} s") from None
        if message is None:
            raise self.lost("it ended")
        if message["kind"] == "trouble":
            raise HostLostError(self.name, str(message.get("text"))[:WORDS_CHARACTERS])
        return at, message

    def await_kind(self, kind: str, timeout_s: float) -> tuple[float, Message]:
        """The next message, which must be of this kind."""
        at, message = self.hear(timeout_s)
        if message["kind"] != kind:
            raise HostLostError(self.name, f"it said {message['kind'][:WORDS_CHARACTERS]} where {kind} was due")
        return at, message

    def lost(self, why: str) -> HostLostError:
        """The failure, with the last words of the host's command."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - WORDS_CHARACTERS))
        lines = [
            line for line in self._errors.read(WORDS_CHARACTERS).decode(errors="replace").splitlines() if line.strip()
        ]
        return HostLostError(self.name, f"{why}: {lines[-1]}" if lines else f"{why}.")

    def clock(self) -> Clock:
        """The host's clock against ours, by the fastest of some round trips."""
        best = Clock(offset_s=0.0, error_s=float("inf"))
        for _ in range(PINGS):
            sent = perf_counter()
            self.say("ping")
            came, pong = self.await_kind("pong", SILENCE_S)
            if (came - sent) / 2 < best.error_s:
                at_s = self.number(pong, "at_s")
                best = Clock(offset_s=at_s - (sent + came) / 2, error_s=(came - sent) / 2)
        return best

    def number(self, message: Message, name: str) -> float:
        """A number that the host tells; raises HostLostError where it tells none."""
        value = message.get(name)
        if not isinstance(value, int | float) or not abs(value) <= NUMBER_LIMIT:
            raise HostLostError(self.name, f"it said {message['kind']} with {name} = {repr(value)[:60]}")
        return float(value)

    def close(self) -> None:
        """Close the host's input, which ends it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            # Its end of the pipe has gone already.
            self._process.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)
        self._process.stdout.close()
        self._errors.close()


class Fleet:
    """All load hosts of a job, in the place of a Crew. `lost` names the one that was lost and why, once one was."""

    def __init__(self, hosts: Sequence[LoadHost], processes: Callable[[int], int] = lambda _cores: 1) -> None:
        """Connect to every host; `processes` says how many one with so many cores is to have. Raises HostLostError."""
        self.lost: HostLostError | None = None
        self.processes = 0
        self._channels: list[Channel] = []
        try:
            for host in hosts:
                self._channels.append(Channel(host))
            for channel in self._channels:
                _, hello = channel.await_kind("hello", CONNECT_S)
                if hello.get("source") != source_digest():
                    raise HostLostError(
                        channel.name, "another version of TokenPeak is there; make its environment anew."
                    )
                channel.say("hire", processes=processes(int(channel.number(hello, "cores"))))
            for channel in self._channels:
                _, hired = channel.await_kind("hired", CONNECT_S)
                self.processes += int(channel.number(hired, "processes"))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every host's client."""
        for channel in self._channels:
            channel.close()

    def run(self, order: Order, on_progress: Callable[[Progress], None] = lambda _: None) -> Observation:
        """Carry out an order with all hosts together; without the share of a host that was lost meanwhile."""
        if self.lost is not None:
            raise self.lost
        channels = self._channels[: _members(order, len(self._channels))]
        before = _prepared(channels, order)
        start = perf_counter() + LEAD_S
        for channel, clock in zip(channels, before, strict=True):
            channel.say("go", start_s=start + clock.offset_s)
        found = self._collect(channels, on_progress)
        parts: list[_Part] = []
        for channel, clock in zip(channels, before, strict=True):
            seen = found.get(channel.name)
            if seen is not None:
                after = clock if self.lost is not None else channel.clock()
                parts.append(_Part(name=channel.name, seen=seen, clock=_over(clock, after)))
        if not parts:
            assert self.lost is not None
            raise self.lost
        return _merged(parts, start, None if self.lost is None else str(self.lost))

    def _collect(self, channels: Sequence[Channel], on_progress: Callable[[Progress], None]) -> dict[str, Observation]:
        """Each host's observation by its name; those of the others, cut short, when one is lost."""
        found: dict[str, Observation] = {}
        progress: dict[str, Progress] = {}
        inbox: queue.Queue[tuple[Channel, Message | HostLostError]] = queue.Queue()

        def follow(channel: Channel) -> None:
            try:
                while True:
                    _, message = channel.hear(SILENCE_S)
                    inbox.put((channel, message))
                    if message["kind"] == "seen":
                        return
            except HostLostError as error:
                inbox.put((channel, error))

        for channel in channels:
            threading.Thread(target=follow, args=(channel,), daemon=True).start()
        awaited = {channel.name for channel in channels}
        while awaited:
            channel, message = inbox.get()
            if isinstance(message, HostLostError):
                awaited.discard(channel.name)
                self._lose(message, [other for other in channels if other.name in awaited])
            elif message["kind"] == "seen":
                awaited.discard(channel.name)
                try:
                    found[channel.name] = observation_of(message)
                except ValueError as error:
                    self._lose(HostLostError(channel.name, str(error)), channels)
            else:
                progress[channel.name] = progress_of(message)
                on_progress(together(list(progress.values())))
        return found

    def _lose(self, lost: HostLostError, others: Sequence[Channel]) -> None:
        if self.lost is None:
            self.lost = lost
        for channel in others:
            try:
                channel.say("halt", why=str(lost))
            except HostLostError:
                # Its own thread tells the same.
                continue


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What one host saw, and its clock over the run."""

    name: str
    seen: Observation
    clock: Clock


def _members(order: Order, hosts: int) -> int:
    """How many hosts have something to do: a level of three streams cannot be shared by four."""
    least = min((cap for _, cap in order.caps if cap > 0), default=hosts)
    return max(1, min(hosts, least, order.max_in_flight or hosts))


def _prepared(channels: Sequence[Channel], order: Order) -> list[Clock]:
    """Give every host its share, wait until all hold theirs, and read their clocks."""
    certificates = None
    if order.target.ca_file is not None:
        certificates = Path(order.target.ca_file).read_text()
    for part, channel in enumerate(channels):
        channel.say("offer", order=order_text(share(order, part, len(channels))), ca=certificates)
    for channel in channels:
        channel.await_kind("ready", CONNECT_S)
    return [channel.clock() for channel in channels]


def _over(before: Clock, after: Clock) -> Clock:
    """A clock over the time between two readings of it."""
    drift = abs(after.offset_s - before.offset_s)
    return Clock(
        offset_s=(before.offset_s + after.offset_s) / 2, error_s=max(before.error_s, after.error_s) + drift / 2
    )


def _merged(parts: Sequence[_Part], start: float, stopped: str | None) -> Observation:
    """All hosts' observations as one on this machine's clock; `start` is when all should have begun."""
    starts = [part.seen.start - part.clock.offset_s for part in parts]
    begin = min(starts)
    replies = [
        shifted(reply, began - begin) for part, began in zip(parts, starts, strict=True) for reply in part.seen.replies
    ]
    seen = [part.seen for part in parts]
    return Observation(
        replies=tuple(sorted(replies, key=lambda reply: reply.index)),
        lags=tuple(lag for part in seen for lag in part.lags),
        start=begin,
        wall_s=max(part.wall_s for part in seen),
        cpu_s=sum(part.cpu_s for part in seen),
        busiest_share=max(part.busiest_share for part in seen),
        processes=sum(part.processes for part in seen),
        stopped=stopped or next((part.stopped for part in seen if part.stopped), None),
        segments=added(part.segments for part in seen),
        outages=tuple(
            (begin_s + began - begin, end_s + began - begin)
            for part, began in zip(seen, starts, strict=True)
            for begin_s, end_s in part.outages
        ),
        hosts=tuple(
            LoadHostHealth(
                load_host=part.name,
                requests=len(part.seen.replies),
                processes=part.seen.processes,
                cpu_s=part.seen.cpu_s,
                began_late_s=began - start,
                clock_error_s=part.clock.error_s,
            )
            for part, began in zip(parts, starts, strict=True)
        ),
    )
