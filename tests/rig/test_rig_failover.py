"""A controller machine that hangs with all its processes while another takes its sweep over, across SSH."""

import dataclasses
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults.bench import Bench
from tests.faults.conftest import boot_node, place  # noqa: F401

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

FENCED = 5


@pytest.fixture
def bench(place: Path, tmp_path: Path) -> Iterator[Bench]:  # noqa: F811
    """A node with systemd, sshd and production, and a controller here."""
    found = Bench(node=boot_node(place, "over1", 151), root=tmp_path / "checkout", state=tmp_path / "first")
    found.prepare()
    yield found
    found.node.testnode("down")
    (place / "known_hosts").unlink(missing_ok=True)


def family(pid: int) -> list[int]:
    """The process and all that descend from it, by the kernel; parents first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def test_machine_that_hung_is_fenced_when_it_wakes_up(bench: Bench) -> None:
    """Its SSH connections live on and are refused; the second one's trials are recorded once, and production serves."""
    first = bench.sweep("pair")
    try:
        assert clock.wait_until(lambda: bench.on_disk("engine.json").exists(), 120), first.said
        stopped = family(first.process.pid)
        send(stopped, signal.SIGSTOP)
        archive = bench.archives()[-1]
        second = dataclasses.replace(bench, state=bench.state.with_name("second"))
        resumed = second.start("sweep", "--resume", archive.name, "--no-report")
        assert clock.wait_until(lambda: " begins" in resumed.said, 180), resumed.said
        send(stopped, signal.SIGCONT)
        statuses = first.wait(60), resumed.wait(300)
    finally:
        first.end()
    trials = [json.loads(path.read_text()) for path in (archive / "trials").glob("[!.]*.json")]
    made = Counter(trial["config"]["name"] for trial in trials if trial["status"] == "ok")

    assert (FENCED, 0) == statuses, first.said + resumed.said
    assert "is carried on by " in first.said.strip().splitlines()[-1]
    assert set(made.values()) == {1}, made
    assert len(made) == 2
    assert bench.answers()
