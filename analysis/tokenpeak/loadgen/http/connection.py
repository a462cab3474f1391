"""HTTP/1.1 connection of the load generator: a request goes out, packets come in and are stamped.

The hot path is `data_received`: it keeps the packet and the moment, and looks at the last bytes. Only packets that
may hold a response's head or end are parsed at once; what the packets say is read later, by `stream`.
A body that ends in `CRLF 0 CRLF CRLF` on an event stream is its last chunk: an event holds no bare line `0`.
"""

import asyncio
import os
from collections.abc import Callable
from time import perf_counter
from typing import Protocol, cast

from httptools import HttpParserError, HttpResponseParser

from tokenpeak.results.network import Segments

_LAST_CHUNK = b"\r\n0\r\n\r\n"
_BLANK_LINE = b"\r\n\r\n"

RESPONSE_LIMIT_BYTES = 64 << 20
"""The most that one response may hold, its packets' own cost included: 130,000 events of 400 bytes."""
HEAD_LIMIT_BYTES = 256 << 10
LARGE_PACKET_BYTES = 16 << 10
"""A packet above this has its response weighed at once; the others wait for the next tick of whoever owns it."""
PACKET_BYTES = 80
"""Cost of a packet that is kept, beside its content."""


class Exchange:
    """One request and the packets that answered it; times are `perf_counter` seconds."""

    __slots__ = (
        "adapter",
        "conversation",
        "detail",
        "due",
        "ended",
        "error",
        "index",
        "packets",
        "resent",
        "sent",
        "size",
        "status",
        "times",
        "turn",
        "weighed",
    )

    def __init__(self, index: int, due: float) -> None:
        self.index = index
        self.due = due
        self.sent: float | None = None
        self.ended: float | None = None
        self.status: int | None = None
        self.error: str | None = None
        self.detail = ""
        self.times: list[float] = []
        self.packets: list[bytes] = []
        self.size = 0
        """Bytes of memory that the first `weighed` packets take."""
        self.weighed = 0
        self.resent = False
        self.conversation: object | None = None
        self.turn: int | None = None
        self.adapter: str | None = None

    def weigh(self) -> int:
        """Bytes of memory that all packets take by now."""
        fresh = self.packets[self.weighed :]
        self.weighed += len(fresh)
        self.size += sum(map(len, fresh)) + PACKET_BYTES * len(fresh)
        return self.size


class Owner(Protocol):
    """Is notified when an exchange has ended, and when an idle connection has gone."""

    def ended(self, connection: "Connection", exchange: Exchange) -> None:
        """`exchange` has ended, well or not; `connection.usable` says whether another may follow."""

    def gone(self, connection: "Connection") -> None:
        """An idle connection was closed by the server."""

    def resend(self, exchange: Exchange) -> None:
        """The server had closed the kept connection before it read the request: it needs another one."""


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time."""

    def __init__(self, owner: Owner, *, direct_writes: bool, segments: Segments | None = None) -> None:
        self.owner = owner
        self._segments = segments
        self.usable = False
        self.exchange: Exchange | None = None
        self.used = False
        self._transport: asyncio.Transport
        self._direct_writes = direct_writes
        self._descriptor = -1
        self._parser: HttpResponseParser | None = None
        self._stamp: Callable[[float], None]
        self._keep: Callable[[bytes], None]
        self._fed = 0
        self._event_stream = False
        self._chunked = False
        self._sized = False
        self._streaming = False
        self._complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to carry an exchange."""
        # uvloop's transports are Transports in all but their class.
        self._transport = cast(asyncio.Transport, transport)
        if self._direct_writes:
            self._descriptor = transport.get_extra_info("socket").fileno()
        self.usable = True

    def send(self, exchange: Exchange, payload: bytes) -> None:
        """Start an exchange. The request leaves now, not when the event loop comes round to it."""
        self.exchange = exchange
        self._stamp = exchange.times.append
        self._keep = exchange.packets.append
        self._parser = None
        self._fed = 0
        self._event_stream = self._chunked = self._sized = self._streaming = self._complete = False
        sent = 0
        if exchange.sent is None:
            exchange.sent = perf_counter()
        if self._direct_writes:
            try:
                sent = os.write(self._descriptor, payload)
            except BlockingIOError:
                sent = 0
            except OSError:
                # The transport meets the same error and reports it in connection_lost.
                sent = 0
        if sent < len(payload):
            self._transport.write(payload[sent:])

    def data_received(self, data: bytes) -> None:
        """Keep the packet and when it came; parse at once only what may be a head or an end."""
        now = perf_counter()
        exchange = self.exchange
        if exchange is None:
            self.usable = False
            self._transport.abort()
            return
        self._stamp(now)
        self._keep(data)
        if len(data) > LARGE_PACKET_BYTES and exchange.weigh() > RESPONSE_LIMIT_BYTES:
            self.refuse(exchange)
            return
        if self._streaming:
            if len(data) > 4 and not data.endswith(_BLANK_LINE):
                return
            if data.endswith(_LAST_CHUNK) or (data == _LAST_CHUNK[2:] and exchange.packets[-2].endswith(b"\r\n")):
                self._end(None)
                return
        elif self._parser is None and self._plain_head(data):
            exchange.status = 200
            self._event_stream = self._chunked = self._streaming = True
            # Only a packet that is a head and no more, or that stops within an event, cannot be a whole response.
            if not data.endswith(_BLANK_LINE) or data.index(_BLANK_LINE) == len(data) - len(_BLANK_LINE):
                return
        self._feed(exchange)

    def refuse(self, exchange: Exchange) -> None:
        """Give up a response that is too large, and let go of it."""
        first = exchange.times[0]
        self.give_up("oversized", f"the response was longer than {RESPONSE_LIMIT_BYTES >> 20} MiB")
        exchange.packets.clear()
        exchange.times[:] = [first]
        exchange.size = exchange.weighed = 0

    @staticmethod
    def _plain_head(data: bytes) -> bool:
        """Whether a packet begins with the whole head of a chunked event stream on a connection that stays.

        That is nearly every response's first packet, and looking is ten times cheaper than a parser of its own.
        """
        head, blank, _ = data.partition(_BLANK_LINE)
        if not blank or not head.startswith(b"HTTP/1.1 200 "):
            return False
        head = head.lower()
        return (
            b"\r\ntransfer-encoding: chunked" in head
            and b"\r\ncontent-type: text/event-stream" in head
            and b"\r\nconnection: close" not in head
        )

    def _feed(self, exchange: Exchange) -> None:
        packets = exchange.packets
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        try:
            while self._fed < len(packets):
                self._fed += 1
                self._parser.feed_data(packets[self._fed - 1])
        except HttpParserError as error:
            self.give_up("malformed_response", str(error))
            return
        if self._complete:
            self._end(None)
        elif exchange.status is None and exchange.weigh() > HEAD_LIMIT_BYTES:
            self.give_up("malformed_response", f"its head was longer than {HEAD_LIMIT_BYTES >> 10} KiB")
        elif exchange.status is not None:
            self._streaming = self._event_stream and self._chunked

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the response (called by the parser)."""
        key = name.lower()
        if key == b"content-type":
            self._event_stream = value.lower().startswith(b"text/event-stream")
        elif key == b"transfer-encoding":
            self._chunked = b"chunked" in value.lower()
        elif key == b"content-length":
            self._sized = True

    def on_headers_complete(self) -> None:
        """The response's head is whole (called by the parser)."""
        if self.exchange is not None and self._parser is not None:
            self.exchange.status = self._parser.get_status_code()
        if self._parser is not None and not self._parser.should_keep_alive():
            self.usable = False

    def on_message_complete(self) -> None:
        """The response is whole (called by the parser)."""
        self._complete = True

    def _count_segments(self) -> None:
        """Add this connection's segments to the run's, once, when it ends."""
        segments, self._segments = self._segments, None
        if segments is not None:
            segments.add(self._transport.get_extra_info("socket"))

    def _end(self, error: str | None, detail: str = "") -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        exchange.ended = exchange.times[-1] if exchange.times and error is None else perf_counter()
        exchange.error = error
        exchange.detail = detail
        self.used = True
        if not self.usable:
            self._count_segments()
            self._transport.close()
        self.owner.ended(self, exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has gone: the end of a response without a length, or a broken one."""
        self.usable = False
        self._count_segments()
        exchange = self.exchange
        if exchange is None:
            self.owner.gone(self)
        elif not exchange.times and self.used and not exchange.resent:
            self.exchange = None
            exchange.resent = True
            self.owner.resend(exchange)
        elif exchange.status is not None and not self._chunked and not self._sized:
            self._end(None)
        else:
            self._end("reset", str(exc or "the server closed the connection before the response was whole"))

    def give_up(self, error: str, detail: str) -> None:
        """End the exchange in flight as failed and drop the connection."""
        self.usable = False
        self._end(error, detail)
        self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        self.usable = False
        self._count_segments()
        self._transport.close()
