"""A real local server that answers as a script says, one connection at a time in threads; nothing is mocked."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7}}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"

Answer = Callable[[socket.socket, bytes], None]


def event(text: str = " tok", finish: str | None = None) -> bytes:
    """A completion event."""
    reason = "null" if finish is None else f'"{finish}"'
    return f'data: {{"choices":[{{"index":0,"text":"{text}","finish_reason":{reason}}}]}}\n\n'.encode()


def chunk(body: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def stream(tokens: int = 3) -> bytes:
    """A good response."""
    events = [event() for _ in range(tokens - 1)] + [event(finish="length")]
    return HEAD + b"".join(map(chunk, [*events, USAGE, DONE])) + END


def _serve(connection: socket.socket, answer: Answer, other: Answer) -> None:
    with connection:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = connection.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, rest = buffer.partition(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n")[1:]:
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            while len(rest) < length:
                rest += connection.recv(65536)
            body, buffer = rest[:length], rest[length:]
            asked = head.startswith(b"POST") and b"/completions" in head.split(b"\r\n")[0]
            try:
                (answer if asked else other)(connection, head + b"\r\n\r\n" + body)
            except OSError:
                return
            if connection.fileno() < 0:
                return


def not_found(connection: socket.socket, request: bytes) -> None:
    """Nothing is there."""
    connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")


@contextmanager
def serving(answer: Answer, context: ssl.SSLContext | None = None, other: Answer = not_found) -> Iterator[str]:
    """The address of a server that answers each completion request with `answer`, over TLS if given a context.

    `other` answers whatever else is asked.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=greet, args=(connection,), daemon=True).start()

    def greet(connection: socket.socket) -> None:
        try:
            _serve(connection if context is None else context.wrap_socket(connection, server_side=True), answer, other)
        except OSError:
            connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
