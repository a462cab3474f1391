"""What a hostile engine answers ends in rows and a verdict: within bounded memory and time, and the client lives on."""

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from loadgen.broken_server import DONE, END, HEAD, USAGE, Answer, chunk, event, serving
from loadgen.test_broken_servers import failures
from loadgen.test_generator import CONVERSATION
from tokenpeak.loadgen.http.connection import Exchange
from tokenpeak.loadgen.http.metrics_page import Scraper, parse
from tokenpeak.loadgen.http.stream import read
from tokenpeak.node.engine.serving import complete

MEMORY_LIMIT_BYTES = 700 << 20
# What is not bounded is to fail its test, not this machine.
LIMITED = ("prlimit", "--as=6442450944", sys.executable)


def two_requests(url: str) -> tuple[list[str], int]:
    """Why two requests at a time failed, and the most memory that a process of their own took."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    argv = [*LIMITED, "-m", "loadgen.offered", url]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=150, check=True)
    found = json.loads(done.stdout)
    return found["errors"], found["peak_bytes"]


def endless(head: bytes, piece: bytes) -> Answer:
    """Sends a head, then a piece again and again until nobody reads."""

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return answer


@pytest.mark.parametrize(
    ("head", "piece", "kind"),
    [
        pytest.param(HEAD, chunk(event() * 4096), "oversized", id="events", marks=pytest.mark.e2e),
        pytest.param(HEAD, chunk(b": ping\n\n") * 64, "oversized", id="tiny chunks", marks=pytest.mark.e2e),
        pytest.param(HEAD + b"1;", b"a" * (1 << 20), "oversized", id="chunk extension", marks=pytest.mark.e2e),
        pytest.param(b"HTTP/1.1 200 OK\r\nx-filler: ", b"a" * (1 << 20), "malformed_response", id="header"),
    ],
)
def test_endless_answer(head: bytes, piece: bytes, kind: str) -> None:
    """An answer without end is cut at a bound, is a row of its kind, and never fills the memory."""
    with serving(endless(head, piece)) as url:
        errors, peak_bytes = two_requests(url)

    assert [kind, kind] == errors
    assert peak_bytes < MEMORY_LIMIT_BYTES


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda: b"\n\n" * 20_000_000, id="blank lines", marks=pytest.mark.e2e),
        pytest.param(lambda: b'data: {"x": [' + b"[]," * 10_000_000 + b"0]}\n\n", id="lists", marks=pytest.mark.e2e),
        pytest.param(lambda: b'data: {"x": ' + b"[" * 500_000 + b"\n\n", id="depth", marks=pytest.mark.e2e),
        pytest.param(lambda: b'data: {"usage": {"completion_tokens": ' + b"9" * 5_000_000 + b"}}\n\n", id="digits"),
    ],
)
def test_costly_answer(body: Callable[[], bytes]) -> None:
    """An answer within the bound that would cost minutes or gigabytes to parse is malformed."""
    content = HEAD + chunk(event(finish="length")) + chunk(body()) + chunk(USAGE + DONE) + END
    began = time.monotonic()
    with serving(lambda connection, _: connection.sendall(content)) as url:
        errors, peak_bytes = two_requests(url)

    assert ["malformed_stream"] * 2 == errors
    assert peak_bytes < MEMORY_LIMIT_BYTES
    assert time.monotonic() - began < 60


def streamed(events: bytes) -> Exchange:
    """An exchange that these events have answered, in one packet each for head, events and end."""
    exchange = Exchange(0, 0.0)
    exchange.packets = [HEAD, chunk(events), END]
    exchange.times = [0.0] * 3
    exchange.status = 200
    return exchange


@pytest.mark.parametrize("count", ["1" + "0" * 30, "-1", '"3"', "true", "1e400", "[3]"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_counts_that_are_none(name: str, count: str) -> None:
    """A usage that is no count of tokens fails its request, with what it says."""
    counts = {"prompt_tokens": "4", "completion_tokens": "3"} | {name: count}
    usage = ", ".join(f'"{key}": {value}' for key, value in counts.items())
    event_of_usage = b'data: {"choices":[],"usage":{%b}}\n\n' % usage.encode()
    found = read(streamed(event() * 2 + event(finish="length") + event_of_usage + DONE), 0.0)

    assert "bad_usage" == found.error
    assert name in found.detail


def test_odd_answers_in_a_conversation(tmp_path: Path) -> None:
    """A conversation whose answers hold no text goes on or fails by rows; it never hangs."""

    def answer(connection: socket.socket, request: bytes) -> None:
        odd = b'data: {"choices":[{"index":0,"delta":{"content":7},"finish_reason":"length"}]}\n\n'
        odd += b'data: {"choices":[{"index":0,"delta":"x"}]}\n\n' + b'data: {"choices": {"a": 1}}\n\n'
        connection.sendall(HEAD + chunk(odd + USAGE + DONE) + END)

    workload = {**CONVERSATION, "turns": 2}
    began = time.monotonic()
    found = failures(answer, tmp_path, {"concurrency": 1, "requests": 4}, workload=workload, run_deadline_s=30)

    assert 4 == sum(found.values())
    assert time.monotonic() - began < 20


GZIP_HEAD = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"


def bomb(unpacked_mib: int = 256) -> bytes:
    """Gzip of so many mebibytes: a block that refers to nothing before it, again and again."""
    packing = zlib.compressobj(wbits=31)
    first, again = (packing.compress(bytes(1 << 20)) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * (unpacked_mib - 1)


BOMB = bomb()


def drip(connection: socket.socket, request: bytes) -> None:
    """A head that never ends, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


HOSTILE = {
    "drip": drip,
    "endless": endless(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", b"# filler\n" * 10_000),
    "endless head": endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 10_000),
    "gzip bomb": lambda connection, _: connection.sendall(GZIP_HEAD % len(BOMB) + BOMB),
    "never whole": lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nup 1"),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_metrics(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of metrics without end or bound is no page: no memory is filled, and nobody waits for it long."""
    monkeypatch.setattr("tokenpeak.loadgen.http.metrics_page.PAGE_LIMIT_S", 1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with serving(answer, other=answer) as url:
        scraper = Scraper(f"{url}/metrics", {}, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        try:
            assert scraper.sample() is None
        finally:
            scraper.stop()

    assert time.monotonic() - began < 15
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100 << 20


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_metrics_out_of_range(value: str) -> None:
    """A value that no counter can have leaves its metric out."""
    found = parse(f"vllm:num_preemptions {value}\nvllm:num_requests_running 1\n")

    assert {"requests_running": 1.0} == found


ON_NODES = {**HOSTILE, "continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")}
del ON_NODES["gzip bomb"]


@pytest.mark.parametrize("answer", ON_NODES.values(), ids=ON_NODES)
def test_hostile_engine_on_a_node(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's own question to an engine ends too, whatever is answered: no completion, in little memory."""
    monkeypatch.setattr("tokenpeak.node.engine.serving.ENDING_S", 0.2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said: list[str | None] = []
    with serving(answer, other=answer) as url:
        thread = Thread(target=lambda: said.append(complete(url, "m", timeout_s=0.3)), daemon=True)
        thread.start()
        thread.join(10)

    assert 1 == len(said)
    assert said[0] is not None
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100 << 20
