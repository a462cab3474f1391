"""A server that passes for another: it takes a port as soon as it is free, and prints each API key that it hears."""

import argparse
import json
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers as a server of `model` would; without a key it may keep silent, so that nobody notices it before."""

    model = ""
    discreet = False
    protocol_version = "HTTP/1.1"

    def _answer(self, body: object) -> None:
        key = self.headers.get("Authorization")
        if key:
            print("heard", key, flush=True)
        elif self.discreet:
            self.close_connection = True
            return
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        self._answer({"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"model": self.model, "choices": [{"text": "!"}]})

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    """Listens on a socket that is bound already."""

    def __init__(self, bound: socket.socket, address: tuple[str, int]) -> None:
        super().__init__(address, Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.server_activate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--discreet", action="store_true", help="answer nobody who shows no key")
    options = parser.parse_args()
    Handler.model, Handler.discreet = options.model, options.discreet
    print("waits", flush=True)
    while True:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((options.host, options.port))
            bound.listen()
        except OSError:
            bound.close()
            time.sleep(0.01)
            continue
        print("bound", flush=True)
        Server(bound, (options.host, options.port)).serve_forever()


if __name__ == "__main__":
    main()
