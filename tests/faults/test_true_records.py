"""Faults after which the record is held against what was seen of production from outside: a sample each 100 ms."""

import copy
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.faults.bench import LEASE_S, SPEC, Bench
from tests.faults.test_matrix import PHASES

from tokenpeak.node.machine import clock
from tokenpeak.records import EndRecord, TrialRecord
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.faults]

Record = Callable[[str, object], None]

UNDER_LOAD = PHASES["under load"]
TOLERANCE_S = 3.0
"""Of a downtime: production's last and first answer are sampled, and it stops and starts a little beside them."""


class Watch:
    """How long production has not answered, by its own answers alone."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.down_s = 0.0

    def _look(self) -> None:
        last = time.monotonic()
        was_up = True
        while not self._over.wait(0.1):
            is_up = self._bench.answers()
            now = time.monotonic()
            if not is_up and not was_up:
                self.down_s += now - last
            last, was_up = now, is_up

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)


@pytest.fixture
def long(bench: Bench) -> Iterator[Bench]:
    """A node whose trials are under load for half a minute."""
    spec = copy.deepcopy(SPEC)
    spec["axes"] = {"max_num_seqs": [8]}
    spec["workloads"][0]["levels"] = [{"concurrency": 4, "duration_s": 25}]
    spec["deadlines"]["run_s"] = 80
    bench.write_spec("long", spec)
    yield bench
    for pid in stopped(bench):
        os.kill(pid, signal.SIGCONT)


def processes_of(bench: Bench) -> list[int]:
    """Every process of this bench's controllers on this machine, whatever its session."""
    mark = f"TOKENPEAK_STATE={bench.state}\0".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:
            continue
    return found


def stopped(bench: Bench) -> list[int]:
    return [pid for pid in processes_of(bench) if "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()]


def ended(bench: Bench) -> tuple[EndRecord, tuple[TrialRecord, ...]]:
    archive = Archive(bench.archives()[-1])
    end = archive.read_end()
    assert end is not None
    return end, tuple(archive.trials())


def colleague(bench: Bench, folder: Path) -> Bench:
    """Another controller of the same node, with a home of its own."""
    other = Bench(node=bench.node, root=folder / "checkout", state=folder / "state")
    other.root.mkdir(parents=True)
    other._write_home()
    other.write_spec("long", json.loads(json.dumps(LONG_OF_COLLEAGUE)))
    return other


LONG_OF_COLLEAGUE: dict[str, Any] = {
    **SPEC,
    "axes": {"max_num_seqs": [8]},
    "workloads": [{**SPEC["workloads"][0], "levels": [{"concurrency": 4, "duration_s": 40}]}],
    "deadlines": {**SPEC["deadlines"], "run_s": 80, "lease_s": 30},
}


def test_controller_sleeps_and_another_takes_the_node(long: Bench, tmp_path: Path, record_property: Record) -> None:
    """A controller that wakes up after its lease, its node another's, blames no config, and makes the trial again.

    Its own outage, which ended before the other's began, has its true length.
    """
    record_property("cell", "controller suspended, node taken by another")
    with Watch(long) as watch:
        controller, before = long.begin(UNDER_LOAD, "long")
        for pid in processes_of(long):
            os.kill(pid, signal.SIGSTOP)
        assert clock.wait_until(lambda: not long.is_armed() and long.answers(), LEASE_S + 60, poll_s=0.2)
    other = colleague(long, tmp_path)
    second = other.sweep("long")
    assert other.await_phase(second, UNDER_LOAD)
    for pid in stopped(long):
        os.kill(pid, signal.SIGCONT)
    controller.wait(400)
    status = second.wait(250)
    end, trials = ended(long)

    assert ["interrupted"] == sorted({trial.status for trial in trials}), [trial.failure for trial in trials]
    assert pytest.approx(watch.down_s, abs=TOLERANCE_S) == end.production_downtime_s[long.node.name], end
    assert 0 == status, second.said
    other.check_archive(other.archives()[-1])
    long.check_archive(long.finish_sweep(before=before, controller=controller, name="long"))
    long.check_as_it_was()


def test_production_is_started_under_load(long: Bench, record_property: Record) -> None:
    """Noticed within two seconds: the engine goes, production stays, the runs are invalid, the trial is made again."""
    record_property("cell", "production started by somebody under load")
    controller, before = long.begin(UNDER_LOAD, "long")
    time.sleep(2)
    struck = time.monotonic()
    long.node.sh("systemctl", "start", "prod.service")
    noticed = clock.wait_until(lambda: "somebody started production" in controller.said, 6, poll_s=0.05)
    noticed_s = time.monotonic() - struck
    alone = clock.wait_until(lambda: not long.engine_processes(), 10, poll_s=0.1)
    controller.wait(300)
    _, trials = ended(long)

    assert (True, True) == (noticed, alone), controller.said
    # A second for the node's look, and one for what this machine does besides.
    assert noticed_s < 3.0
    assert ("interrupted", "production_overlap") == (trials[0].status, trials[0].failure and trials[0].failure.cause)
    assert all("production_overlap" in [why.code for why in run.verdict.reasons] for run in trials[0].runs)
    assert ["ok"] == [trial.status for trial in trials[1:]]
    long.check_archive(long.finish_sweep(before=before, controller=controller, name="long"))
    long.check_as_it_was()
