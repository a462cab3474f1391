"""Two controllers, each with a state folder of its own, and one node; and what the node's guard knows of a sweep."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from driven_home import SPEC, Home, read_until

from tokenpeak.node.machine import clock


@pytest.mark.faults
@pytest.mark.faults_ci
def test_probe_by_another_controller_leaves_a_sweep_alone(home: Home, tmp_path: Path) -> None:
    """A colleague's probe in the middle of a sweep costs none of its trials their API key.

    Should the controller die, the node gives itself back by the sweep's own deadlines.
    """
    inventory = home.root / "inventory"
    hosts = yaml.safe_load((inventory / "lone" / "hosts.yml").read_text())
    _, network, *rest = home.address.split(".")
    address = ".".join(["127", str(int(network) - 90), *rest])
    one = {"tokenpeak_host": address, "tokenpeak_state_dir": str(tmp_path / "node")}
    hosts["all"]["hosts"]["one"].update(one)
    (inventory / "common" / "group_vars").mkdir(parents=True)
    (inventory / "common" / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (inventory / "common" / "group_vars" / "all.yml").symlink_to(inventory / "lone" / "group_vars" / "all.yml")
    spec = {**SPEC, "deadlines": {**SPEC["deadlines"], "engine_stop_s": 7}}
    (home.root / "analysis" / "sweeps" / "long.yml").write_text(yaml.safe_dump(spec))
    colleague = dataclasses.replace(home, state=tmp_path / "colleague")

    sweep = home.start("sweep", "--inventory", "common", "--sweep", "long", "--no-report")
    said = read_until(sweep, "engine starts")
    armed = tmp_path / "node" / "record.json"
    assert clock.wait_until(armed.exists, 20)
    record = json.loads(armed.read_text())
    probed = colleague.run("probe", "--inventory", "common")
    said += sweep.communicate(timeout=200)[0]
    os.killpg(json.loads((tmp_path / "node" / "production.json").read_text())["pid"], signal.SIGKILL)

    assert 2 == len(list((tmp_path / "node").glob("secret-*"))), probed.stdout
    assert ["ok", "ok"] == [trial["status"] for trial in home.trials(home.archives()[-1])], said
    assert (60, 7) == (record["production_ready_s"], record["engine_stop_s"])
