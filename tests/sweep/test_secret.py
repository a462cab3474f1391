"""A secret for each node, a key for each launch; and the playbook that puts them there, played by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tokenpeak import paths
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.engine.engine import trial_key
from tokenpeak.sweep import installation
from tokenpeak.sweep.inventory.nodes import Node

ONE = Node(name="gpu-1", variables={"ansible_host": "10.0.0.1"})
OTHERS = [
    Node(name="gpu-2", variables={"ansible_host": "10.0.0.1"}),
    Node(name="gpu-1", variables={"ansible_host": "10.0.0.2"}),
    Node(name="gpu-1", variables={"ansible_host": "10.0.0.1", "ansible_port": 2222}),
    Node(name="gpu-1", variables={}),
]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))


def test_each_node_has_a_secret_of_its_own() -> None:
    """It is the same each time, and another one for another name or address; the master secret is none of them."""
    master = installation.master_secret()
    found = [master.of_node(node) for node in (ONE, *OTHERS)]

    assert installation.master_secret().of_node(ONE) == found[0]
    assert len({*found, master.value}) == len(found) + 1


def test_keys_of_two_launches_differ() -> None:
    """By the trial, the sweep and the number used once, each by itself; no two of these run into each other."""
    calls = [("0-a", "s", "1"), ("0-b", "s", "1"), ("0-a", "t", "1"), ("0-a", "s", "2"), ("0-as", "", "1")]
    keys = [trial_key(b"secret", trial_id, holder, nonce) for trial_id, holder, nonce in calls]

    assert len(calls) == len(set(keys))
    assert keys[0] == trial_key(b"secret\n", *calls[0])


def test_rotation(tmp_path: Path) -> None:
    """The new secret has another name, the old one's is kept for removal, and the files are this user's alone."""
    before = installation.master_secret()
    after = installation.renew_master_secret()

    assert before.value != after.value
    assert after == installation.master_secret()
    assert (before.name,) == installation.retired()
    assert {0o600} == {path.stat().st_mode & 0o777 for path in tmp_path.glob("[mr]*secret*")}


CANARY = "canary-in-the-secret-file"


@pytest.mark.e2e
def test_secret_is_in_nothing_that_ansible_says(tmp_path: Path) -> None:
    """With all that Ansible can print, the playbook gives the node its secret and shows it nowhere."""
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "tokenpeak_python": sys.executable,
        "tokenpeak_state_dir": str(tmp_path / "state"),
        "tokenpeak_host": "127.0.0.1",
        "tokenpeak_port": 8099,
        "tokenpeak_model": {"name": "größer/{{ '7' }}B"},
        "tokenpeak_production": {"manager": "none"},
    }
    hosts = tmp_path / "inventory" / "one" / "hosts.yml"
    hosts.parent.mkdir(parents=True)
    hosts.write_text(yaml.safe_dump({"all": {"hosts": {"one": {}}, "vars": variables}}))
    (tmp_path / "secret").write_text(CANARY)
    extravars = {
        "tokenpeak_pyz": str(write_bundle(tmp_path / "tokenpeak-node.pyz")),
        "tokenpeak_secret_files": {"one": str(tmp_path / "secret")},
        "tokenpeak_secret_name": "secret-0123abcd",
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-vvvvv", "-i", str(hosts), str(paths.PLAYBOOKS / "install.yml")]
    done = subprocess.run(
        [*argv, "-e", json.dumps(extravars)],
        env={**os.environ, "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"), "ANSIBLE_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout[-3000:]
    assert f"{CANARY}\n" == (tmp_path / "state" / "secret-0123abcd").read_text()
    assert CANARY not in done.stdout + done.stderr
