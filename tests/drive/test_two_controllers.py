"""Two controllers, each with a state folder of its own, and one node."""

import dataclasses
from pathlib import Path

import yaml
from driven_home import Home, read_until


def test_probe_by_another_controller_leaves_a_sweep_alone(home: Home, tmp_path: Path) -> None:
    """A colleague's probe in the middle of a sweep costs none of its trials their API key."""
    inventory = home.root / "inventory"
    hosts = yaml.safe_load((inventory / "lone" / "hosts.yml").read_text())
    hosts["all"]["hosts"]["one"]["tokenpeak_state_dir"] = str(tmp_path / "node")
    (inventory / "common" / "group_vars").mkdir(parents=True)
    (inventory / "common" / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (inventory / "common" / "group_vars" / "all.yml").symlink_to(inventory / "lone" / "group_vars" / "all.yml")
    colleague = dataclasses.replace(home, state=tmp_path / "colleague")

    sweep = home.start("sweep", "--inventory", "common", "--sweep", "pair", "--no-report")
    said = read_until(sweep, "engine starts")
    probed = colleague.run("probe", "--inventory", "common")
    said += sweep.communicate(timeout=200)[0]

    assert "A trial has this node in its hands" in probed.stdout
    assert ["ok", "ok"] == [trial["status"] for trial in home.trials(home.archives()[-1])], said
