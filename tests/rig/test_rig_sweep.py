"""Whole sweeps over SSH: two nodes that share the work, and what a trial costs across a slow network."""

import copy
import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import yaml
from tests.faults.bench import SPEC, Bench
from tests.faults.conftest import boot_node, place  # noqa: F401

from tokenpeak.store.raw import Archive

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

DELAY_MS = 10
ORCHESTRATION_LIMIT_S = 8.0


@pytest.fixture
def pair(place: Path, tmp_path: Path) -> Iterator[tuple[Bench, Bench]]:  # noqa: F811
    """Two nodes with production on both, in one inventory."""
    made = []
    for number in (1, 2):
        root = tmp_path / f"checkout-{number}"
        node = boot_node(place, f"pair{number}", 140 + number)
        made.append(Bench(node=node, root=root, state=tmp_path / f"state-{number}"))
        made[-1].prepare()
    first, second = made
    hosts = first.root / "inventory" / "rig" / "hosts.yml"
    both = yaml.safe_load(hosts.read_text())
    other = yaml.safe_load((second.root / "inventory" / "rig" / "hosts.yml").read_text())
    both["all"]["hosts"].update(other["all"]["hosts"])
    hosts.write_text(yaml.safe_dump(both))
    yield first, second
    for bench in made:
        bench.node.testnode("down")
    (place / "known_hosts").unlink(missing_ok=True)


def test_six_configs_on_two_nodes(pair: tuple[Bench, Bench]) -> None:
    """Every config is measured once, both nodes work, none is left unrestored, and each one's downtime is printed."""
    first, _ = pair
    spec = copy.deepcopy(SPEC)
    spec["axes"] = {"max_num_seqs": [8, 16, 32], "max_num_batched_tokens": [512, 2048]}
    spec["deadlines"]["lease_s"] = 30
    first.write_spec("six", spec)

    controller = first.sweep("six")
    status = controller.wait(900)
    archive = first.archives()[-1]
    downtime = dict(re.findall(r"Production of (\S+) was down for (\d+) s", controller.said))
    trials = tuple(Archive(archive).trials())

    assert 0 == status, controller.said
    first.check_archive(archive, configs=6)
    assert {"pair1", "pair2"} == {trial.node for trial in trials}
    assert {"pair1", "pair2"} == set(downtime)
    assert all(int(seconds) > 0 for seconds in downtime.values())
    for bench in pair:
        bench.check_as_it_was()
    print("".join(line for line in controller.lines if "was down for" in line or "for the sweep" in line))


def test_orchestration_across_a_slow_network(pair: tuple[Bench, Bench]) -> None:
    """With 10 ms more on the way there, a trial costs less than 8 s beside the engine, the load and production."""
    bench, _ = pair
    delay = ("qdisc", "add", "dev", f"tp-{bench.node.name}", "root", "netem", "delay", f"{DELAY_MS}ms")
    subprocess.run(["tc", *delay], check=True)
    spec = copy.deepcopy(SPEC)
    spec["deadlines"]["lease_s"] = 30
    bench.write_spec("pair", spec)
    lock = Path(os.environ.get("TOKENPEAK_TIMING_LOCK", "/tmp/tokenpeak-timing.lock"))

    with lock.open("w") as alone:
        # A machine that others keep busy measures them.
        fcntl.flock(alone, fcntl.LOCK_EX)
        controller = bench.start(
            "sweep", "--inventory", "rig", "--node", bench.node.name, "--sweep", "pair", "--no-report"
        )
        status = controller.wait(600)
    trials = tuple(Archive(bench.archives()[-1]).trials())
    costs = [trial.orchestration_s for trial in trials]
    print(f"orchestration with {DELAY_MS} ms of delay: {', '.join(f'{cost:.1f} s' for cost in costs)}")

    assert 0 == status, controller.said
    assert median(costs) < ORCHESTRATION_LIMIT_S
