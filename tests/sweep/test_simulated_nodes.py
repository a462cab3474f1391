"""The demonstration on one machine, several times: addresses of its own for each state folder, and its end."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from driven_home import Home
from resolved import answers, inventory_request

from tokenpeak import paths
from tokenpeak.node.machine import process

pytestmark = pytest.mark.integration


def test_two_places_do_not_share_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inventory's addresses follow from the state folder: the same for one, others for another."""
    hosts = tmp_path / "inventory" / "seen"
    shutil.copytree(paths.INVENTORIES / "sim", hosts)
    shared = hosts / "group_vars" / "all.yml"
    # The controller reads ansible_host alone of the addresses.
    shared.write_text(shared.read_text() + 'ansible_host: "{{ tokenpeak_host }}"\n')
    requests = []
    for name in ("one", "two", "one"):
        monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path / name))
        requests.append(inventory_request(hosts / "hosts.yml"))
    found = [[variables["ansible_host"] for variables in answer["variables"].values()] for answer in answers(requests)]

    assert found[0] == found[2]
    assert not {*found[0]} & {*found[1]}
    assert all(address.startswith("127.") and not address.startswith("127.0.") for address in found[0] + found[1])


@pytest.mark.e2e
def test_make_clean_ends_the_demonstration_servers(home: Home, tmp_path: Path) -> None:
    """Production that a set-up started is ended by its process; with a trial on the node it stays."""
    probed = home.run("probe", "--inventory", "lone")
    assert 0 == probed.returncode, probed.stdout
    node = home.state / "nodes" / "one"
    leader = json.loads((node / "production.json").read_text())
    for name in ("Makefile", "analysis"):
        (tmp_path / name).symlink_to(paths.ROOT / name)
    argv = ["make", "-C", str(tmp_path), "clean"]
    environment = {**os.environ, "TOKENPEAK_STATE": str(home.state)}

    (node / "record.json").write_text('{"holder": "somebody"}')
    borrowed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    serves_on = process.is_alive(leader)
    (node / "record.json").unlink()
    free = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    assert (0, 0) == (borrowed.returncode, free.returncode), borrowed.stderr + free.stderr
    assert serves_on
    assert "one: a trial has the node" in borrowed.stdout
    assert not process.is_alive(leader)
    assert "one: production that was started for it has ended." in free.stdout
