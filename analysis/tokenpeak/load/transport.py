"""httpx's public seam around the raw connection: `httpx.AsyncClient(transport=RawTransport(server))`.

Runs do not go through it, by measurement: per token, httpx's response stream passes every chunk through several async
generators and a queue, which costs several times what `Connection.data_received` does (`make bench` prints both), and
it shows a chunk when the reader's task is next scheduled, not when it came. Through this transport the packets are
stamped all the same: `response.extensions["exchange"]` holds them.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from time import perf_counter

import httpx
from httptools import HttpParserError, HttpResponseParser

from tokenpeak.load.connection import Connection, Exchange


class _Reading(Exchange):
    """An exchange that tells its reader whenever there is more."""

    __slots__ = ("more",)

    def __init__(self) -> None:
        super().__init__(0, perf_counter())
        self.more = asyncio.Event()


class _Head:
    """Status, headers and bodies as the parser hands them out."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.bodies: list[bytes] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True

    def on_body(self, body: bytes) -> None:
        self.bodies.append(body)


class _NotifyingConnection(Connection):
    """A connection that wakes the reader of its exchange with each packet."""

    def data_received(self, data: bytes) -> None:
        """Keep and stamp the packet, then tell the reader."""
        exchange = self.exchange
        super().data_received(data)
        if isinstance(exchange, _Reading):
            exchange.more.set()


class _Body(httpx.AsyncByteStream):
    def __init__(self, transport: "RawTransport", exchange: _Reading, head: _Head, parser: HttpResponseParser) -> None:
        self._transport = transport
        self._exchange = exchange
        self._head = head
        self._parser = parser

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._head.bodies:
                yield self._head.bodies.pop(0)
            if not await self._transport.advance(self._exchange, self._parser):
                break
        while self._head.bodies:
            yield self._head.bodies.pop(0)

    async def aclose(self) -> None:
        self._transport.release(self._exchange)


class RawTransport(httpx.AsyncBaseTransport):
    """Carries httpx's requests over raw connections, which are kept and used again without a limit on their number."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int], list[Connection]] = {}
        self._connections: dict[Exchange, tuple[tuple[str, int], Connection]] = {}
        self._fed: dict[Exchange, int] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; gives its response once the head has come."""
        tls = request.url.scheme == "https"
        key = (request.url.host, request.url.port or (443 if tls else 80))
        exchange = _Reading()
        body = await request.aread()
        lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
        lines += [b"%b: %b" % (name, value) for name, value in request.headers.raw]
        payload = b"\r\n".join(lines) + b"\r\n\r\n" + body
        try:
            connection = await self._connection(key, tls=tls)
        except OSError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        self._connections[exchange] = (key, connection)
        self._fed[exchange] = 0
        connection.send(exchange, payload)
        head = _Head()
        parser = HttpResponseParser(head)
        while not head.complete:
            if not await self.advance(exchange, parser) and not head.complete:
                self.release(exchange)
                raise httpx.RemoteProtocolError(exchange.detail or "no response came", request=request)
        return httpx.Response(
            parser.get_status_code(),
            headers=head.headers,
            stream=_Body(self, exchange, head, parser),
            request=request,
            extensions={"exchange": exchange},
        )

    async def _connection(self, key: tuple[str, int], *, tls: bool) -> Connection:
        idle = self._idle.setdefault(key, [])
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        context = ssl.create_default_context() if tls else None
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            lambda: _NotifyingConnection(self, direct_writes=not tls), key[0], key[1], ssl=context
        )
        return made

    async def advance(self, exchange: Exchange, parser: HttpResponseParser) -> bool:
        """Parse the next packets, waiting for them if need be; False when there are no more."""
        assert isinstance(exchange, _Reading)
        while self._fed[exchange] >= len(exchange.packets):
            if exchange.ended is not None:
                if exchange.error is not None:
                    raise httpx.ReadError(exchange.detail)
                return False
            exchange.more.clear()
            await exchange.more.wait()
        try:
            while self._fed[exchange] < len(exchange.packets):
                parser.feed_data(exchange.packets[self._fed[exchange]])
                self._fed[exchange] += 1
        except HttpParserError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        return True

    def ended(self, connection: Connection, exchange: Exchange) -> None:
        """The response is whole, or never will be."""
        if isinstance(exchange, _Reading):
            exchange.more.set()

    def gone(self, connection: Connection) -> None:
        """The server closed an idle connection; it is skipped when its turn comes."""

    def resend(self, exchange: Exchange) -> None:
        """The server had closed the kept connection: httpx's caller decides whether to ask again."""
        assert isinstance(exchange, _Reading)
        exchange.error = "reset"
        exchange.detail = "the server closed the kept connection"
        exchange.ended = perf_counter()
        exchange.more.set()

    def release(self, exchange: Exchange) -> None:
        """The reader is done: the connection may serve another request if the response was whole."""
        key, connection = self._connections.pop(exchange, (None, None))
        self._fed.pop(exchange, None)
        if key is None or connection is None:
            return
        if exchange.ended is None:
            connection.give_up("abandoned", "the reader stopped before the end")
        elif connection.usable:
            self._idle[key].append(connection)

    async def aclose(self) -> None:
        """Close the idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
