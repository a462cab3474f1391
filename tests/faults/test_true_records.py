"""Faults after which the record is held against what was seen of production from outside: a sample each 100 ms."""

import copy
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.faults.bench import LEASE_S, SLACK_S, SPEC, Bench, Controller
from tests.faults.test_matrix import PHASES
from tests.faults.test_own_place import lease_processes
from tests.rig.conftest import STATE

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
    controller.wait(250)
    status = second.wait(250)
    end, trials = ended(long)

    assert ["interrupted"] == sorted({trial.status for trial in trials}), [trial.failure for trial in trials]
    assert pytest.approx(watch.down_s, abs=TOLERANCE_S) == end.production_downtime_s[long.node.name], end
    assert 0 == status, second.said
    other.check_archive(other.archives()[-1])
    long.check_archive(long.finish_sweep(before=before, controller=controller, name="long"))
    long.check_as_it_was()


def test_finish_does_not_get_through(long: Bench, record_property: Record) -> None:
    """The lease ends when the trial's end cannot reach the node; the guard gives back, and the downtime is true."""
    record_property("cell", "SSH hangs for all but the lease")
    with Watch(long) as watch:
        controller, before = long.begin(UNDER_LOAD, "long")
        listener = hang_ssh(long, controller)
        # Load, then three attempts of SSH at 15 s would each go by with the lease renewed.
        assert clock.wait_until(lambda: not long.is_armed() and long.answers(), 25 + 15 + LEASE_S + SLACK_S + 10, 0.2)
        long.node.sh("kill", "-CONT", listener)
        status = controller.wait(400)
    end, trials = ended(long)

    assert "interrupted" == trials[0].status
    assert ["ok"] == [trial.status for trial in trials[1:]], controller.said
    assert 1 == status
    assert pytest.approx(watch.down_s, abs=TOLERANCE_S) == end.production_downtime_s[long.node.name]
    assert not end.open_downtime_s
    long.check_archive(long.finish_sweep(before=before, controller=controller, name="long"))
    long.check_as_it_was()


def hang_ssh(bench: Bench, controller: Controller) -> str:
    """Cut the connection of a trial's steps and let new ones wait for ever; the lease's stays. The listener's pid."""

    def look() -> list[list[str]]:
        return [line.split(None, 2) for line in bench.node.sh("ps", "-ww", "-eo", "pid,ppid,args").splitlines()[1:]]

    def leases(rows: list[list[str]]) -> list[str]:
        return [pid for pid, _, args in rows if " lease --state" in args and "ssh" not in args.split()[0]]

    # A channel that was cut by a busy machine is opened again.
    assert clock.wait_until(lambda: bool(leases(look())), 10, poll_s=0.2), controller.said
    rows = look()
    listener = next(pid for pid, _, args in rows if args.startswith("sshd: /usr/sbin/sshd"))
    parents = {pid: parent for pid, parent, _ in rows}
    lease = leases(rows)[0]
    kept = {lease}
    while parents.get(lease, "0") not in ("0", listener):
        lease = parents[lease]
        kept.add(lease)
    assert lease_processes(controller)
    bench.node.sh("kill", "-STOP", listener)
    for pid, parent, args in rows:
        if parent == listener and pid not in kept and args.startswith("sshd:"):
            bench.node.sh("kill", "-KILL", pid)
            for child, of, _ in rows:
                if of == pid:
                    bench.node.sh("kill", "-KILL", child)
    return str(listener)


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


def test_production_that_refuses_for_a_while_is_down_once(bench: Bench, record_property: Record) -> None:
    """An outage that one attempt could not end and the next did is counted once."""
    record_property("cell", "production refuses to start, for a while")
    spec = copy.deepcopy(SPEC)
    spec["axes"] = {"max_num_seqs": [8]}
    spec["deadlines"]["production_ready_s"] = 10
    bench.write_spec("brief", spec)
    with Watch(bench) as watch:
        controller, before = bench.begin(UNDER_LOAD, "brief")
        bench.node.sh("touch", "/root/refuse", "/root/always")
        assert clock.wait_until(lambda: "production is not back" in controller.said, 120, poll_s=0.1)
        bench.node.sh("rm", "/root/refuse", "/root/always")
        controller.wait(300)
        assert clock.wait_until(lambda: not bench.is_armed() and bench.answers(), 90, poll_s=0.2)
        bench.finish_sweep(before=before, controller=controller, name="brief")
    end, _ = ended(bench)

    assert pytest.approx(watch.down_s, abs=TOLERANCE_S) == end.production_downtime_s[bench.node.name]
    bench.check_as_it_was()


def test_node_that_is_lost_was_down(long: Bench, record_property: Record) -> None:
    """Of a node that is not reached again, the outage is said as far as it is known, and wholly once it is resumed."""
    record_property("cell", "node lost under load, for good")
    with Watch(long) as watch:
        controller, before = long.begin(UNDER_LOAD, "long")
        down_before_s = watch.down_s
        long.node.testnode("cut")
        controller.process.send_signal(signal.SIGINT)
        assert clock.wait_until(lambda: "Again: " in controller.said, 30)
        controller.process.send_signal(signal.SIGINT)
        controller.wait(300)
        lost, _ = ended(long)
        said = controller.said
        assert clock.wait_until(lambda: not long.is_armed(), LEASE_S + 60, poll_s=0.2)
    outcome = json.loads(long.on_disk("outcome.json").read_text())
    long.node.testnode("heal")
    assert clock.wait_until(long.answers, 30)
    long.finish_sweep(before=before, controller=controller, name="long")
    end, trials = ended(long)
    others = [trial.restoration for trial in trials if trial.restoration and trial.trial_id != outcome["trial_id"]]
    made_s = sum(restoration.downtime_s or 0.0 for restoration in others)

    assert lost.production_downtime_s[long.node.name] > down_before_s
    assert lost.production_downtime_s[long.node.name] < outcome["downtime_s"] + 0.5
    assert "was down for at least" in said
    assert "down for 0 s" not in said
    assert pytest.approx(outcome["downtime_s"] + made_s, abs=0.5) == end.production_downtime_s[long.node.name]
    long.check_as_it_was()


def test_state_folder_turns_read_only_under_load(long: Bench, record_property: Record) -> None:
    """The guard gives back, which no disk can note; the config is not blamed, and its trial is made again."""
    record_property("cell", "node's state folder read-only under load")
    with Watch(long) as watch:
        controller, before = long.begin(UNDER_LOAD, "long")
        long.node.sh("mount", "--bind", STATE, STATE)
        long.node.sh("mount", "-o", "remount,bind,ro", STATE)
        status = controller.wait(400)
        assert clock.wait_until(long.answers, LEASE_S + 60, poll_s=0.2)
    end, trials = ended(long)
    long.node.sh("umount", STATE)

    assert 1 == status
    assert ["interrupted"] == sorted({trial.status for trial in trials}), [trial.failure for trial in trials]
    assert "Read-only file system" in controller.said
    assert "tokenpeak sweep --resume " in controller.said
    assert pytest.approx(watch.down_s, abs=TOLERANCE_S) == end.production_downtime_s[long.node.name], end
    assert clock.wait_until(lambda: not long.is_armed(), 90, poll_s=0.2)
    long.check_archive(long.finish_sweep(before=before, controller=controller, name="long"))
    long.check_as_it_was()


def test_path_of_the_load_is_cut(long: Bench, record_property: Record) -> None:
    """The engine's port is cut off while SSH and lease live: the trial says network_outage, and is made again."""
    record_property("cell", "load's network path cut, SSH lives")
    rule = ("INPUT", "-p", "tcp", "--dport", "8099", "-s", "10.77.0.1", "-j", "DROP")
    controller, before = long.begin(UNDER_LOAD, "long")
    time.sleep(3)
    long.node.sh("iptables", "-A", *rule)
    assert clock.wait_until(lambda: "network_outage" in controller.said, 200, poll_s=0.2), controller.said
    long.node.sh("iptables", "-D", *rule)
    controller.wait(300)
    _, trials = ended(long)

    assert ("interrupted", "network_outage") == (trials[0].status, trials[0].failure and trials[0].failure.cause)
    assert ["ok"] == [trial.status for trial in trials[1:]], controller.said
    long.check_archive(long.finish_sweep(before=before, controller=controller, name="long"))
    long.check_as_it_was()


@pytest.mark.parametrize("banner", ["Welcome to gpu1.\\n", "Maintenance on Friday: "], ids=["a line", "an open line"])
def test_login_shell_that_prints(bench: Bench, banner: str, record_property: Record) -> None:
    """A banner before each answer changes nothing: the sweep is completed, and production is known to be back."""
    record_property("cell", "login shell prints a banner")
    bench.node.write("/root/.bashrc", f"printf '{banner}'\n")
    try:
        greeted = subprocess.run(bench.node.ssh_argv("true"), capture_output=True, text=True, check=True).stdout
        controller = bench.sweep()
        status = controller.wait(300)
        restored = bench.start("restore", "--inventory", "rig")
        shown = bench.start("status", "--inventory", "rig")
        ends = (restored.wait(120), shown.wait(120))
    finally:
        bench.node.sh("rm", "/root/.bashrc")
    _, trials = ended(bench)

    assert greeted
    assert 0 == status, controller.said
    assert (0, 0) == ends, restored.said + shown.said
    assert ["ok"] == [trial.status for trial in trials]
    bench.check_as_it_was()
