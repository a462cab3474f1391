"""A small server that answers as an engine does, and misbehaves on request: `standin.py serve MODEL --port P …`.

Node tests start it as a real process in place of an engine or of production, because it is up in a tenth of a second.
"""

import argparse
import json
import os
import signal
import socketserver
import sys
import threading
import time

PATHS = {
    "completion": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
    "rerank": "/v1/rerank",
}
ANSWERS: "dict[str, dict[str, object]]" = {
    "completion": {"choices": [{"text": "!"}]},
    "chat": {"choices": [{"message": {"role": "assistant", "content": "!"}}]},
    "embedding": {"data": [{"index": 0, "embedding": [0.1, -0.2]}]},
    "rerank": {"results": [{"index": 0, "relevance_score": 0.9}, {"index": 1, "relevance_score": 0.1}]},
}


class Handler(socketserver.StreamRequestHandler):
    """/health, /metrics, /v1/models and /v1/completions; with VLLM_API_KEY set, /v1 needs it."""

    model = ""
    version: str | None = None
    kind = "completion"
    takes_s = 0.0
    running = 0
    lock = threading.Lock()

    def handle(self) -> None:
        """Answer requests until the other end has no more; http.server takes four times as long to be imported."""
        while line := self.rfile.readline():
            method, path, _ = line.decode().split()
            headers = {}
            while (field := self.rfile.readline().decode().strip()) != "":
                name, _, value = field.partition(":")
                headers[name.lower()] = value.strip()
            body = self.rfile.read(int(headers.get("content-length", 0)))
            is_allowed = self._allowed(headers)
            self.get(path, is_allowed) if method == "GET" else self.post(path, json.loads(body), is_allowed)
            if headers.get("connection", "").lower() == "close":
                return

    def _answer(self, status: int, body: object) -> None:
        self._answer_text(json.dumps(body), status)

    def _answer_text(self, text: str, status: int = 200) -> None:
        raw = text.encode()
        self.wfile.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)

    @staticmethod
    def _allowed(headers: "dict[str, str]") -> bool:
        key = os.environ.get("VLLM_API_KEY")
        return key is None or headers.get("authorization") == f"Bearer {key}"

    def get(self, path: str, is_allowed: bool) -> None:
        if path == "/health":
            self._answer(200, {})
        elif path == "/metrics":
            self._answer_text(f'vllm:num_requests_running{{model_name="{self.model}"}} {float(Handler.running)}\n')
        elif path == "/version" and self.version:
            self._answer(200, {"version": self.version})
        elif not is_allowed:
            self._answer(401, {"error": "Unauthorized"})
        elif self.kind == "health":
            self._answer(404, {"detail": "Not Found"})
        else:
            self._answer(200, {"data": [{"id": self.model}]})

    def post(self, path: str, body: "dict[str, object]", is_allowed: bool) -> None:
        if not is_allowed:
            self._answer(401, {"error": "Unauthorized"})
        elif body["model"] != self.model:
            self._answer(404, {"error": f"The model {body['model']} does not exist."})
        elif path != PATHS.get(self.kind):
            self._answer(404, {"detail": "Not Found"})
        else:
            self._count(1)
            time.sleep(self.takes_s)
            self._count(-1)
            self._answer(200, {"model": self.model, **ANSWERS[self.kind]})

    def _count(self, more: int) -> None:
        with self.lock:
            Handler.running += more


class Server(socketserver.ThreadingTCPServer):
    """One thread a connection."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Quiet: a client that hangs up is no error."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--start-s", type=float, default=0.0)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--worker", action="store_true", help="start a child that outlives its parent")
    parser.add_argument("--die", help="print this and exit with status 1")
    parser.add_argument("--reports", help="the version that /version says; without, there is no such page")
    parser.add_argument("--kind", default="completion", choices=[*PATHS, "health"], help="all that it answers")
    parser.add_argument("--tls", help="a PEM file of a certificate and its key: https")
    parser.add_argument("--takes-s", type=float, default=0.0, help="how long a completion takes")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--say", nargs="*", default=[], help="words to print")
    options = parser.parse_args()
    print(*options.say, flush=True)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.worker:
        import subprocess

        worker = subprocess.Popen(
            [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
        )
        print(f"worker {worker.pid}", flush=True)
    if options.die:
        sys.exit(options.die)
    time.sleep(600 if options.hang else options.start_s)
    Handler.model, Handler.version = options.model, options.reports
    Handler.kind, Handler.takes_s = options.kind, options.takes_s
    server = Server((options.host, options.port), Handler)
    if options.tls:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
