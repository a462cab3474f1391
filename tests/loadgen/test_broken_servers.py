import json
import socket
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loadgen.broken_server import DONE, END, HEAD, USAGE, Answer, chunk, event, serving, stream
from loadgen.offered import failure, observed
from loadgen.test_generator import measure


def failures(answer: Answer, folder: Path, level: dict[str, Any], **keys: Any) -> dict[str, int]:
    with serving(answer) as url:
        return measure(url, folder, level, **keys).summary.failures


@pytest.mark.parametrize("abruptly", [True, False])
def test_connection_that_ends_mid_stream(*, abruptly: bool) -> None:
    """A connection that is reset or closed within a response is counted as reset."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()))
        if abruptly:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    assert "reset" == failure(answer)


def test_stalled_stream(tmp_path: Path) -> None:
    """A stream that stops sending is given up after the stall limit."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()))
        connection.recv(1)

    assert {"stalled": 1} == failures(answer, tmp_path, level={"concurrency": 1, "requests": 1}, stall_s=0.3)


def test_error_status_with_body() -> None:
    """An error status is a kind of its own, and what its body said is kept."""

    def answer(connection: socket.socket, request: bytes) -> None:
        body = b'{"error":"too busy"}'
        connection.sendall(b"HTTP/1.1 429 Oops\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    (reply,) = observed(answer)

    assert ("http_429", '{"error":"too busy"}') == (reply.error, reply.detail)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (HEAD + chunk(event() + b"data: {oops\n\n" + USAGE + DONE) + END, "malformed_stream"),
        (HEAD + chunk(event() + b'data: {"choices": 3}\n\n' + USAGE + DONE) + END, "malformed_stream"),
        (HEAD + chunk(event() + b"nonsense\n\n" + USAGE + DONE) + END, "malformed_stream"),
        (b"SMTP says hello\r\n\r\n", "malformed_response"),
        (HEAD + chunk(event(finish="length") + DONE) + END, "no_usage"),
        (HEAD + chunk(event()) + END, "truncated"),
        (HEAD + chunk(event() + b'data: {"error":{"message":"died"}}\n\n' + DONE) + END, "stream_error"),
    ],
)
def test_response_that_is_none(response: bytes, kind: str) -> None:
    """What is no HTTP, no stream of the API, has no usage, or ends too soon is a failure of its own kind."""
    assert kind == failure(lambda connection, _: connection.sendall(response))


def test_event_split_across_packets() -> None:
    """However the response's bytes are cut into packets, its tokens are all seen."""

    def answer(connection: socket.socket, request: bytes) -> None:
        for byte in stream():
            connection.sendall(bytes([byte]))

    assert [(None, 3, 3)] * 2 == [
        (reply.error, reply.output_tokens, reply.events) for reply in observed(answer, requests=2)
    ]


def test_stream_that_ends_with_its_connection() -> None:
    """A response without a length ends with its connection, and the next request opens another."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        connection.sendall(event() * 2 + event(finish="length") + USAGE + DONE)
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    assert [None, None] == [reply.error for reply in observed(answer, requests=2)]


def test_server_that_drops_idle_connections() -> None:
    """A server that closes a kept connection costs no request."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(stream())
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    assert {None} == {reply.error for reply in observed(answer, concurrency=2, requests=12)}


def test_every_request_failing_ends_the_run_early(tmp_path: Path) -> None:
    """A run whose requests all fail does not go on to its bound, and says so; each failed request is a row."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

    with serving(answer) as url:
        record = measure(url, tmp_path, level={"concurrency": 8, "requests": 200})
    rows = pl.read_parquet(tmp_path / "requests.parquet").filter(pl.col("status").is_not_null())

    assert "stopped" in [reason.code for reason in record.verdict.reasons]
    assert {(503, "http_503")} == set(rows.select("status", "error").iter_rows())


def test_run_deadline_ends_what_hangs(tmp_path: Path) -> None:
    """At the run's deadline requests in flight are cut and counted."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.recv(1)

    assert {"deadline": 4} == failures(answer, tmp_path, level={"concurrency": 4, "requests": 4}, run_deadline_s=0.5)


def test_good_server(tmp_path: Path) -> None:
    """All three files are written, and say the same."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(stream())

    with serving(answer) as url:
        record = measure(url, tmp_path, level={"concurrency": 4, "requests": 20, "warmup_requests": 4})

    assert [record.model_dump(mode="json")] == json.loads((tmp_path / "runs.json").read_text())
    assert (24, 20) == (pl.read_parquet(tmp_path / "requests.parquet").height, record.summary.requests_ok)
    assert [] == json.loads((tmp_path / "metrics.json").read_text())["t_s"]
