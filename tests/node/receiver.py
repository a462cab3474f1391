"""A webhook's receiver: a server that answers as its test wants, and keeps what it got."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """Where it listens, and each request's headers and body."""

    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def receiver(statuses: Sequence[int] = (), *, hangs: bool = False) -> Iterator[Receiver]:
    """A receiver that answers with these statuses and then with 204, or that takes a request and never answers."""
    known, left, is_over = Receiver(), list(statuses), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.got.append((dict(self.headers), body))
            if hangs:
                is_over.wait(60)
                return
            status = left.pop(0) if left else 204
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", f"{known.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    known.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()
