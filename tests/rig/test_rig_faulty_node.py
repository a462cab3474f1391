"""What a real systemd does with units that vanish or are masked, and what a real disk does that turns read-only."""

import json

import pytest
from tests.rig.conftest import PYTHON, STATE, RigNode
from tests.rig.test_rig_guard import answers, given_back, processes

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("rig")]


def test_guard_masked_and_stopped(rig_node: RigNode) -> None:
    """Somebody masks and stops the guard's units during a trial: the lease's channel sees that one watches again."""
    rig_node.declare(production=rig_node.production_unit(enabled=True))
    assert clock.wait_until(lambda: answers(rig_node), 60)
    assert rig_node.node("launch", rig_node.launch_request(lease_s=20))["ready"]
    unit = next(name for name in rig_node.sh("ls", "/etc/systemd/system").split() if name.startswith("tokenpeak-guard"))
    stem = unit.rsplit(".", 1)[0]
    script = (
        f"cd /etc/systemd/system && rm {stem}.service {stem}.timer && systemctl mask -q {stem}.service {stem}.timer && "
        f"systemctl daemon-reload && systemctl stop {stem}.service {stem}.timer"
    )
    rig_node.sh("sh", "-c", script)
    status = rig_node.node("status")
    assert not status["guard_alive"]
    assert f"systemctl unmask {stem}.service {stem}.timer" in status["problem"]

    beats = """for i in 1 2 3; do echo "{\\"number\\": $i, \\"holder\\": \\"sweep-1\\"}"; sleep 1; done"""
    heard = rig_node.sh("sh", "-c", f"({beats}) | {PYTHON} {STATE}/tokenpeak-node.pyz lease --state {STATE}")
    guarded = rig_node.node("status")["guard_alive"]

    assert '"renewals": 3' in heard
    assert guarded
    assert given_back(rig_node, 60), "and it gives the node back when the controller falls silent"
    assert [] == processes(rig_node, "--port 8099")
    rig_node.sh("sh", "-c", f"rm -f /etc/systemd/system/{stem}.*; systemctl daemon-reload")
    assert rig_node.node("install")["guard"] == "systemd"


def test_disk_that_turns_read_only_under_load(rig_node: RigNode) -> None:
    """With systemd too: the engine ends and production answers, though nothing can be written down."""
    rig_node.declare(production=rig_node.production_unit(enabled=True))
    assert clock.wait_until(lambda: answers(rig_node), 60)
    assert rig_node.node("launch", rig_node.launch_request("--worker", lease_s=30))["ready"]
    lease = rig_node.read("lease.json")
    assert lease is not None
    rig_node.sh("sh", "-c", f"rm -rf /opt/ro && cp -a {STATE} /opt/ro")
    rig_node.write("/opt/ro/lease.json", json.dumps({**lease, "renewed_boot_s": 0.0}))

    rig_node.sh("sh", "-c", f"mount --bind /opt/ro {STATE} && mount -o remount,bind,ro {STATE}")
    try:
        came_back = clock.wait_until(lambda: answers(rig_node), 60, poll_s=0.2)
        status = rig_node.node("status")
        left = processes(rig_node, "--port 8099")
    finally:
        rig_node.sh("umount", "-l", STATE)

    assert came_back
    assert f"{STATE} is on a disk that is read-only" in status["problem"]
    assert left == []
    assert given_back(rig_node, 60), "and what could not be recorded is, once the disk can be written"
