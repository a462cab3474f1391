"""A small server that answers as an engine does, and misbehaves on request: `standin.py serve MODEL --port P …`.

Node tests start it as a real process in place of an engine or of production, because it is up in a tenth of a second.
"""

import argparse
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


class Handler(BaseHTTPRequestHandler):
    """/health, /metrics, /v1/models and /v1/completions; with VLLM_API_KEY set, /v1 needs it."""

    model = ""
    version: str | None = None
    kind = "completion"
    takes_s = 0.0
    running = 0
    lock = threading.Lock()
    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: object) -> None:
        self._answer_text(json.dumps(body), status)

    def _answer_text(self, text: str, status: int = 200) -> None:
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _allowed(self) -> bool:
        key = os.environ.get("VLLM_API_KEY")
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {})
        elif self.path == "/metrics":
            self._answer_text(f'vllm:num_requests_running{{model_name="{self.model}"}} {float(Handler.running)}\n')
        elif self.path == "/version" and self.version:
            self._answer(200, {"version": self.version})
        elif not self._allowed():
            self._answer(401, {"error": "Unauthorized"})
        elif self.kind == "health":
            self._answer(404, {"detail": "Not Found"})
        else:
            self._answer(200, {"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._allowed():
            self._answer(401, {"error": "Unauthorized"})
        elif body["model"] != self.model:
            self._answer(404, {"error": f"The model {body['model']} does not exist."})
        elif self.path != PATHS.get(self.kind):
            self._answer(404, {"detail": "Not Found"})
        else:
            self._count(1)
            time.sleep(self.takes_s)
            self._count(-1)
            self._answer(200, {"model": self.model, **ANSWERS[self.kind]})

    def _count(self, more: int) -> None:
        with self.lock:
            Handler.running += more

    def log_message(self, *_: object) -> None:
        """Quiet."""


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
        worker = subprocess.Popen(
            [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
        )
        print(f"worker {worker.pid}", flush=True)
    if options.die:
        sys.exit(options.die)
    time.sleep(600 if options.hang else options.start_s)
    Handler.model, Handler.version = options.model, options.reports
    Handler.kind, Handler.takes_s = options.kind, options.takes_s
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
