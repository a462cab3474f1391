import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loadgen.broken_server import DONE, END, HEAD, USAGE, Answer, chunk, event, serving, stream
from loadgen.offered import failure, observed, offered
from tokenpeak.loadgen.job import LoadJob, run_job
from tokenpeak.records import RunRecord


def measure(url: str, folder: Path, level: dict[str, Any] | None = None, **keys: Any) -> RunRecord:
    synthetic = {"kind": "synthetic", "input_tokens": 8, "output_tokens": 3}
    given = keys.pop("workload", {})
    workload = {"name": "x", **(given if "kind" in given else synthetic | given)}
    run = {"run_index": 0, "workload": workload, "level": level or {"concurrency": 1, "requests": 2}}
    job = LoadJob.model_validate({"base_url": url, "model": "m", "output_dir": folder, "runs": [run], **keys})
    return run_job(job)[0]


def failures(answer: Answer, folder: Path, **keys: Any) -> dict[str, int]:
    with serving(answer) as url:
        return measure(url, folder, **keys).summary.failures


def test_refused() -> None:
    """A port where nobody listens is counted as refused."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert ["refused"] == [reply.error for reply in offered(f"http://127.0.0.1:{port}")]


def test_reset_mid_stream() -> None:
    """A connection that is reset after a token is counted as reset."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    assert "reset" == failure(answer)


def test_closed_mid_stream() -> None:
    """A stream that ends in the middle of its chunks is counted as reset."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    assert "reset" == failure(answer)


def test_stalled_stream(tmp_path: Path) -> None:
    """A stream that stops sending is given up after the stall limit."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()))
        connection.recv(1)

    assert {"stalled": 1} == failures(answer, tmp_path, level={"concurrency": 1, "requests": 1}, stall_s=0.3)


@pytest.mark.parametrize("status", [429, 500])
def test_error_status_with_body(status: int) -> None:
    """An error status is a kind of its own, and what its body said is kept."""

    def answer(connection: socket.socket, request: bytes) -> None:
        body = b'{"error":"too busy"}'
        connection.sendall(b"HTTP/1.1 %d Oops\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    (reply,) = observed(answer)

    assert (f"http_{status}", '{"error":"too busy"}') == (reply.error, reply.detail)


@pytest.mark.parametrize("broken", [b"data: {oops\n\n", b"data: 5\n\n", b'data: {"choices": 3}\n\n', b"nonsense\n\n"])
def test_malformed_event(broken: bytes) -> None:
    """An event that is not of the API is counted as a malformed stream."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()) + chunk(broken) + chunk(USAGE) + chunk(DONE) + END)

    assert "malformed_stream" == failure(answer)


def test_malformed_response() -> None:
    """Bytes that are no HTTP are counted as a malformed response."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"SMTP says hello\r\n\r\n")

    assert "malformed_response" == failure(answer)


def test_no_usage() -> None:
    """A stream without usage is a failure: its tokens cannot be known."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event(finish="length")) + chunk(DONE) + END)

    assert "no_usage" == failure(answer)


def test_truncated_stream() -> None:
    """A well-formed response that ends before the stream said so is truncated."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()) + END)

    assert "truncated" == failure(answer)


def test_error_event() -> None:
    """An error that the server reports in an event is counted as such."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event()) + chunk(b'data: {"error":{"message":"died"}}\n\n') + chunk(DONE) + END)

    assert "stream_error" == failure(answer)


def test_event_split_across_packets() -> None:
    """However the response's bytes are cut into packets, its tokens are all seen."""

    def answer(connection: socket.socket, request: bytes) -> None:
        for byte in stream():
            connection.sendall(bytes([byte]))

    assert [(None, 3, 3)] * 2 == [
        (reply.error, reply.output_tokens, reply.events) for reply in observed(answer, requests=2)
    ]


def test_many_events_in_a_packet() -> None:
    """Events that arrive together are all counted, at the same moment."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(event() * 2 + event(finish="length") + USAGE + DONE) + END)

    (reply,) = observed(answer)

    assert (3, 3, bytes(8)) == (reply.output_tokens, reply.events, reply.event_times_us)


def test_slow_headers() -> None:
    """A head that dribbles in is waited for."""

    def answer(connection: socket.socket, request: bytes) -> None:
        whole = stream()
        for start in range(0, 60, 6):
            connection.sendall(whole[start : start + 6])
            time.sleep(0.01)
        connection.sendall(whole[60:])

    assert [None, None] == [reply.error for reply in observed(answer, requests=2)]


def test_events_with_crlf_and_comments() -> None:
    """Streams with CRLF line ends and comments are read like any other."""

    def answer(connection: socket.socket, request: bytes) -> None:
        body = (b": ping\n\n" + event() + event() + event(finish="length") + USAGE + DONE).replace(b"\n", b"\r\n")
        connection.sendall(HEAD + chunk(body) + END)

    assert [(None, 3, 3)] == [(reply.error, reply.output_tokens, reply.events) for reply in observed(answer)]


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


def test_failed_requests_are_rows(tmp_path: Path) -> None:
    """Each failed request is a row of the Parquet file with its status and kind."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

    failures(answer, tmp_path)

    rows = pl.read_parquet(tmp_path / "requests.parquet")
    assert [(503, "http_503")] * 2 == rows.select("status", "error").rows()


def test_every_request_failing_ends_the_run_early(tmp_path: Path) -> None:
    """A run whose requests all fail does not go on to its bound, and says so in its verdict."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

    with serving(answer) as url:
        record = measure(url, tmp_path, level={"concurrency": 8, "requests": 200})

    assert "stopped" in [reason.code for reason in record.verdict.reasons]


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
