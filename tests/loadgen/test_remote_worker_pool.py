"""Load hosts against real local servers: processes of this machine stand for hosts, one of them with another clock."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loadgen.broken_server import serving
from loadgen.test_generator import SYNTHETIC, Listener, bodies, measure, requests
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.job import LoadJob, Status, read_outcome
from tokenpeak.loadgen.run import run_job
from tokenpeak.loadgen.workers import local, remote
from tokenpeak.node.machine.clock import wait_until
from tokenpeak.records import RunRecord

pytestmark = pytest.mark.integration

HOST = [sys.executable, "-m", "tokenpeak.loadgen.workers.remote"]
ELSEWHEN = ["unshare", "--time", "--monotonic", "100000", "--fork", *HOST]
"""A host whose clock is more than a day ahead of ours."""


def hosts(**argv: list[str]) -> list[dict[str, Any]]:
    return [{"name": name, "argv": words} for name, words in (argv or {"one": HOST, "two": HOST}).items()]


class Counter(Listener):
    """Counts, for each run of a job, the requests in flight and keeps their prompts."""

    def __init__(self) -> None:
        super().__init__(pause_s=0.03)
        self.at_once_by_run: dict[int, int] = {}
        self.heard_by_run: dict[int, list[bytes]] = {}

    def follow(self, status: Status) -> None:
        """A run begins once the one before has ended."""
        if status.phase == "loading" and status.run_index not in self.heard_by_run:
            self.heard, self.at_once = [], 0
            self.heard_by_run[status.run_index] = self.heard
        self.at_once_by_run[status.run_index] = self.at_once


@dataclass(frozen=True)
class Shared:
    """What two hosts did of a closed loop, then of a timetable and a search."""

    records: tuple[RunRecord, ...]
    rows: pl.DataFrame
    server: Counter

    def requests(self, run: int) -> pl.DataFrame:
        """The requests of a run."""
        return self.rows.filter(pl.col("run_index") == run)


SEARCH = {
    "max_rate_under": {"ttft_p95_ms": 2000},
    "budget_s": 5,
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """A job of two hosts."""
    folder = tmp_path_factory.mktemp("job")
    levels = [
        {"concurrency": 5, "requests": 41},
        {"rate_per_s": 50, "requests": 31, "arrivals": "constant"},
        SEARCH,
    ]
    runs = [{"run_index": index, "workload": SYNTHETIC, "level": level} for index, level in enumerate(levels)]
    server = Counter()
    with serving(server) as url:
        job = {"base_url": url, "model": "m", "output_dir": folder, "runs": runs, "hosts": hosts()}
        records = run_job(LoadJob.model_validate(job), server.follow)
    return Shared(records, requests(folder), server)


def test_hosts_share_a_closed_loop(shared: Shared) -> None:
    """Two hosts keep as many requests in flight as asked, together; the result is one run with every request once."""
    record = shared.records[0]

    assert 5 == shared.server.at_once_by_run[0]
    assert 41 == record.summary.requests_ok
    assert 2 == record.client.processes
    assert list(range(41)) == shared.requests(0)["request_index"].to_list()
    assert [("one", 21), ("two", 20)] == [(host.load_host, host.requests) for host in record.client.hosts]


def test_hosts_share_a_timetable(shared: Shared) -> None:
    """Each request of an open loop is due at its own time, whoever sends it, with a prompt of its own."""
    due = shared.requests(1)["due_s"].to_list()
    prompts = [tuple(body["prompt"]) for body in bodies(shared.server.heard_by_run[1])]
    # Both begin at one moment, as far as this machine is not too busy to wake them.
    assert [index / 50 for index in range(31)] == pytest.approx([moment - due[0] for moment in due], abs=0.2)
    assert (31, 31) == (shared.records[1].summary.requests_ok, len(set(prompts)))


def test_search_is_shared(shared: Shared) -> None:
    """A search for the highest rate offers each probe from all hosts."""
    record = shared.records[2]

    assert record.max_rate is not None
    saturating, *others = record.max_rate.probes
    assert saturating.concurrency is not None
    assert any(probe.concurrency is None for probe in others)
    assert ["one", "two"] == [host.load_host for host in record.client.hosts]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="a clock of its own needs root")
def test_host_with_another_clock(tmp_path: Path) -> None:
    """A host whose clock is a day ahead begins with the others, and its requests stand where they belong."""
    probe = subprocess.run([*ELSEWHEN[:5], "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("this kernel has no time namespaces")
    with serving(Listener()) as url:
        level = {"rate_per_s": 50, "requests": 31, "arrivals": "constant"}
        record = measure(url, tmp_path, level, hosts=hosts(one=HOST, two=ELSEWHEN))

    due = requests(tmp_path)["due_s"].to_list()
    assert [index / 50 for index in range(31)] == pytest.approx([moment - due[0] for moment in due], abs=0.2)
    assert all(host.clock_error_s < 0.1 for host in record.client.hosts)


@pytest.mark.parametrize(("blow", "why"), [(signal.SIGKILL, "it ended"), (signal.SIGSTOP, "it said nothing")])
def test_host_that_is_lost_condemns_the_run(
    blow: signal.Signals, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that dies or freezes makes the run invalid by its name, and ends the job instead of shrinking it."""
    monkeypatch.setattr(remote, "SILENCE_S", 3.0)
    monkeypatch.setattr(local, "_END_S", 0.2)
    pid = tmp_path / "pid"
    doomed = ["sh", "-c", f'echo $$ > "{pid}"; exec "$@"', "sh", *HOST]

    listener = Listener(pause_s=0.05)

    def strike() -> None:
        while len(listener.heard) < 30:
            time.sleep(0.02)
        os.kill(int(pid.read_text()), blow)

    level = {"concurrency": 4, "duration_s": 300}
    runs = [{"run_index": index, "workload": SYNTHETIC, "level": level} for index in range(2)]
    striker = threading.Thread(target=strike)
    with serving(listener) as url:
        striker.start()
        began = time.monotonic()
        with pytest.raises(LoadError, match=f"Load host doomed was lost: {why}"):
            measure(url, tmp_path, level, runs=runs, hosts=hosts(steady=HOST, doomed=doomed))
        took_s = time.monotonic() - began
    striker.join()

    (record,) = (RunRecord.model_validate(raw) for raw in json.loads((tmp_path / "runs.json").read_text()))
    (reason,) = (reason for reason in record.verdict.reasons if reason.code == "load_host_lost")
    assert ("invalid", True) == (record.verdict.status, "doomed" in reason.text)
    assert "doomed" in str(read_outcome(tmp_path).lost_host)
    assert requests(tmp_path).filter(pl.col("error").is_null()).height > 10
    assert took_s < 60


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["/nowhere/python"], "No such file"),
        (["sh", "-c", "echo 'ssh: no route to host' >&2; exit 255"], "no route to host"),
    ],
)
def test_host_that_does_not_answer_is_named(
    argv: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that cannot be reached, or greets with something else, is an error before any load is offered."""
    monkeypatch.setattr(local, "_END_S", 0.2)
    listener = Listener()
    with serving(listener) as url, pytest.raises(LoadError, match=rf"Load host gone was lost: .*{why}"):
        measure(url, tmp_path, {"concurrency": 2, "requests": 4}, hosts=hosts(gone=argv))

    # Only the parent's own question for the words that the model knows.
    assert [] == [body for body in listener.bodies() if body.get("stream")]


def test_host_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of the client are two instruments."""
    monkeypatch.setattr(remote, "source_digest", lambda: "another")
    with serving(Listener()) as url, pytest.raises(LoadError, match="another version of TokenPeak"):
        measure(url, tmp_path, {"concurrency": 2, "requests": 4}, hosts=hosts(one=HOST))


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(further for child in children for further in descendants(child))]


@pytest.mark.parametrize(("keys", "processes"), [({}, 1), ({"hosts": hosts()}, 4)], ids=["here", "hosts"])
def test_processes_end_with_their_parent(keys: dict[str, Any], processes: int, tmp_path: Path) -> None:
    """A load client that is killed while a server keeps it waiting leaves nobody sending, here or on its hosts."""
    listener = Listener(pause_s=20)
    with serving(listener) as url:
        job = tmp_path / "job.json"
        run = {"run_index": 0, "workload": SYNTHETIC, "level": {"concurrency": 4, "duration_s": 60}}
        job.write_text(json.dumps({"base_url": url, "model": "m", "output_dir": str(tmp_path), "runs": [run], **keys}))
        parent = subprocess.Popen([Path(sys.executable).with_name("tokenpeak"), "load", "--job", job])
        assert wait_until(lambda: len(listener.heard) == 4, 60)
        found = descendants(parent.pid)
        parent.kill()
        parent.wait()

        assert processes == len(found)
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found), 60)
