"""A small server that answers as llama.cpp's does, or with `--python` as llama-cpp-python's: a token for each event.

It has none of vLLM's pages; the second has no /health and says no usage in its streams.
"""

import argparse
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN_S = 0.002


class Handler(BaseHTTPRequestHandler):
    """Its pages, and completions of texts and chats that have as many tokens as were asked for."""

    protocol_version = "HTTP/1.1"
    alias = ""
    is_python = False
    key: str | None = None

    def log_message(self, *_: object) -> None:
        """Nothing: a log of requests would be long."""

    def do_GET(self) -> None:
        """The pages."""
        pages: dict[str, str] = {"/v1/models": json.dumps({"object": "list", "data": [{"id": self.alias}]})}
        if not self.is_python:
            gauges = ("requests_processing", "requests_deferred")
            pages["/metrics"] = "".join(f"# TYPE llamacpp:{name} gauge\nllamacpp:{name} 0\n" for name in gauges)
            pages["/health"] = '{"status": "ok"}'
        needs_key = self.path != "/health" and (self.is_python or self.path != "/v1/models")
        if self.path not in pages:
            self._answer(404, '{"detail": "Not Found"}')
        elif needs_key and not self._is_allowed():
            self._answer(401, '{"detail": "Invalid API key"}')
        else:
            self._answer(200, pages[self.path])

    def do_POST(self) -> None:
        """A completion, as one answer or as a stream."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_chat = self.path == "/v1/chat/completions"
        if not self._is_allowed():
            self._answer(401, '{"detail": "Invalid API key"}')
        elif self.path != "/v1/completions" and not is_chat:
            self._answer(404, '{"detail": "Not Found"}')
        elif self.is_python and not is_chat and not isinstance(body["prompt"], str):
            self._answer(422, '{"detail": "Input should be a valid string"}')
        elif body.get("stream"):
            self._stream(body, is_chat=is_chat)
        else:
            choice = {"message": {"role": "assistant", "content": "!"}} if is_chat else {"text": "!"}
            self._answer(200, json.dumps({"model": body["model"], "choices": [choice]}))

    def _stream(self, body: dict[str, Any], *, is_chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = body["max_tokens"]
        if is_chat:
            self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
        for number in range(count):
            time.sleep(TOKEN_S)
            text = f" w{number}"
            self._event({"choices": [{"index": 0, "delta": {"content": text}} if is_chat else {"text": text}]})
        last: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        self._event({"choices": [{**last, **({"delta": {}} if is_chat else {"text": ""})}]})
        if not self.is_python and body.get("stream_options", {}).get("include_usage"):
            self._event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, event: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps({'model': self.alias, **event})}\n\n".encode())

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _is_allowed(self) -> bool:
        return self.key is None or self.headers.get("authorization") == f"Bearer {self.key}"


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    for option in ("--ctx-size", "--n-gpu-layers", "--parallel"):
        parser.add_argument(option, type=int, default=0)
    parser.add_argument("--python", action="store_true")
    given = parser.parse_args()
    print(f"llama_model_loader: loaded meta data from {given.model}", flush=True)
    Handler.alias, Handler.is_python = given.alias, given.python
    Handler.key = os.environ.get("API_KEY" if given.python else "LLAMA_API_KEY")
    ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
