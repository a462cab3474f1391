"""The playbook that installs, played by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tokenpeak import paths
from tokenpeak.node.installation.bundle import write_bundle

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
