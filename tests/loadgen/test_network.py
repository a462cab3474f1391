"""An interrupted path is distinguished from an engine that paused, in namespaces of their own with a real link."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest

from loadgen.replies import reply, steady
from loadgen.test_verdict import codes
from tokenpeak.loadgen.http.stream import Reply
from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import run_job
from tokenpeak.records import ClientHealth, NetworkHealth, RunRecord
from tokenpeak.results.network import outages
from tokenpeak.results.run_summary import distribution

pytestmark = pytest.mark.integration

ADDRESS = "10.77.1.2"
SERVER = """
import asyncio, sys, time
pause_s = float(sys.argv[1])

async def answer(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = [line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")]
            if length:
                await reader.readexactly(int(length[0].split(b":")[1]))
            if b"/completions" not in head.split(b"\\r\\n")[0]:
                writer.write(b"HTTP/1.1 404 Not Found\\r\\ncontent-length: 0\\r\\n\\r\\n")
                continue
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\n")
            writer.write(b"transfer-encoding: chunked\\r\\n\\r\\n")
            events = [b'{"choices":[{"index":0,"text":" t","finish_reason":null}]}'] * 50
            events += [b'{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":50}}', b"[DONE]"]
            for event in events:
                body = b"data: %b\\n\\n" % event
                writer.write(b"%x\\r\\n%b\\r\\n" % (len(body), body))
                await asyncio.sleep(0.02)
            writer.write(b"0\\r\\n\\r\\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    await asyncio.start_server(answer, "10.77.1.2", 8000)
    print("ready", flush=True)
    while True:
        await asyncio.sleep(3)
        time.sleep(pause_s)

asyncio.run(main())
"""
Measure = Callable[[float, list[tuple[float, str]]], RunRecord]


NUMBERS = itertools.count()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def measure(tmp_path: Path) -> Iterator[Measure]:
    """Measures an engine in a namespace of its own that stands still for so long at times, with its cable's faults."""
    # The kernel takes a namespace's cable away some time after the namespace: the next test's has another name.
    name = f"tpn{os.getpid()}-{next(NUMBERS)}"
    try:
        ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespaces here: {error}")
    ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("addr", "add", "10.77.1.1/32", "peer", f"{ADDRESS}/32", "dev", name)
    ip("link", "set", name, "up")
    ip("-n", name, "addr", "add", f"{ADDRESS}/32", "peer", "10.77.1.1/32", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    servers: list[subprocess.Popen[str]] = []

    def run(pause_s: float, faults: list[tuple[float, str]]) -> RunRecord:
        argv = ["ip", "netns", "exec", name, sys.executable, "-c", SERVER, str(pause_s)]
        servers.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        assert servers[-1].stdout is not None and servers[-1].stdout.readline() == "ready\n"
        workload = {"kind": "synthetic", "name": "x", "input_tokens": 8, "output_tokens": 50}
        run = {"run_index": 0, "workload": workload, "level": {"concurrency": 4, "duration_s": 5}}
        job = {"base_url": f"http://{ADDRESS}:8000", "model": "m", "output_dir": tmp_path, "runs": [run]}
        began = time.monotonic()
        timers: list[Timer] = []

        def status(seen: object) -> None:
            if not timers and getattr(seen, "phase", "") == "loading":
                timers.extend(Timer(at_s, ip, ["-n", name, "link", "set", "eth0", state]) for at_s, state in faults)
                for timer in timers:
                    timer.start()

        record = run_job(LoadJob.model_validate(job), status)[0]
        assert time.monotonic() - began < 120
        return record

    yield run
    for server in servers:
        server.kill()
        server.communicate()
    ip("netns", "del", name)


@pytest.mark.skipif(os.geteuid() != 0, reason="a cable of its own needs root")
@pytest.mark.parametrize(
    ("pause_s", "faults", "expected"),
    [
        pytest.param(0.0, [], [], id="clean", marks=pytest.mark.e2e),
        pytest.param(2.0, [], [], id="engine pauses"),
        pytest.param(0.0, [(2, "down"), (5, "up")], ["network_outage"], id="cut for 3 s", marks=pytest.mark.e2e),
        pytest.param(0.0, [(1, "down"), (2, "up")], ["network_outage"], id="cut for 1 s"),
    ],
)
def test_cable(measure: Measure, pause_s: float, faults: list[tuple[float, str]], expected: list[str]) -> None:
    """A cable that is off during load makes the run invalid; an engine that stands still for 2 s does not."""
    found = [reason.code for reason in measure(pause_s, faults).verdict.reasons]

    assert expected == [code for code in found if code in ("network_outage", "segments_lost")]


def test_outage_is_two_probes_of_two_connections() -> None:
    """One lost probe is a lost segment; two in a row of different connections are an outage, from answer to answer."""
    answers = [[1.0, 2.0, 3.0, 7.0], [1.5, 2.5, 3.5, 6.5]]

    assert ((3.5, 6.5),) == outages(answers, [[4.0, 5.0, 6.0], [4.5, 5.5]])
    assert () == outages(answers, [[4.0], []])
    assert () == outages([[], []], [[4.0], [4.5]])


def found_by(network: NetworkHealth, replies: list[Reply] | None = None) -> list[str]:
    """Reasons against a run with this network; a steady one of 200 requests, two in flight at a time, by default."""
    client = ClientHealth(dispatch_delay_s=distribution([0.0]), loop_lag_s=distribution([0.0]), network=network)
    return codes(replies, client=client)


def test_outage_counts_where_it_was_felt() -> None:
    """Probes that a middlebox drops while tokens flow say nothing; nor does an outage while nothing is in flight."""
    gap = [*steady(40), *(reply(40 + index, 13.5 + 0.25 * index) for index in range(40))]

    assert [] == found_by(NetworkHealth(segments=1000, segments_lost=0, outages_s=((10.0, 13.0),)))
    assert "network_outage" not in found_by(
        NetworkHealth(segments=1000, segments_lost=0, outages_s=((10.6, 13.4),)), gap
    )


@pytest.mark.parametrize(("lost", "expected"), [(3, []), (90, []), (120, ["segments_lost"])])
def test_segments_lost(lost: int, expected: list[str]) -> None:
    """A few lost segments are usual; more than one in a thousand make a run invalid."""
    assert expected == found_by(NetworkHealth(segments=100_000, segments_lost=lost))
