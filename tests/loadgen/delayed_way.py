"""A way of some length to a server: every byte is passed on, in both directions, after a delay."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(65536):
            loop.call_later(delay_s, writer.write, data)
        await asyncio.sleep(delay_s)
    finally:
        writer.close()


async def _way(host: str, port: int, delay_s: float, ports: "queue.Queue[int]", enough: threading.Event) -> None:
    async def pair(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(
            _pass_on(reader, far_writer, delay_s), _pass_on(far_reader, writer, delay_s), return_exceptions=True
        )

    server = await asyncio.start_server(pair, "127.0.0.1", 0)
    ports.put(int(server.sockets[0].getsockname()[1]))
    await asyncio.to_thread(enough.wait)
    server.close()


@contextmanager
def delayed(url: str, delay_s: float) -> Iterator[str]:
    """The address of a way to the server at `url` that takes `delay_s` in each direction."""
    parts = urlsplit(url)
    ports: queue.Queue[int] = queue.Queue()
    enough = threading.Event()
    way = _way(str(parts.hostname), int(parts.port or 80), delay_s, ports, enough)
    thread = threading.Thread(target=asyncio.run, args=(way,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=30)}"
    finally:
        enough.set()
        thread.join(30)
