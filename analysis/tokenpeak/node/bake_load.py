"""Test load of a bake: completions one after the other on a few connections, where the inventory allows it.

Production's own metrics measure them, as they do its clients' requests.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
from typing import Any
from urllib.parse import urlsplit

from tokenpeak.node import serving
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_answer
from tokenpeak.node.production.identity import OfProduction

PROMPT_WORDS = 100
OUTPUT_TOKENS = 32
TIMEOUT_S = 120.0
_PAUSE_S = 0.5
_WORDS = ("river", "stone", "morning", "letter", "window", "garden", "winter", "paper", "engine", "signal")


class BakeLoad:
    """So many connections that ask for completions while the block runs; who answers is checked on each of them."""

    def __init__(self, declared: Json, check: OfProduction, concurrency: int) -> None:
        self._declared = declared
        self._check = check
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(concurrency)]
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._named: str | None = None
        self.sent = 0
        self.failed = 0
        self.failure: str | None = None

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _work(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._is_over.is_set():
            try:
                if connection is None:
                    connection = self._connected()
                self._ask(connection)
            except (OSError, ValueError, http.client.HTTPException, ScriptError) as error:
                self._count(str(error) or type(error).__name__)
                if connection is not None:
                    connection.close()
                connection = None
                self._is_over.wait(_PAUSE_S)
        if connection is not None:
            connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(str(self._declared["url"]))
        kind: Any = http.client.HTTPConnection
        options: dict[str, Any] = {}
        if parts.scheme == "https":
            kind = http.client.HTTPSConnection
            options = {"context": ssl.create_default_context(cafile=self._declared.get("ca_file"))}
        made: http.client.HTTPConnection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S, **options)
        # The key goes out on the connection that was checked.
        made.auto_open = 0
        made.connect()
        self._check(made.sock)
        return made

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        headers = {"Content-Type": "application/json"}
        key = serving.key_from_file(self._declared.get("api_key_file"))
        if key:
            headers["Authorization"] = f"Bearer {key}"
        model = self._model(connection, headers)
        # A prompt of its own each time: nothing of it is in a cache.
        words = " ".join(random.choice(_WORDS) for _ in range(PROMPT_WORDS))  # noqa: S311
        text = f"{random.randrange(1 << 60):x} {words}"  # noqa: S311
        kind = str(self._declared.get("answers_with") or "completion")
        body: Json = {"model": model, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "ignore_eos": True}
        if kind == "chat":
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
        else:
            path, body["prompt"] = "/v1/completions", text
        connection.request("POST", path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        said = response.read(serving.ANSWER_LIMIT_BYTES)
        self._count(
            None if response.status == 200 else f"HTTP {response.status}: {shown_answer(said.decode(errors='replace'))}"
        )

    def _model(self, connection: http.client.HTTPConnection, headers: dict[str, str]) -> str:
        """The model that production names, asked once."""
        if self._named is None:
            connection.request("GET", "/v1/models", headers=headers)
            response = connection.getresponse()
            found = serving.parsed(response.read(serving.ANSWER_LIMIT_BYTES).decode(errors="replace"))
            try:
                self._named = str(found["data"][0]["id"])
            except (KeyError, IndexError, TypeError) as error:
                raise ValueError(f"production names no model (HTTP {response.status})") from error
        return self._named

    def _count(self, failure: str | None) -> None:
        with self._lock:
            self.sent += 1
            if failure is not None:
                self.failed += 1
                self.failure = self.failure or failure
