"""On a machine with systemd, another user takes the port of production or of the engine."""

from pathlib import Path

import pytest
from tests.rig.conftest import PYTHON, SECRET, SERVER, RigNode, production_unit

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

STRANGER = Path(__file__).parents[1] / "node" / "stranger.py"


def take(node: RigNode, port: int, *options: str) -> str:
    """Let `nobody` take a port as soon as it is free; the unit of that process, whose journal is in /tmp/heard."""
    node.write("/opt/stranger.py", STRANGER.read_bytes())
    run = ("systemd-run", "-q", "--unit=stranger", "--property=User=nobody")
    serve = (PYTHON, "/opt/stranger.py", "prod", node.address, str(port))
    node.sh(*run, "--property=StandardOutput=append:/tmp/heard", *serve, *options)
    return "stranger.service"


def heard(node: RigNode) -> str:
    return node.sh("cat", "/tmp/heard")


def test_port_of_production_is_taken_during_a_trial(rig_node: RigNode) -> None:
    """A unit that loads while another user answers at its address does not count as back; its key stays here."""
    key = "VLLM_API_KEY=the-key-of-production"
    unit = production_unit(rig_node.address, 8000).replace(
        "[Service]\n", f"[Service]\nEnvironment={key}\nRestartSec=1\n"
    )
    rig_node.write("/etc/systemd/system/prod.service", unit)
    rig_node.write("/root/production.key", "the-key-of-production")
    rig_node.sh("chmod", "600", "/root/production.key")
    rig_node.sh("systemctl", "daemon-reload")
    rig_node.sh("systemctl", "start", "prod.service")
    url = f"http://{rig_node.address}:8000"
    rig_node.declare(
        production={"manager": "systemd", "unit": "prod.service", "url": url, "api_key_file": "/root/production.key"}
    )
    assert clock.wait_until(lambda: rig_node.node("status")["production"]["model"] == "prod", 10, poll_s=0.5)

    launched = rig_node.node("launch", rig_node.launch_request())
    stranger = take(rig_node, 8000, "--discreet")
    taken = clock.wait_until(lambda: "bound" in heard(rig_node), 10)
    rig_node.write("/etc/systemd/system/prod.service", unit.replace("--port 8000", "--port 8000 --start-s 5"))
    rig_node.sh("systemctl", "daemon-reload")
    finished = rig_node.node(
        "finish", {"trial_id": "0000-abc", "holder": "sweep-1", "production_ready_s": 6, "restore_production": True}
    )
    listened = heard(rig_node)
    rig_node.sh("systemctl", "stop", stranger)
    given_back = rig_node.node("restore")

    assert (True, True) == (launched["ready"], taken), launched
    assert "heard" not in listened
    assert finished["restoration"]["restored"] is False
    assert "of user 65534" in finished["restoration"]["message"]
    assert given_back["restoration"]["restored"], given_back


def test_port_of_the_engine_is_taken_while_it_loads(rig_node: RigNode) -> None:
    """Another user's process that answers where the engine will is not recorded as the engine."""
    rig_node.declare(production=rig_node.production_unit(enabled=True), engine={"command": [PYTHON, SERVER, "serve"]})
    assert clock.wait_until(rig_node.answers, 10)
    take(rig_node, 8099)
    # It takes the port once the launch has found that free and production is down.
    rig_node.sh("systemctl", "stop", "stranger.service")
    waits = "while ! [ -e /var/lib/tokenpeak/engine.json ]; do sleep 0.05; done"
    serves = f"{PYTHON} /opt/stranger.py tiny {rig_node.address} 8099 >> /tmp/heard"
    script = f"{waits}; exec setpriv --reuid=65534 --clear-groups {serves}"
    rig_node.sh("systemd-run", "-q", "--unit=watch", "sh", "-c", script)

    launched = rig_node.node("launch", rig_node.launch_request("--start-s", "6", secret=SECRET))
    finished = rig_node.node("finish", {"trial_id": "0000-abc", "holder": "sweep-1"})

    assert (False, "address_taken") == (launched.get("ready"), launched.get("failure_phase")), launched
    assert "of user 65534, which is no process of the engine" in launched["message"]
    assert "heard" not in heard(rig_node)
    assert finished["restoration"]["restored"]
