"""A probe's installation on nodes of this machine: what is there already is not written again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak import paths
from tokenpeak.node.installation.bundle import write_bundle
from tokenpeak.sweep import secret
from tokenpeak.sweep.ansible.result import NodeResult
from tokenpeak.sweep.installation import install_and_probe
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory

CANARY = "canary-in-the-secret-file"


class Controller:
    """A controller with two nodes here."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("TOKENPEAK_STATE", str(folder / "controller"))

    def state(self, node: str) -> Path:
        """The node's state folder."""
        return self.folder / node

    def inventory(self, **variables: Any) -> Inventory:
        """The inventory with these variables of both nodes."""
        shared = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "tokenpeak_python": sys.executable,
            "tokenpeak_state_dir": f"{self.folder}/{{{{ inventory_hostname }}}}",
            "tokenpeak_host": "127.0.0.1",
            "tokenpeak_port": 8099,
            "tokenpeak_model": {"name": "größer/{{ '7' }}B"},
            "tokenpeak_production": {"manager": "none"},
            **variables,
        }
        hosts = self.folder / "inventory" / "two" / "hosts.yml"
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text(yaml.safe_dump({"all": {"hosts": {"one": {}, "two": {}}, "vars": shared}}))
        return read_inventory("two", self.folder / "inventory")

    def install(self, **variables: Any) -> dict[str, NodeResult]:
        """See that both nodes have all of it, and probe them."""
        return dict(install_and_probe(self.inventory(**variables)).nodes)

    def files(self) -> dict[str, int]:
        """The nodes' files, each with when it was written."""
        return {
            str(path): path.stat().st_mtime_ns
            for node in ("one", "two")
            for path in self.state(node).glob("*")
            if path.name.endswith((".pyz", ".json")) or path.name.startswith("secret-")
        }


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A controller whose nodes have nothing yet."""
    return Controller(tmp_path, monkeypatch)


@pytest.mark.e2e
def test_only_what_differs_is_written(controller: Controller) -> None:
    """A second look writes nothing; a change here or there reaches each node; each is probed every time."""
    first, made = controller.install(), controller.files()
    again, same = controller.install(), controller.files()
    script = controller.state("one") / "tokenpeak-node.pyz"
    whole = script.read_bytes()
    script.write_bytes(whole + b"# by hand")
    by_hand = controller.install()
    mended = script.read_bytes()
    before = secret.master_secret().name
    after = secret.renew_master_secret().name
    rotated = controller.install(tokenpeak_port=8098)

    for results in (first, again, by_hand, rotated):
        assert {"one": None, "two": None} == {name: result.failure for name, result in results.items()}
        assert all({"install", "probe"} == result.answers.keys() for result in results.values())
        assert all(result.argv for result in results.values())
    assert made == same
    assert whole == mended
    for name in ("one", "two"):
        state = controller.state(name)
        assert 8098 == json.loads((state / "node.json").read_text())["port"]
        assert not (state / before).exists()
        assert (state / after).is_file()


@pytest.mark.e2e
def test_secret_is_in_nothing_that_ansible_says(controller: Controller) -> None:
    """Played by hand with all that Ansible can print, the playbook gives the node its secret and shows it nowhere."""
    inventory = controller.inventory()
    secrets = controller.folder / "secrets"
    secrets.mkdir()
    (secrets / "one").write_text(CANARY)
    extravars = {
        "tokenpeak_pyz": str(write_bundle(controller.folder / "tokenpeak-node.pyz")),
        "tokenpeak_secret_files": {"one": str(secrets / "one")},
        "tokenpeak_secret_name": "secret-0123abcd",
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-vvvvv", "-i", str(inventory.hosts_path), "-l", "one", str(paths.PLAYBOOKS / "install.yml")]
    done = subprocess.run(
        [*argv, "-e", json.dumps(extravars)],
        env={**os.environ, "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"), "ANSIBLE_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout[-3000:]
    assert f"{CANARY}\n" == (controller.state("one") / "secret-0123abcd").read_text()
    assert CANARY not in done.stdout + done.stderr
