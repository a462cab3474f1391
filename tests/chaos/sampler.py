"""Asks production for a completion and the engine for its health every 100 ms: `sampler.py ADDRESS MODEL FILE`.

It runs in the node's network namespace, so that a cut cable is no silence of production's. One JSON object a line: `t`
(unix seconds, when the answer was complete or given up), `production` and `engine` (whether they answered), and
`listens` (whether somebody accepts connections on the engine's port).
"""

import json
import socket
import sys
import time

PERIOD_S = 0.1
ANSWER_S = 1.5


def ask(address: str, port: int, request: bytes, timeout_s: float = ANSWER_S) -> tuple[bool, bytes]:
    """Whether somebody listens there, and what comes back until the connection closes."""
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(request)
            said = b""
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                piece = connection.recv(65536)
                if not piece:
                    break
                said += piece
            return True, said
    except TimeoutError:
        return True, b""
    except OSError:
        return False, b""


def completion(model: str) -> bytes:
    """A request for one token."""
    body = json.dumps({"model": model, "prompt": "The", "max_tokens": 1}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def main() -> None:
    """Sample until this process is ended."""
    address, model, path = sys.argv[1:]
    health = b"GET /health HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    with open(path, "a", buffering=1) as stream:  # noqa: PTH123 - standard library alone, at its simplest
        while True:
            began = time.monotonic()
            _, said = ask(address, 8000, completion(model))
            listens, healthy = ask(address, 8099, health)
            sample = {
                "t": round(time.time(), 3),
                "production": said.startswith(b"HTTP/1.1 200") and b'"choices"' in said and model.encode() in said,
                "engine": healthy.startswith(b"HTTP/1.1 200"),
                "listens": listens,
            }
            stream.write(json.dumps(sample) + "\n")
            time.sleep(max(0.0, PERIOD_S - (time.monotonic() - began)))


if __name__ == "__main__":
    main()
