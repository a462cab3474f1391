"""A small HTTP/1.1 server on asyncio's protocols: one write per answer or per step of a stream.

What uvicorn does for vLLM, at a fraction of its CPU time: hundreds of streams have to fit beside the load
client on one core.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(kw_only=True, slots=True)
class HttpRequest:
    """One request, whole. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class HttpReply:
    """The answer to one request: either `send` once, or `start`, `write` any number of times, `finish`."""

    __slots__ = ("_connection", "_parts", "closed", "on_close")

    def __init__(self, connection: "HttpConnection") -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self.closed = False
        self.on_close: Callable[[], None] | None = None

    def send(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Answer with a whole body."""
        kind = f"content-type: {content_type}\r\n" if body else ""
        head = self._head(status) + f"content-length: {len(body)}\r\n{kind}\r\n"
        self._connection.end(self, head.encode() + body)

    def start(self, content_type: str) -> None:
        """Begin a stream of chunks."""
        head = self._head(200) + f"content-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        self._connection.transmit(head.encode())

    def write(self, data: bytes) -> None:
        """Add to what the next `flush` sends."""
        self._parts.append(data)

    def flush(self) -> None:
        """Send what was written, as one chunk."""
        if self._parts and not self.closed:
            self._connection.transmit(self._chunk())

    def finish(self) -> None:
        """Send what was written and end the stream."""
        if not self.closed:
            self._connection.end(self, (self._chunk() if self._parts else b"") + b"0\r\n\r\n")

    def _chunk(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _head(self, status: int) -> str:
        return f"HTTP/1.1 {status} {_PHRASES[status]}\r\ndate: {formatdate(usegmt=True)}\r\nserver: uvicorn\r\n"


class HttpConnection(asyncio.Protocol):
    """One client's connection. Requests that come before the last is answered wait their turn."""

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._waiting: deque[HttpRequest] = deque()
        self._reply: HttpReply | None = None
        self._keep_alive = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection stands."""
        # uvloop's transports are not asyncio's by class.
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone, and with it whoever waited for the answer."""
        self._server.connections.discard(self)
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.closed = True
            if reply.on_close is not None:
                reply.on_close()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came in."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transmit(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.close()

    def on_message_begin(self) -> None:
        """httptools: a request begins."""
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        """httptools: the target, or a piece of it."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        self._keep_alive = self._parser.should_keep_alive()
        request = HttpRequest(
            method=self._parser.get_method().decode(),
            path=self._url.decode("latin-1").partition("?")[0],
            headers=self._headers,
            body=b"".join(self._body),
        )
        if self._reply is None:
            self._answer(request)
        else:
            self._waiting.append(request)

    def transmit(self, data: bytes) -> None:
        """Send bytes, unless the client is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self, reply: HttpReply, data: bytes) -> None:
        """Send the last bytes of an answer and take the next request."""
        if reply is not self._reply:
            return
        self.transmit(data)
        reply.closed = True
        self._reply = None
        if not self._keep_alive:
            self.close()
        elif self._waiting:
            self._answer(self._waiting.popleft())

    def close(self) -> None:
        """Close once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def _answer(self, request: HttpRequest) -> None:
        self._reply = HttpReply(self)
        self._server.handle(request, self._reply)


class HttpServer:
    """Gives every request to `handle`."""

    def __init__(self, handle: Callable[[HttpRequest, HttpReply], None]) -> None:
        self.handle = handle
        self.connections: set[HttpConnection] = set()

    def connection(self) -> HttpConnection:
        """The protocol of a new connection."""
        return HttpConnection(self)
