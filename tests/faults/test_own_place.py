"""Faults that have a place of their own: broken engines, full disks, a production that will not start, a lost lease."""

import copy
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.bench import LEASE_S, MACHINE, SLACK_S, SPEC, Bench
from tests.faults.conftest import boot_node, number_of
from tests.faults.test_matrix import PHASES
from tests.rig.conftest import STATE

from tokenpeak.node.machine import clock
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.faults]

Record = Callable[[str, object], None]

BROKEN = {
    "hang_at_start": "hung",
    "oom_at_start": "out_of_memory",
    "crash_after_requests:3": "",
    "ignore_sigterm": None,
}
"""What the simulated engine is to do → the cause that is recorded; empty: any; None: the trial succeeds."""


def broken_spec() -> dict[str, Any]:
    """A sweep whose every engine is broken in its own way."""
    spec = copy.deepcopy(SPEC)
    faults = [{"name": fault.split(":")[0], "env": {"TOKENPEAK_SIM_FAULT": fault}} for fault in BROKEN]
    spec["axes"] = {"fault": faults}
    spec["deadlines"]["engine_ready_s"] = 12
    spec["deadlines"]["run_s"] = 15
    return spec


def test_broken_engines(bench: Bench, record_property: Record) -> None:
    """Hanging, out of memory, crashing under load, deaf to SIGTERM: each is recorded, and production is back."""
    record_property("cell", "engine hangs, is out of memory, crashes under load, ignores SIGTERM")
    bench.write_spec("broken", broken_spec())

    controller = bench.sweep("broken")
    status = controller.wait(400)
    trials = list(Archive(bench.archives()[-1]).trials())
    causes = {trial.config.name.split("=")[-1]: trial.failure and trial.failure.cause for trial in trials}

    assert 0 == status, controller.said
    for fault, cause in BROKEN.items():
        found = causes[fault.split(":")[0]]
        assert (cause is None and found is None) or (cause == "" and found) or found == cause, causes
    # A hang says nothing of the config, so it is launched again.
    launches = Counter(trial.config.name.split("=")[-1] for trial in trials)
    assert {"hang_at_start": 2, "oom_at_start": 1, "crash_after_requests": 1, "ignore_sigterm": 1} == launches
    assert all(trial.restoration and trial.restoration.restored for trial in trials)
    bench.check_as_it_was()


@pytest.fixture
def small(place: Path) -> Iterator[Bench]:
    """A node whose disk can be filled."""
    home = place / f"small-{time.monotonic_ns()}"
    number = number_of(place)
    node = boot_node(place, f"s{number}", 120 + number, disk="1400m")
    made = Bench(node=node, root=home / "checkout", state=home / "state")
    try:
        # A full disk is the node's, not the simulated boards': what these hold lies in memory.
        node.sh("mkdir", "-p", MACHINE, "/run/boards")
        node.sh("ln", "-s", "/run/boards", f"{MACHINE}/state")
        made.prepare()
        yield made
    finally:
        node.testnode("down")
        (place / "known_hosts").unlink(missing_ok=True)


FILLER, REST = "/root/filler", "/root/filler-rest"


def started_at(bench: Bench) -> str:
    """When production last became active; it moves by any restart."""
    names = "NRestarts,ActiveEnterTimestampMonotonic,MainPID"
    return bench.node.sh("systemctl", "show", "-p", names, "prod.service")


STRUCK = "/run/disk-filled"

FILLING_SYSTEMCTL = f"""#!/bin/sh
# A launch holds the node's lock when it asks systemd for production's state, and then writes its record.
if [ -e {STATE}/lock.json ] && [ ! -e {STRUCK} ]; then
  touch {STRUCK}
  fallocate -l "$(df --output=avail -B1 /root | tail -1)" {FILLER}
  cat /dev/zero > {REST} 2>/dev/null
fi
exec /usr/bin/systemctl "$@"
"""


def let_recording_fill_the_disk(bench: Bench) -> None:
    """The node's disk is full once the next launch has looked at production, before it writes its record."""
    path = "/usr/local/bin/systemctl"
    bench.node.write(path, FILLING_SYSTEMCTL)
    bench.node.sh("chmod", "755", path)


@pytest.mark.faults_ci
def test_disk_full_while_recording(small: Bench, record_property: Record) -> None:
    """Production is not touched when the record cannot be written; with room again the sweep is completed."""
    record_property("cell", "node's disk full while recording")
    let_recording_fill_the_disk(small)
    before = started_at(small)
    controller = small.sweep()
    status = controller.wait(400)
    after = started_at(small)
    struck = small.node.sh("sh", "-c", f"ls {STRUCK} {FILLER}")
    answered = small.answers()
    small.node.sh("rm", FILLER, REST)

    archive = small.finish_sweep(before=0, controller=controller)

    assert f"{FILLER}\n{STRUCK}" == struck.strip()
    assert "No space left" in controller.said
    assert status == 1
    assert before == after
    assert answered
    small.check_archive(archive)
    small.check_as_it_was()


def test_production_refuses_always(bench: Bench, record_property: Record) -> None:
    """Loud, with an exit status, and the guard keeps trying until production starts."""
    record_property("cell", "production refuses to start, always")
    controller, before = bench.begin(PHASES["under load"])
    bench.node.sh("touch", "/root/refuse", "/root/always")
    status = controller.wait(400)
    armed = bench.is_armed()
    clock.wait_until(lambda: "giving the node back" in guard_log(bench), LEASE_S + 20, poll_s=0.5)
    tried = guard_log(bench)
    bench.node.sh("rm", "/root/refuse", "/root/always")
    mended = time.monotonic()
    # The guard's pauses grow to a minute at the most.
    bench.recovered_s(mended, within_s=75 + bench.production_start_s)

    archive = bench.finish_sweep(before=before, controller=controller)

    assert (1, True) == (status, armed)
    assert "PROBLEM" in controller.said
    assert "production is not back" in controller.said
    assert "giving the node back" in tried
    bench.check_archive(archive)
    bench.check_as_it_was()


def guard_log(bench: Bench) -> str:
    return bench.node.sh("journalctl", "-b", "--no-pager", "-u", "tokenpeak-guard-*")


def main_pid(bench: Bench) -> str:
    return bench.node.sh("systemctl", "show", "-p", "MainPID", "--value", "prod.service").strip()


@pytest.mark.faults_ci
def test_guard_fires_twice(bench: Bench, record_property: Record) -> None:
    """A second firing, and a third together with `tokenpeak restore`, change nothing."""
    record_property("cell", "guard fired twice")
    controller, before = bench.begin(PHASES["under load"])
    struck = time.monotonic()
    controller.end()
    recovered_s = bench.recovered_s(struck, within_s=LEASE_S + bench.production_start_s + SLACK_S)
    record_property("recovered_s", round(recovered_s, 2))
    served_by = main_pid(bench)
    units = bench.node.sh("systemctl", "list-unit-files", "--no-legend", "tokenpeak-guard-*.service").split()[0]
    bench.node.sh("systemctl", "start", units)
    bench.node.sh("sh", "-c", f"systemctl start {units} & python3 {STATE}/tokenpeak-node.pyz guard --state {STATE}")
    restored = json.loads(bench.node.sh("python3", f"{STATE}/tokenpeak-node.pyz", "restore", "--state", STATE))

    assert restored["restoration"]["restored"]
    assert served_by == main_pid(bench)
    bench.check_archive(bench.finish_sweep(before=before, controller=controller))
    bench.check_as_it_was()
