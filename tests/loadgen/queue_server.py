"""HTTP server of known capacity, a process of its own: slots with processors shared by those in one, or a batch engine.

`python queue_server.py '{"slots": 8, "works": "exponential", "mean_s": 0.4}'` prints its port and ends with its input.
It shares no code with the package. Moments follow from when requests came and not from when the loop woke, so that its
lateness does not add up. Each answer has two events, its first and its last token, and says how many tokens it has.
`GET /stats` returns how late they were sent: on a busy machine the server is slower than it is meant to be.
"""

import asyncio
import heapq
import json
import random
import sys
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST_SHARE = 0.1


def draw(given: dict[str, Any]) -> float:
    """A request's work in seconds, or its answer's tokens."""
    mean, shape = given["mean"], given.get("shape", 1.0)
    match given["works"]:
        case "deterministic":
            return float(mean)
        case "exponential":
            return random.expovariate(1 / mean)
        case "lognormal":
            return float(mean * random.lognormvariate(-(shape**2) / 2, shape))
        case _:
            return float(mean * (shape - 1) / shape * random.paretovariate(shape))


class Alarm:
    """Calls back at the next moment that is due."""

    def __init__(self, call: Callable[[float], float | None]) -> None:
        self._loop, self._call = asyncio.get_running_loop(), call
        self._handle: asyncio.TimerHandle | None = None

    def set(self, moment: float | None) -> None:
        """The next moment, on the clock of perf_counter; None for none."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if moment is not None:
            self._handle = self._loop.call_later(max(0.0, moment - perf_counter()), self._ring)

    def _ring(self) -> None:
        self.set(self._call(perf_counter()))


class Slots:
    """At most `slots` at a time, first come first served; `processors` are shared by those in a slot."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.slots, self.processors = given["slots"], given.get("processors", 1e9)
        self.alarm = Alarm(self.advance)
        self.waiting: deque[tuple[Connection, float]] = deque()
        self.events: list[tuple[float, int, Connection, bool]] = []
        self.busy, self.count, self.clock, self.progress = 0, 0, perf_counter(), 0.0
        self.late_s: list[float] = []

    def come(self, connection: "Connection", moment: float) -> None:
        """A request was read."""
        self.advance(moment)
        self.waiting.append((connection, draw(self.given)))
        self._begin()
        self.alarm.set(self._next())

    def _speed(self) -> float:
        return min(1.0, self.processors / self.busy) if self.busy else 1.0

    def _next(self) -> float | None:
        return self.clock + (self.events[0][0] - self.progress) / self._speed() if self.events else None

    def _begin(self) -> None:
        while self.waiting and self.busy < self.slots:
            connection, work = self.waiting.popleft()
            self.busy += 1
            self.count += 2
            heapq.heappush(self.events, (self.progress + FIRST_SHARE * work, self.count, connection, False))
            heapq.heappush(self.events, (self.progress + work, self.count + 1, connection, True))

    def advance(self, moment: float) -> float | None:
        """Everything that is due by then; returns what is due next."""
        while (following := self._next()) is not None and following <= moment:
            self.clock = following
            self.progress, _, connection, last = heapq.heappop(self.events)
            self.late_s.append(perf_counter() - following)
            if last:
                self.busy -= 1
                connection.last(16)
                self._begin()
            else:
                connection.first()
        self.progress += max(0.0, moment - self.clock) * self._speed()
        self.clock = max(self.clock, moment)
        return self._next()


class BatchEngine:
    """All running requests get a token a step; a step takes longer with its batch and with the prompts it reads."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.alarm = Alarm(self.advance)
        self.arrived: deque[tuple[float, Connection]] = deque()
        self.running: list[tuple[int, int, int, Connection]] = []
        self.new: list[Connection] = []
        self.step, self.count = 0, 0
        self.end: float | None = None
        self.late_s: list[float] = []

    def come(self, connection: "Connection", moment: float) -> None:
        """A request was read."""
        self.arrived.append((moment, connection))
        if self.end is None:
            self._begin(moment)
            self.alarm.set(self.end)

    def _begin(self, moment: float) -> None:
        """The next step, from then on; none where nobody is there."""
        given, self.new = self.given, []
        while (
            self.arrived
            and self.arrived[0][0] <= moment
            and len(self.running) < given["batch"]
            and len(self.new) < given["prompts_a_step"]
        ):
            connection = self.arrived.popleft()[1]
            tokens, self.count = max(1, round(draw(given))), self.count + 1
            heapq.heappush(self.running, (self.step + tokens - 1, self.count, tokens, connection))
            self.new.append(connection)
        busy = len(self.running) * given["per_request_s"] + len(self.new) * given["per_prompt_s"]
        self.end = moment + given["step_s"] + busy if self.running else None

    def advance(self, moment: float) -> float | None:
        """Every step that has ended by then; returns the end of the next."""
        while self.end is not None and self.end <= moment:
            self.late_s.append(perf_counter() - self.end)
            for connection in self.new:
                connection.first()
            while self.running and self.running[0][0] <= self.step:
                _, _, tokens, connection = heapq.heappop(self.running)
                connection.last(tokens)
            self.step += 1
            begin = self.end
            if not self.running and self.arrived:
                begin = max(begin, self.arrived[0][0])
            self._begin(begin)
        return self.end


class Connection(asyncio.Protocol):
    """A client's connection; one request at a time."""

    def __init__(self, engine: Slots | BatchEngine) -> None:
        self._engine, self._buffer = engine, b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand on a request whose last byte has come."""
        moment = perf_counter()
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if not blank or len(rest) < length:
            return
        self._buffer = rest[length:]
        if b"completions" in head.split(b"\r\n", 1)[0]:
            self._engine.come(self, moment)
        elif b"/stats" in head.split(b"\r\n", 1)[0]:
            late = sorted(self._engine.late_s) or [0.0]
            stats = json.dumps({"p50_s": late[len(late) // 2], "p99_s": late[int(0.99 * len(late))]}).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(stats), stats))
        else:
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    def _event(self, content: dict[str, Any]) -> bytes:
        event = b"data: " + json.dumps(content).encode() + b"\n\n"
        return b"%x\r\n%b\r\n" % (len(event), event)

    def first(self) -> None:
        """Send the head and the first token."""
        self._transport.write(HEAD + self._event({"choices": [{"index": 0, "text": " a", "finish_reason": None}]}))

    def last(self, tokens: int) -> None:
        """Send the last token and how many there were."""
        usage = {"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens}
        end = b"data: [DONE]\n\n"
        body = self._event({"choices": [{"index": 0, "text": " b", "finish_reason": "length"}]})
        body += self._event({"choices": [], "usage": usage}) + b"%x\r\n%b\r\n" % (len(end), end)
        self._transport.write(body + b"0\r\n\r\n")


async def serve(given: dict[str, Any]) -> None:
    """Print the port and serve until the input ends."""
    loop = asyncio.get_running_loop()
    random.seed(given.get("seed", 1))
    engine = BatchEngine(given) if "batch" in given else Slots(given)
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    enough = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), enough.set)
    await enough.wait()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
