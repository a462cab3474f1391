"""The fault matrix of apply: whatever strikes in whichever phase, production answers by one of its two definitions."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.apply_bench import CRASH_AT_START, RECOVER_S, ApplyBench
from tests.faults.balancer import balancer, why_no_haproxy
from tests.faults.bench import LEASE_S, Controller, strike_power
from tests.faults.conftest import boot_node, number_of
from tests.faults.test_matrix import node_says

pytestmark = [pytest.mark.faults]

PHASES = {
    "draining": node_says("draining"),
    "stopping": node_says("production_stop"),
    "changing": node_says("changing"),
    "starting": node_says("production_start"),
    "verifying": node_says("verifying"),
    "baking": node_says("baking"),
    "confirming": node_says("confirming"),
}
CELL = "apply: {} × {}"
"""What a cell is called by in the matrix."""
Strike = Callable[[ApplyBench, Controller], None]


def kill(bench: ApplyBench, controller: Controller) -> None:
    """SIGKILL of the controller: the node hears of nobody any more."""
    controller.process.kill()
    controller.wait(5)


def cut(bench: ApplyBench, controller: Controller) -> None:
    """A network that is away for longer than the lease."""
    bench.node.testnode("cut")
    time.sleep(LEASE_S + 6)
    bench.node.testnode("heal")
    controller.wait(400)


def power(bench: ApplyBench, controller: Controller) -> None:
    """Power loss and boot."""
    strike_power(bench)
    bench.node.testnode("kill")
    bench.node.testnode("boot")
    controller.wait(400)


def crash_at_start(bench: ApplyBench, controller: Controller) -> None:
    """From now on the engine ends at its start by the new definition."""
    bench.node.sh("touch", CRASH_AT_START)
    controller.wait(400)


def crash_later(bench: ApplyBench, controller: Controller) -> None:
    """From now on the engine crashes some seconds after its start by the new definition, each time."""
    bench.strike_new("kill", 4)
    controller.wait(400)


def slower(bench: ApplyBench, controller: Controller) -> None:
    """From now on the engine has a fifth of its time by the new definition."""
    bench.strike_new("slow", 0)
    controller.wait(400)


def disk_full(bench: ApplyBench, controller: Controller) -> None:
    """From now on the node's disk has not a byte left; production answers before there is room again."""
    bench.node.sh(
        "sh",
        "-c",
        "fallocate -l $(($(df --output=avail -B1 /root | tail -1))) /root/filler; cat /dev/zero > /root/rest",
    )
    controller.wait(400)
    deadline = time.monotonic() + RECOVER_S
    while not bench.answers():
        assert time.monotonic() < deadline, bench.node.sh("journalctl", "-b", "--no-pager", "-n", "60")
        time.sleep(0.5)


FAULTS: dict[str, Strike] = {
    "SIGKILL": kill,
    "cut": cut,
    "power": power,
    "crash at start": crash_at_start,
    "crash later": crash_later,
    "slower": slower,
    "disk full": disk_full,
}
NOT_CONFIRMED = {
    ("crash at start", "draining"),
    ("crash at start", "stopping"),
    ("crash later", "draining"),
    ("crash later", "verifying"),
    ("slower", "draining"),
    ("slower", "baking"),
    ("SIGKILL", "baking"),
    ("cut", "baking"),
    ("power", "baking"),
}
"""Cells whose fault an apply must see in time: production has its old definition afterwards."""
IN_CI = {("SIGKILL", "changing"), ("power", "changing"), ("crash later", "baking"), ("disk full", "confirming")}
OF_CI = (pytest.mark.faults_ci, pytest.mark.xdist_group("apply in CI"))
"""One process has them: each would make a sweep to apply, which takes longer than a cell."""


@pytest.fixture(scope="module")
def _made(place: Path) -> Iterator[dict[str, ApplyBench]]:
    if reason := why_no_haproxy():
        pytest.skip(reason)
    made: dict[str, ApplyBench] = {}
    yield made
    for bench in made.values():
        bench.node.testnode("down")


@pytest.fixture
def bench(place: Path, _made: dict[str, ApplyBench], request: pytest.FixtureRequest) -> Iterator[ApplyBench]:
    """A node behind HAProxy with a sweep made on it; one that a test has left in disorder is thrown away."""
    number = number_of(place)
    address = f"10.77.0.{150 + number}"
    with balancer(place, 20_000 + 10 * number, {"mine": f"{address}:8000"}) as front:
        if "bench" not in _made:
            home = Path(tempfile.mkdtemp(dir=place, prefix="home-"))
            node = boot_node(place, f"a{number}", 150 + number, disk="1300m")
            # A full disk is the node's, not the simulated boards': what these hold lies in memory.
            node.sh("mkdir", "-p", "/opt/machine", "/run/boards")
            node.write("/etc/tmpfiles.d/boards.conf", "d /run/boards 0755 root root\n")
            node.sh("ln", "-s", "/run/boards", "/opt/machine/state")
            bench = ApplyBench(node=node, root=home / "checkout", state=home / "state", balancer=front, server="mine")
            _made["bench"] = bench
            try:
                bench.prepare()
            except BaseException:
                _made.pop("bench").node.testnode("down")
                raise
        bench = _made["bench"]
        bench.balancer = front
        bench.await_steady(90)
        yield bench
    if getattr(request.node, "went_wrong", False):
        _made.pop("bench").node.testnode("down")
        (place / "known_hosts").unlink(missing_ok=True)
        shutil.rmtree(bench.root.parent, ignore_errors=True)


def cells() -> list[object]:
    """Each fault in each phase."""
    return [
        pytest.param(
            fault,
            phase,
            id=f"{fault}-{phase}".replace(" ", "-"),
            marks=OF_CI if (fault, phase) in IN_CI else (),
        )
        for phase in PHASES
        for fault in FAULTS
    ]


@pytest.mark.parametrize(("fault", "phase"), cells())
def test_apply_cell(bench: ApplyBench, fault: str, phase: str, record_property: Callable[[str, object], None]) -> None:
    """Production answers by its old definition or its new one, whole, as node and controller say, in its balancer."""
    record_property("cell", CELL.format(fault, phase))
    before = len(bench.records())
    controller = bench.begin_apply(PHASES[phase])
    began = time.monotonic()
    try:
        FAULTS[fault](bench, controller)
    finally:
        controller.end()
        bench.heal()
    bench.await_steady(RECOVER_S)
    record_property("recovered_s", round(time.monotonic() - began, 2))
    found = bench.fingerprint()
    confirmed = bench.confirmed_on_node()
    records = bench.records()[before:]

    assert found in (bench.old, bench.new), bench.node.sh("systemctl", "cat", "prod.service")
    assert (found == bench.new) == (confirmed is not None), controller.said
    if (fault, phase) in NOT_CONFIRMED:
        assert found == bench.old, controller.said
    for record in records:
        assert record.status in (("confirmed",) if found == bench.new else ("put_back", "not_begun")), controller.said
    if fault != "SIGKILL":
        assert 1 == len(records)
    if found == bench.new:
        bench.roll_back()
