"""A probe's installation on nodes of this machine: by one task where something is missing, else by no playbook."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak import paths
from tokenpeak.node.bundle import write_bundle
from tokenpeak.sweep import installation, secret
from tokenpeak.sweep.installation import install_where_missing
from tokenpeak.sweep.inventory import Inventory, read_inventory
from tokenpeak.sweep.node_result import Event

MOST_TASKS = 2
"""Of the playbook for a node: its arguments are checked, and the node script is installed."""
CANARY = "canary-in-the-secret-file"


class Controller:
    """A controller with two nodes here, which notes the events and the playbooks of each call."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.played: list[tuple[str, ...]] = []
        self.events: list[Event] = []
        monkeypatch.setenv("TOKENPEAK_STATE", str(folder / "controller"))
        original = installation.run_playbook

        def noted(playbook: str, inventory: Inventory, *, nodes: Sequence[str] = (), **options: Any) -> Any:
            self.played.append((playbook, *nodes))
            return original(playbook, inventory, nodes=nodes, **options)

        monkeypatch.setattr(installation, "run_playbook", noted)

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

    def install(self, **variables: Any) -> list[tuple[str, ...]]:
        """See that both nodes have all of it; the playbooks that this took, each with its nodes."""
        self.played.clear()
        self.events.clear()
        found = install_where_missing(self.inventory(**variables), on_event=self.events.append)
        assert {"one": None, "two": None} == {name: result.failure for name, result in found.items()}
        return list(self.played)


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A controller whose nodes have nothing yet."""
    return Controller(tmp_path, monkeypatch)


@pytest.mark.e2e
def test_only_what_differs_takes_a_playbook(controller: Controller) -> None:
    """A node's first installation is one task, a second look none; a change here or there reaches each node."""
    first = controller.install()
    tasks = [event.node for event in controller.events if event.kind != "started"]
    again = controller.install()
    looks = [(event.kind, event.step) for event in controller.events]
    script = controller.state("one") / "tokenpeak-node.pyz"
    whole = script.read_bytes()
    script.write_bytes(whole + b"# by hand")
    by_hand = controller.install()
    declared = controller.install(tokenpeak_port=8098)
    before = secret.master_secret().name
    after = secret.rotate().name
    rotated = controller.install(tokenpeak_port=8098)

    assert [("install.yml", "one", "two")] == first
    assert MOST_TASKS * ["one"] + MOST_TASKS * ["two"] == sorted(tasks)
    assert [] == again
    assert [("ok", "install")] * 2 == looks
    assert [("install.yml", "one")] == by_hand
    assert whole == script.read_bytes()
    assert [("install.yml", "one", "two")] == declared == rotated
    for name in ("one", "two"):
        state = controller.state(name)
        assert 8098 == json.loads((state / "node.json").read_text())["port"]
        assert not (state / before).exists()
        assert (state / after).is_file()
    assert [] == controller.install(tokenpeak_port=8098)


@pytest.mark.e2e
def test_declaration_that_cannot_be_rendered_is_ansibles_to_say(controller: Controller) -> None:
    """A variable that is missing leads to the playbook, which names it; nothing is installed."""
    found = install_where_missing(controller.inventory(tokenpeak_host="{{ nowhere }}"))

    assert [("install.yml", "one", "two")] == controller.played
    assert all("nowhere" in (result.failure or "") for result in found.values()), found
    assert not controller.state("one").exists()


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
