"""The way to the node's SSH server, which can be made worse: `relay.py HOST PORT CONTROL` prints its own port.

CONTROL is a file: `open`, `delay SECONDS` (each way), `hang` (nothing is carried), or `drop` (connections are closed
and none is accepted). It is looked at ten times a second.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

LOOK_S = 0.1


class Way:
    """The state of the way, and the connections on it."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self.delay_s = 0.0
        self.clear = asyncio.Event()
        self.clear.set()
        self.is_dropped = False
        self.writers: set[asyncio.StreamWriter] = set()

    async def follow(self) -> None:
        """Do as the control file says."""
        while True:
            words = (self._control.read_text() if self._control.exists() else "open").split() or ["open"]
            self.delay_s = float(words[1]) if words[0] == "delay" else 0.0
            self.is_dropped = words[0] == "drop"
            (self.clear.clear if words[0] == "hang" else self.clear.set)()
            if self.is_dropped:
                for writer in list(self.writers):
                    writer.transport.abort()
            await asyncio.sleep(LOOK_S)


async def carry(way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on what is read, as late as the way is long."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        piece = b"-"
        while piece:
            try:
                piece = await reader.read(1 << 16)
            except OSError:
                piece = b""
            pieces.put_nowait((loop.time() + way.delay_s, piece))

    reading = asyncio.create_task(read())
    with contextlib.suppress(OSError):
        while True:
            due_s, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await way.clear.wait()
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
    writer.close()
    reading.cancel()


async def serve(host: str, port: int, control: Path) -> None:
    """Relay connections until this process is ended."""
    way = Way(control)

    async def relay(near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        if way.is_dropped:
            near_writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            near_writer.transport.abort()
            return
        ends = {near_writer, far_writer}
        way.writers |= ends
        await asyncio.gather(carry(way, near_reader, far_writer), carry(way, far_reader, near_writer))
        way.writers -= ends

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.gather(server.serve_forever(), way.follow())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
