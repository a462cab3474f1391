"""A longer way to a TCP server: `slow_way.py HOST PORT DELAY_S` prints its own port, and hands on each byte later.

For rigs on kernels without netem. A connection is opened as much later as its bytes arrive.
"""

import asyncio
import contextlib
import sys


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Write what is read, each piece `delay_s` after it came."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        piece = b"-"
        while piece:
            try:
                piece = await reader.read(1 << 16)
            except ConnectionError:
                piece = b""
            pieces.put_nowait((loop.time() + delay_s, piece))

    reading = asyncio.create_task(read())
    with contextlib.suppress(ConnectionError):
        while True:
            due_s, piece = await pieces.get()
            await asyncio.sleep(due_s - loop.time())
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
    writer.close()
    await reading


async def serve(host: str, port: int, delay_s: float) -> None:
    """Relay connections until this process is ended."""

    async def relay(near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * delay_s)
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(carry(near_reader, far_writer, delay_s), carry(far_reader, near_writer, delay_s))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
