"""Load from two machines over SSH: each has an address, a network cable and an sshd of its own."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.faults.bench import Bench
from tests.faults.conftest import boot_node, place  # noqa: F401
from tests.rig.conftest import RigNode

from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import run_job
from tokenpeak.loadgen.test_server import serving_argv, started
from tokenpeak.records import RunRecord
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

DELAY_MS = 10


@dataclass(frozen=True)
class Yard:
    """A node with its controller, and two load hosts, the second further away where the kernel has netem."""

    bench: Bench
    load_hosts: tuple[RigNode, RigNode]
    delay_s: float


def delayed(name: str) -> float:
    """Put delay on a node's cable; how much that is, which is nothing on a kernel without netem."""
    delay = ("qdisc", "add", "dev", f"tp-{name}", "root", "netem", "delay", f"{DELAY_MS}ms")
    return DELAY_MS / 1e3 if subprocess.run(["tc", *delay], check=False).returncode == 0 else 0.0


@pytest.fixture
def pair(place: Path) -> Iterator[list[RigNode]]:  # noqa: F811
    """Two load hosts."""
    booted: list[RigNode] = []
    try:
        booted += [boot_node(place, name, 150 + number) for number, name in enumerate(("lh1", "lh2"))]
        yield booted
    finally:
        for node in booted:
            node.testnode("down")
        (place / "known_hosts").unlink(missing_ok=True)


@pytest.fixture
def yard(place: Path, pair: list[RigNode], tmp_path: Path) -> Iterator[Yard]:  # noqa: F811
    """The same with a node, its production and a controller."""
    root = tmp_path / "checkout"
    root.mkdir()
    node = boot_node(place, "lhnode", 152)
    try:
        bench = Bench(node=node, root=root, state=tmp_path / "state")
        bench.prepare()
        path = root / "inventory" / "rig" / "hosts.yml"
        hosts = yaml.safe_load(path.read_text())
        of_node = hosts["all"]["hosts"]["lhnode"]
        shared = {name: value for name, value in of_node.items() if name.startswith("ansible_ssh_")}
        hosts["all"]["children"] = {
            "load_hosts": {
                "hosts": {host.name: {"ansible_host": host.address} for host in pair},
                "vars": {**shared, "ansible_user": "root", "tokenpeak_load_python": sys.executable},
            }
        }
        path.write_text(yaml.safe_dump(hosts))
        yield Yard(bench=bench, load_hosts=(pair[0], pair[1]), delay_s=delayed("lh2"))
    finally:
        node.testnode("down")


def cut_under_load(host: RigNode, progress: Path) -> None:
    """Pull the host's cable once requests have ended."""
    while not progress.is_file() or json.loads(progress.read_text())["requests_done"] < 8:
        time.sleep(0.2)
    host.testnode("cut")


def offer(pair: list[RigNode], folder: Path, level: dict[str, object], *, cut: bool = False) -> RunRecord:
    """Offer a level from both over SSH to a test server at this machine's end of their cables."""
    workload = {"kind": "synthetic", "name": "timetable", "input_tokens": 16, "output_tokens": 16}
    runs = [{"run_index": 0, "workload": workload, "level": level}]
    client = (sys.executable, "-m", "tokenpeak.loadgen.workers.remote")
    ssh = [(host.name, host.ssh_argv(*client)) for host in pair]
    hosts = [{"name": name, "argv": [argv[0], "-o", "ServerAliveInterval=2", *argv[1:]]} for name, argv in ssh]
    with started(serving_argv("10.77.0.1", 0, 0.05, 0.02)) as port:
        job = {
            "base_url": f"http://10.77.0.1:{port}",
            "model": "timetable",
            "output_dir": folder,
            "runs": runs,
            "hosts": hosts,
            "progress_file": folder / "progress.json",
        }
        if cut:
            threading.Thread(target=cut_under_load, args=(pair[1], folder / "progress.json"), daemon=True).start()
        return run_job(LoadJob.model_validate(job))[0]


def test_two_load_hosts(yard: Yard) -> None:
    """Both offer their share of every run, from one moment on; each clock's error is known and printed."""
    controller = yard.bench.sweep("pair")
    status = controller.wait(1200)
    archive = yard.bench.archives()[-1]
    runs = [run for trial in Archive(archive).trials() for run in trial.runs]

    assert 0 == status, controller.said
    yard.bench.check_archive(archive, configs=2)
    assert [[("lh1", 6), ("lh2", 6)]] * 2 == [
        [(host.load_host, host.requests) for host in run.client.hosts] for run in runs
    ]
    # Half a round trip, of which the delay is most; what this machine adds when it is busy is reported as well.
    assert all(yard.delay_s / 2 < run.client.hosts[1].clock_error_s for run in runs)
    for run in runs:
        for host in run.client.hosts:
            print(
                f"{host.load_host}: began {host.began_late_s * 1e3:.1f} ms late, clock known to "
                f"{host.clock_error_s * 1e3:.2f} ms; verdict {run.verdict.status}"
            )
