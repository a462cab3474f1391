"""Load from two machines over SSH: each has an address, a network cable and an sshd of its own."""

import copy
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import yaml
from tests.faults.bench import SPEC, Bench
from tests.faults.conftest import boot_node, place  # noqa: F401
from tests.rig.conftest import RigNode

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.calibration.network_path import Calibration, NetworkPath
from tokenpeak.loadgen.calibration.test_server_process import serving_argv, started
from tokenpeak.loadgen.job import LoadJob, run_job
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


def test_one_run_over_ssh(pair: list[RigNode], tmp_path: Path) -> None:
    """Two machines keep a closed loop together; what each clock may be wrong by is known and printed."""
    delay_s = delayed("lh2")
    record = offer(pair, tmp_path, {"concurrency": 5, "requests": 31})
    rows = pl.read_parquet(tmp_path / "requests.parquet")

    assert (31, list(range(31))) == (record.summary.requests_ok, rows["request_index"].to_list())
    assert [("lh1", 16), ("lh2", 15)] == [(host.load_host, host.requests) for host in record.client.hosts]
    assert delay_s / 2 < record.client.hosts[1].clock_error_s
    for host in record.client.hosts:
        print(
            f"{host.load_host}: began {host.began_late_s * 1e3:.1f} ms late, clock known to "
            f"{host.clock_error_s * 1e3:.2f} ms; verdict {record.verdict.status}"
        )


def test_cable_is_pulled_during_a_run(pair: list[RigNode], tmp_path: Path) -> None:
    """A load host that is cut off condemns the run by its name; what the other offered stands in the rows."""
    with pytest.raises(LoadError, match="Load host lh2 was lost"):
        offer(pair, tmp_path, {"concurrency": 4, "duration_s": 600}, cut=True)
    (record,) = (RunRecord.model_validate(raw) for raw in json.loads((tmp_path / "runs.json").read_text()))

    assert "invalid" == record.verdict.status
    assert "lh2" in record.verdict.reasons[0].text
    assert record.summary.requests_ok


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


def test_cable_of_a_load_host_is_pulled(yard: Yard) -> None:
    """A load host that is cut off under load makes its run invalid by name; production comes back all the same."""
    spec = copy.deepcopy(SPEC)
    spec["axes"] = {"max_num_seqs": [8]}
    spec["workloads"][0]["levels"] = [{"concurrency": 4, "duration_s": 60}]
    spec["deadlines"] |= {"run_s": 120, "lease_s": 60}
    yard.bench.write_spec("long", spec)
    controller = yard.bench.sweep("long")
    yard.bench.await_phase(controller, lambda _, seen: " load\n" in seen.said)
    time.sleep(5)
    yard.load_hosts[1].testnode("cut")
    status = controller.wait(1200)
    first = next(iter(Archive(yard.bench.archives()[-1]).trials()))

    assert 1 == status
    assert ("interrupted", "load_host_lost") == (first.status, first.failure and first.failure.cause)
    assert first.runs[0].verdict.status == "invalid"
    assert any("lh2" in reason.text for reason in first.runs[0].verdict.reasons)
    assert "Load host lh2 was lost" in controller.said
    yard.bench.check_as_it_was()


def test_calibration_on_the_way_to_a_node(yard: Yard) -> None:
    """A test server is put on the node over SSH, measured from the load hosts, and gone afterwards."""
    bench = yard.bench
    delay_s = delayed(bench.node.name)
    controller = bench.start("calibrate", "--inventory", "rig", "--streams", "2", "--seconds", "1")
    status = controller.wait(900)
    (kept,) = (bench.state / "calibrations").glob("*.json")
    found = Calibration.model_validate_json(kept.read_bytes())

    assert 0 == status, controller.said
    assert NetworkPath(load_hosts=("lh1", "lh2"), server=bench.node.name) == found.network_path
    assert delay_s < found.round_trip_s <= found.points[0].ttft_error_p50_s + 0.01
    assert "timetable" not in bench.node.sh("ps", "-ww", "-eo", "args")
    assert "" == bench.node.sh("find", "/tmp", "-name", "timetable").strip()
    bench.check_as_it_was()
    print(controller.said)
