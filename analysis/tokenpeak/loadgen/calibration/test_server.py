"""Test server: answers each token at an exact moment, so that the load generator's error can be measured.

`python -m tokenpeak.loadgen.calibration.test_server --port 0 --ttft-ms 50 --itl-ms 20` prints its port, and ends when
its input does. Each completion request gets its first token one TTFT after its last byte was read, and each further
token one ITL later, whatever the client does. How late each token was handed to the kernel is recorded;
`GET /stats` returns the TTFT, the ITL and the lateness in seconds since it was last asked.
"""

import argparse
import asyncio
import contextlib
import gc
import heapq
import json
import os
import sys
from array import array
from time import perf_counter
from typing import cast

import uvloop

from tokenpeak.loadgen.http.alarm import Alarm

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
INPUT_TOKENS = 128


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def _event(content: dict[str, object], *, chat: bool, finish: str | None) -> bytes:
    choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
    event = {
        "id": "timetable-0123456789abcdef",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1700000000,
        "model": "timetable",
        "choices": [choice],
    }
    return _chunk(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")


def _content(*, chat: bool) -> dict[str, object]:
    return {"delta": {"content": " tok"}} if chat else {"text": " tok"}


TOKEN = {chat: _event(_content(chat=chat), chat=chat, finish=None) for chat in (False, True)}
LAST = {chat: _event(_content(chat=chat), chat=chat, finish="length") for chat in (False, True)}


class TokenSchedule:
    """All streams and when each is next due."""

    def __init__(self, ttft_s: float, itl_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.ttft_s = ttft_s
        self.itl_s = itl_s
        self.lateness = array("d")
        self._alarm = Alarm(loop, self._ring)
        self._due: list[tuple[float, int, Stream]] = []
        self._count = 0

    def begin(self, stream: "Stream") -> None:
        """A request was read: its first token is due one TTFT from now."""
        self._count += 1
        stream.began = perf_counter()
        heapq.heappush(self._due, (stream.began + self.ttft_s, self._count, stream))
        if self._due[0][2] is stream:
            self._alarm.set(self._due[0][0])

    def _ring(self) -> None:
        due = self._due
        while due and due[0][0] <= perf_counter():
            moment, number, stream = due[0]
            following = stream.token(moment + self.itl_s)
            self.lateness.append(perf_counter() - moment)
            if following is None:
                heapq.heappop(due)
            else:
                heapq.heapreplace(due, (following, number, stream))
        if due:
            self._alarm.set(due[0][0])

    def stats(self) -> dict[str, float]:
        """The timetable, and lateness since the last call: count, mean, p50, p99, max; in seconds."""
        late = sorted(self.lateness) or [0.0]
        tokens = len(self.lateness)
        del self.lateness[:]
        return {
            "ttft_s": self.ttft_s,
            "itl_s": self.itl_s,
            "tokens": tokens,
            "mean_s": sum(late) / len(late),
            "p50_s": late[len(late) // 2],
            "p99_s": late[int(len(late) * 0.99)],
            "max_s": late[-1],
        }


class Stream(asyncio.Protocol):
    """A connection; it answers one request at a time."""

    def __init__(self, timetable: TokenSchedule) -> None:
        self.began = 0.0
        self._timetable = timetable
        self._buffer = b""
        self._transport: asyncio.Transport
        self._descriptor = -1
        self._left = 0
        self._chat = False
        self._usage = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast(asyncio.Transport, transport)
        self._descriptor = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone: nothing more is due."""
        self._left = 0
        self._descriptor = -1

    def data_received(self, data: bytes) -> None:
        """Answer each request whose last byte has come."""
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        lower = head.lower()
        length = 0
        if (at := lower.find(b"content-length:")) >= 0:
            length = int(lower[at + 15 :].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return
        body, self._buffer = rest[:length], rest[length:]
        path = head.split(b" ", 2)[1]
        if path.endswith(b"/completions"):
            self._answer(body, chat=path.endswith(b"/chat/completions"))
        elif path.startswith(b"/stats"):
            self._reply(b"200 OK", json.dumps(self._timetable.stats()).encode())
        else:
            self._reply(b"404 Not Found", b"{}")

    def _reply(self, status: bytes, body: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
        )

    def _answer(self, body: bytes, *, chat: bool) -> None:
        request = json.loads(body)
        self._chat = chat
        self._left = tokens = int(request.get("max_tokens") or 16)
        usage = {
            "prompt_tokens": INPUT_TOKENS,
            "completion_tokens": tokens,
            "total_tokens": INPUT_TOKENS + tokens,
        }
        self._usage = _chunk(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        self._write(HEAD)
        self._timetable.begin(self)

    def token(self, following: float) -> float | None:
        """Send the token that is due; gives when the next one is, if there is one."""
        if self._left <= 0:
            return None
        self._left -= 1
        if self._left:
            self._write(TOKEN[self._chat])
            return following
        self._write(LAST[self._chat])
        self._write(self._usage + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return None

    def _write(self, data: bytes) -> None:
        """Now, and not when the loop comes round to it: lateness is measured to here."""
        sent = 0
        if self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            with contextlib.suppress(BlockingIOError):
                sent = os.write(self._descriptor, data)
        if sent < len(data):
            self._transport.write(data[sent:])


async def _serve(given: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    timetable = TokenSchedule(given.ttft_ms / 1e3, given.itl_ms / 1e3, loop)
    server = await loop.create_server(lambda: Stream(timetable), given.address, given.port, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    gc.freeze()
    gc.disable()
    enough = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), enough.set)
    await enough.wait()
    server.close()


def main() -> None:
    """Serve until the input ends."""
    options = argparse.ArgumentParser()
    options.add_argument("--address", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--ttft-ms", type=float, default=50.0)
    options.add_argument("--itl-ms", type=float, default=20.0)
    uvloop.run(_serve(options.parse_args()))


if __name__ == "__main__":
    main()
