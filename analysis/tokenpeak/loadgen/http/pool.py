"""Connection pool: the idle connections of a run.

They are kept and used again, the last used first; a server that closes an idle one costs nothing. An open loop keeps a
few ready, so that connecting does not delay a request that is due.
"""

import asyncio
import ssl
from pathlib import Path

from tokenpeak.loadgen.assignment import Target
from tokenpeak.loadgen.http.connection import Connection, Owner
from tokenpeak.results.network import Segments

SPARE_CONNECTIONS = 16
OPENING_SPARES = 4
CONNECTING_AT_ONCE = 64


def tls_context(*, verify: bool, ca_file: str | Path | None) -> ssl.SSLContext:
    """Which certificates a server's own is checked against: those of the system, and those of a file."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def connect_failure(error: OSError) -> str:
    """The kind of a failure to connect."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ssl.SSLError):
        return "tls_failed"
    return "connect_timeout" if isinstance(error, TimeoutError) else "connect_failed"


class ConnectionPool:
    """Idle connections to a target, for an owner that is notified of its exchanges' ends."""

    def __init__(self, target: Target, owner: Owner) -> None:
        self._target = target
        self._owner = owner
        self._context = tls_context(verify=target.verify, ca_file=target.ca_file) if target.tls else None
        self.segments = Segments()
        self._idle: list[Connection] = []
        self._opening_spares = 0

    async def connect(self) -> Connection:
        """A new connection, for its caller alone; raises OSError."""
        target, context = self._target, self._context
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._owner, direct_writes=context is None, segments=self.segments),
            target.host,
            target.port,
            ssl=context,
            server_hostname=target.host if context is not None else None,
        )
        return connection

    async def open_ahead(self, number: int) -> None:
        """Have `number` connections ready before the first request is due."""
        gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

        async def one() -> None:
            async with gate:
                await self._open()

        await asyncio.gather(*(one() for _ in range(number)))

    async def _open(self) -> None:
        try:
            self._idle.insert(0, await self.connect())
        except OSError:
            # The request that needs this connection will meet the same failure and be counted.
            return

    def take(self) -> Connection | None:
        """A connection that is ready; None when a new one must be made."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def put(self, connection: Connection) -> None:
        """A connection has done its work and may serve again."""
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """The server has closed an idle connection."""
        if connection in self._idle:
            self._idle.remove(connection)

    def spares_wanted(self) -> int:
        """How many calls of `open_spare` are due, a few at a time; each must follow."""
        wanted = min(SPARE_CONNECTIONS - len(self._idle), OPENING_SPARES) - self._opening_spares
        wanted = max(0, wanted)
        self._opening_spares += wanted
        return wanted

    async def open_spare(self) -> None:
        """Make one connection more than is needed now."""
        try:
            await self._open()
        finally:
            self._opening_spares -= 1

    def close(self) -> None:
        """Close them all."""
        for connection in self._idle:
            connection.close()
