"""A way of some length to a server: every byte is passed on, in both directions, after a delay."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(65536):
            loop.call_later(delay_s, writer.write, data)
    except ConnectionError:
        # One end has gone; the other is told.
        pass
    loop.call_later(delay_s, writer.close)


@contextmanager
def delayed(url: str, delay_s: float) -> Iterator[str]:
    """The address of a way to the server at `url` that takes `delay_s` in each direction."""
    parts = urlsplit(url)
    loop = asyncio.new_event_loop()

    async def serve() -> int:
        async def pair(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port)
            await asyncio.gather(_pass_on(reader, far_writer, delay_s), _pass_on(far_reader, writer, delay_s))

        server = await asyncio.start_server(pair, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(serve(), loop).result(10)}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
