"""What an OpenAI-compatible server on this machine answers: health, model, and a real completion."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tokenpeak.node import trust
from tokenpeak.node.trouble import Trouble


class Answer(NamedTuple):
    """A response: status 0 when no connection or no whole answer came, then `text` says why."""

    status: int
    text: str


def request(
    url: str,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    key: str | None = None,
    timeout_s: float = 5.0,
) -> Answer:
    """One request, one answer; a server that is not there is an answer too."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Trouble("declaration", f"{url!r} is no address of a server: write it like http://127.0.0.1:8000.")
    connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connection_class(parts.hostname, parts.port, timeout=timeout_s)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request(method, parts.path or "/", None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, str(error) or type(error).__name__)
    finally:
        connection.close()


def base_url(host: str, port: int) -> str:
    """The address of a server; IPv6 addresses in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_healthy(url: str) -> bool:
    """Whether `/health` says so."""
    return request(f"{url}/health", timeout_s=2.0).status == 200


def served_model(url: str, key: str | None = None, timeout_s: float = 5.0) -> str | None:
    """The first model that `/v1/models` names; None when none is served."""
    answer = request(f"{url}/v1/models", key=key, timeout_s=timeout_s)
    try:
        found = json.loads(answer.text)["data"][0]["id"] if answer.status == 200 else None
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return found if isinstance(found, str) else None


def complete(url: str, model: str, key: str | None = None, timeout_s: float = 60.0) -> str | None:
    """None when `model` gave a real completion; otherwise what came instead."""
    answer = request(
        f"{url}/v1/completions",
        "POST",
        {"model": model, "prompt": "The", "max_tokens": 1, "temperature": 0},
        key,
        timeout_s,
    )
    if answer.status == 404 and served_model(url, key) == model:
        # A server of chat models only.
        answer = request(
            f"{url}/v1/chat/completions",
            "POST",
            {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0},
            key,
            timeout_s,
        )
    if answer.status != 200:
        return f"HTTP {answer.status}: {answer.text[:300]}" if answer.status else answer.text
    try:
        body = json.loads(answer.text)
        choices, model_said = body["choices"], body.get("model", model)
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"an answer that is no completion: {answer.text[:300]}"
    if not choices:
        return f"a completion without choices: {answer.text[:300]}"
    if model_said != model:
        return f"a completion by {model_said!r}, not {model!r}"
    return None


def key_from_file(path: str | None) -> str | None:
    """The API key in a file that only its owner can read, else Trouble; None when no file is named."""
    return trust.read_secret(path, "tokenpeak_production.api_key_file").strip() if path else None
