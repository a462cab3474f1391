"""Load from two machines over SSH: each has an address, a network cable and an sshd of its own."""

import copy
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.faults.bench import SPEC, Bench
from tests.faults.conftest import boot_node, place  # noqa: F401
from tests.rig.conftest import RigNode

from tokenpeak.load.calibrate import Calibration, Way
from tokenpeak.store.raw import Archive

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
def yard(place: Path, tmp_path: Path) -> Iterator[Yard]:  # noqa: F811
    root = tmp_path / "checkout"
    root.mkdir()
    booted = [boot_node(place, name, 150 + number) for number, name in enumerate(("lhnode", "lh1", "lh2"))]
    bench = Bench(node=booted[0], root=root, state=tmp_path / "state")
    bench.prepare()
    path = root / "inventory" / "rig" / "hosts.yml"
    hosts = yaml.safe_load(path.read_text())
    shared = {name: value for name, value in hosts["all"]["hosts"]["lhnode"].items() if name.startswith("ansible_ssh_")}
    hosts["all"]["children"] = {
        "load_hosts": {
            "hosts": {host.name: {"ansible_host": host.address} for host in booted[1:]},
            "vars": {**shared, "ansible_user": "root", "tokenpeak_load_python": sys.executable},
        }
    }
    path.write_text(yaml.safe_dump(hosts))
    yield Yard(bench=bench, load_hosts=(booted[1], booted[2]), delay_s=delayed("lh2"))
    for node in booted:
        node.testnode("down")
    (place / "known_hosts").unlink(missing_ok=True)


def test_two_load_hosts(yard: Yard) -> None:
    """Both offer their share of every run, from one moment on; each clock's error is known and printed."""
    controller = yard.bench.sweep("pair")
    status = controller.wait(400)
    archive = yard.bench.archives()[-1]
    runs = [run for trial in Archive(archive).trials() for run in trial.runs]

    assert 0 == status, controller.said
    yard.bench.check_archive(archive, configs=2)
    assert [[("lh1", 6), ("lh2", 6)]] * 2 == [
        [(host.load_host, host.requests) for host in run.client.hosts] for run in runs
    ]
    # Half a round trip, of which the delay is most; what this machine adds when it is busy is told as well.
    assert all(yard.delay_s / 2 < run.client.hosts[1].clock_error_s for run in runs)
    for run in runs:
        for host in run.client.hosts:
            print(
                f"{host.load_host}: began {host.began_late_s * 1e3:.1f} ms late, clock known to "
                f"{host.clock_error_s * 1e3:.2f} ms; verdict {run.verdict.status}"
            )


def test_cable_of_a_load_host_is_pulled(yard: Yard) -> None:
    """A load host that is cut off under load makes its run invalid by name; production comes back all the same."""
    spec = copy.deepcopy(SPEC)
    spec["axes"] = {"max_num_seqs": [8]}
    spec["workloads"][0]["levels"] = [{"concurrency": 4, "duration_s": 60}]
    spec["deadlines"] |= {"run_s": 120, "lease_s": 60}
    yard.bench.write_spec("long", spec)
    controller = yard.bench.sweep("long")
    yard.bench.await_phase(controller, lambda _, told: " load\n" in told.said)
    time.sleep(5)
    yard.load_hosts[1].testnode("cut")
    status = controller.wait(400)
    first = next(iter(Archive(yard.bench.archives()[-1]).trials()))

    assert 1 == status
    assert ("interrupted", "load_host_lost") == (first.status, first.failure and first.failure.cause)
    assert first.runs[0].verdict.status == "invalid"
    assert any("lh2" in reason.text for reason in first.runs[0].verdict.reasons)
    assert "Load host lh2 was lost" in controller.said
    yard.bench.check_as_it_was()


def test_calibration_on_the_way_to_a_node(yard: Yard) -> None:
    """A timetable server is put on the node over SSH, measured from the load hosts, and gone afterwards."""
    bench = yard.bench
    delay_s = delayed(bench.node.name)
    controller = bench.start("calibrate", "--inventory", "rig", "--streams", "2", "--seconds", "1")
    status = controller.wait(300)
    (kept,) = (bench.state / "calibrations").glob("*.json")
    found = Calibration.model_validate_json(kept.read_bytes())

    assert 0 == status, controller.said
    assert Way(load_hosts=("lh1", "lh2"), server=bench.node.name) == found.way
    assert delay_s < found.round_trip_s <= found.points[0].ttft_error_p50_s + 0.01
    assert "timetable" not in bench.node.sh("ps", "-eo", "args")
    assert "" == bench.node.sh("find", "/tmp", "-name", "timetable").strip()
    bench.check_as_it_was()
    print(controller.said)
