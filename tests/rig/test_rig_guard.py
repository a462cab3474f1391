"""Production comes back on machines with a real systemd, whatever dies."""

import json

import pytest
from tests.rig.conftest import PYTHON, STATE, RigNode

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("rig")]


def processes(node: RigNode, word: str) -> list[str]:
    """Command lines on the node that hold a word."""
    return [line for line in node.sh("ps", "-ww", "-eo", "args").splitlines() if word in line]


def given_back(node: RigNode, within_s: float) -> bool:
    return clock.wait_until(lambda: node.answers() and node.read("record.json") is None, within_s, poll_s=0.2)


def test_power_loss(rig_node: RigNode) -> None:
    """After a power loss in the middle of a trial, the node boots into production, though it is not enabled."""
    rig_node.declare(production=rig_node.production_unit(enabled=False))
    assert clock.wait_until(rig_node.answers, 60)
    assert rig_node.node("launch", rig_node.launch_request(lease_s=600))["ready"]

    rig_node.testnode("kill")
    rig_node.testnode("boot")

    assert given_back(rig_node, 30)
    outcome = rig_node.read("outcome.json")
    assert outcome is not None
    assert ("guard", True) == (outcome["by"], outcome["restored"])
    assert [] == processes(rig_node, "serve tiny")


def test_guard_is_killed(rig_node: RigNode) -> None:
    """A guard that is killed comes back by itself and does its work."""
    rig_node.declare(production=rig_node.production_unit(enabled=True))
    assert clock.wait_until(rig_node.answers, 60)
    assert rig_node.node("launch", rig_node.launch_request(lease_s=6))["ready"]
    guard = rig_node.read("guard.json")
    assert guard is not None

    rig_node.sh("kill", "-9", str(guard["pid"]))

    assert given_back(rig_node, 30)


def test_launch_killed_while_production_stops(rig_node: RigNode) -> None:
    """A launch that is killed while production is stopping leaves a node that gives itself back.

    The stop goes on without it, and production answers for as long as that takes: no stranger, and not yet back.
    """
    production = rig_node.production_unit(enabled=True)
    rig_node.sh("sed", "-i", "s/Restart=always/ExecStop=sleep 8/", "/etc/systemd/system/prod.service")
    rig_node.sh("systemctl", "daemon-reload")
    rig_node.declare(production=production)
    assert clock.wait_until(rig_node.answers, 60)
    rig_node.write("/root/request.json", json.dumps(rig_node.launch_request(lease_s=3)))

    launch = f"{PYTHON} {STATE}/tokenpeak-node.pyz launch --state {STATE} --request /root/request.json"
    stopping = f"grep -q production_stop {STATE}/phase.json && test -e {STATE}/record.json"
    rig_node.sh("sh", "-c", f"{launch} & until {stopping}; do sleep 0.1; done; sleep 0.3; kill -9 $!")
    outcomes = rig_node.read("outcome.json")

    assert rig_node.read("record.json") is not None
    assert given_back(rig_node, 40)
    outcome = rig_node.read("outcome.json")
    assert outcome is not None
    assert outcomes is None
    assert "guard" == outcome["by"]
    assert outcome["restored"]
    assert "failed" not in rig_node.sh("journalctl", "-b", "--no-pager", "-u", "tokenpeak-guard-*")


def test_production_that_was_down(rig_node: RigNode) -> None:
    """Production that was stopped on purpose stays stopped, though it is enabled."""
    rig_node.declare(production=rig_node.production_unit(enabled=True))
    rig_node.sh("systemctl", "stop", "prod.service")

    rig_node.node("launch", rig_node.launch_request(lease_s=2))

    assert clock.wait_until(lambda: rig_node.read("record.json") is None, 20, poll_s=0.2)
    assert "inactive" == rig_node.sh("systemctl", "is-active", "prod.service").strip()


def test_production_that_is_started_and_dies_at_once(rig_node: RigNode) -> None:
    """Somebody's start that lasts a tenth of a second, as where the engine has the memory, is noticed all the same."""
    production = rig_node.production_unit(enabled=True)
    rig_node.declare(production=production)
    assert clock.wait_until(rig_node.answers, 60)
    launched = rig_node.node("launch", rig_node.launch_request())
    rig_node.sh("sleep", "2")
    before = rig_node.read("overlap.json")
    dying = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'sleep 0.1; exit 1'\nRestart=no\n"
    rig_node.sh("mkdir", "-p", "/run/systemd/system/prod.service.d")
    rig_node.write("/run/systemd/system/prod.service.d/dying.conf", dying)
    rig_node.sh("systemctl", "daemon-reload")

    rig_node.sh("systemctl", "start", "prod.service")
    is_noticed = clock.wait_until(lambda: rig_node.read("overlap.json") is not None, 3, poll_s=0.1)
    rig_node.sh("rm", "-r", "/run/systemd/system/prod.service.d")
    rig_node.sh("systemctl", "daemon-reload")

    assert launched["ready"]
    assert before is None
    assert is_noticed
    assert given_back(rig_node, 30)


@pytest.mark.parametrize("by", ["finish", "guard"])
def test_units_that_stop_with_production(rig_node: RigNode, by: str) -> None:
    """A proxy that requires production, and what is part of the proxy, run again; what did not run stays down."""
    declared = rig_node.production_unit(enabled=True)
    for name, needs in (
        ("proxy", "Requires=prod.service\nAfter=prod.service"),
        ("exporter", "PartOf=proxy.service"),
        ("idle", "Requires=prod.service"),
    ):
        rig_node.write(f"/etc/systemd/system/{name}.service", f"[Unit]\n{needs}\n[Service]\nExecStart=/bin/sleep 600\n")
    rig_node.sh("systemctl", "daemon-reload")
    rig_node.sh("systemctl", "start", "proxy.service", "exporter.service")
    rig_node.declare(production=declared)

    def standing() -> list[str]:
        return rig_node.sh("systemctl", "is-active", "prod", "proxy", "exporter", "idle").split()

    launched = rig_node.node("launch", rig_node.launch_request(lease_s=60 if by == "finish" else 4))
    during = standing()
    if by == "finish":
        rig_node.node("finish", {"trial_id": "0000-abc", "holder": "sweep-1"})
    assert clock.wait_until(lambda: rig_node.read("record.json") is None, 30, poll_s=0.2)

    assert launched["ready"]
    assert ["inactive"] * 4 == during
    assert ["active", "active", "active", "inactive"] == standing()


def test_key_is_not_shown(rig_node: RigNode) -> None:
    """The trial's key is in no argument and in nothing that systemd shows."""
    rig_node.declare(production={"manager": "none"})

    launched = rig_node.node("launch", rig_node.launch_request())
    key = next(
        line.split("=", 1)[1]
        for line in rig_node.sh("cat", f"/proc/{launched['pid']}/environ").split("\0")
        if line.startswith("VLLM_API_KEY=")
    )
    unit = rig_node.node("status")["engine"]["unit"]
    shown = (
        rig_node.sh("systemctl", "show", unit)
        + rig_node.sh("ps", "-ww", "-eo", "args")
        + rig_node.sh("journalctl", "-b")
    )

    assert launched["ready"]
    assert 64 == len(key)
    assert key not in shown
    assert "600" == rig_node.sh("stat", "-c", "%a", f"{STATE}/engine.env").strip()


def test_guard_masked_and_stopped(rig_node: RigNode) -> None:
    """Somebody masks and stops the guard's units during a trial: the lease's channel sees that one watches again."""
    rig_node.declare(production=rig_node.production_unit(enabled=True))
    assert clock.wait_until(rig_node.answers, 60)
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
