"""Playbooks and node commands over SSH, on nodes with a real sshd and systemd."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.rig.conftest import PYTHON, SECRET, STATE, RigNode

from tokenpeak import paths
from tokenpeak.files import write_atomically
from tokenpeak.node.bundle import write_bundle
from tokenpeak.node.engine import serving
from tokenpeak.node.machine import clock
from tokenpeak.node.protocol.answers import parse
from tokenpeak.node.protocol.commands import COMMANDS
from tokenpeak.sweep.ansible.dispatch import Step, printed_answer

pytestmark = [pytest.mark.e2e]

_ANSWER = re.compile(r"^(?:ok|changed|fatal): \[([^\]]+)\][^=]*=> (\{.*\})$", re.MULTILINE)


class Controller:
    """Runs playbooks against rig nodes as a user would."""

    def __init__(self, folder: Path, nodes: list[RigNode]) -> None:
        self.folder = folder
        self.nodes = nodes
        hosts = {
            node.name: {
                "ansible_host": node.address,
                "tokenpeak_production": {
                    "manager": "systemd",
                    "unit": "prod.service",
                    "url": f"http://{node.address}:8000",
                },
            }
            for node in nodes
        }
        known = nodes[0].folder / "known_hosts"
        shared = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(nodes[0].key),
            "ansible_ssh_common_args": f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={known}",
            "tokenpeak_python": PYTHON,
            "tokenpeak_state_dir": STATE,
            "tokenpeak_model": {"name": "tiny"},
            "tokenpeak_engine_version": "0.32.0",
            "tokenpeak_engine_command": [PYTHON, "serve"],
            "tokenpeak_host": "{{ ansible_host }}",
            "tokenpeak_port": 8099,
        }
        self.inventory = folder / "hosts.yml"
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": shared}}))
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for host in hosts:
            write_atomically(self.secrets / host, "canary-in-the-secret-file", mode=0o600)
        self.said = ""

    def play(self, playbook: str, **extravars: Any) -> dict[str, dict[str, Any]]:
        """Run a playbook; each node's answer to its last node command."""
        extravars = {
            "tokenpeak_pyz": str(write_bundle(self.folder / "tokenpeak-node.pyz")),
            "tokenpeak_secret_files": {node.name: str(self.secrets / node.name) for node in self.nodes},
            "tokenpeak_secret_name": SECRET,
            **extravars,
        }
        program = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [
                str(program),
                "-v",
                "-i",
                str(self.inventory),
                str(paths.PLAYBOOKS / playbook),
                "-e",
                json.dumps(extravars),
            ],
            env={**os.environ, "ANSIBLE_CONFIG": str(paths.PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.said += done.stdout + done.stderr
        found = {}
        for name, raw in _ANSWER.findall(done.stdout):
            result = json.loads(raw)
            answer = result.get("answer") or printed_answer(str(result.get("stdout", "")))
            if answer:
                found[name] = answer
        assert found, done.stdout + done.stderr
        return found

    def ask(self, step: Step, content: dict[str, Any]) -> dict[str, Any]:
        """Have each node do one step as a trial by hand does; each node's answer."""
        request = self.folder / f"{step}.json"
        request.write_text(json.dumps(content))
        trial = {"tokenpeak_trial": {step: str(request)}}
        found = self.play("probe.yml") if step == "probe" else self.play("trial.yml", **trial)
        return {name: parse(COMMANDS[step].answer, answer) for name, answer in found.items()}


def answers(node: RigNode) -> bool:
    return serving.served_model(f"http://{node.address}:8000", timeout_s=2) == "prod"


def test_two_nodes(boot: Callable[..., RigNode], tmp_path: Path) -> None:
    """Install, probe, launch, finish, restore and status over SSH on two nodes; no secret is printed."""
    nodes = [boot("gpu1", 11), boot("gpu2", 12)]
    for node in nodes:
        node.production_unit(enabled=True)
        assert clock.wait_until(lambda node=node: answers(node), 10)
    controller = Controller(tmp_path, nodes)
    controller.play("install.yml")

    probed = controller.ask("probe", {})
    launch = {**nodes[0].launch_request(), "argv": nodes[0].launch_request("--host", "0.0.0.0")["argv"]}
    launched = controller.ask("launch", launch)
    during = controller.play("status.yml")
    finished = controller.ask("finish", {"trial_id": "0000-abc", "holder": "sweep-1"})
    restored = controller.play("restore.yml")

    assert [("prod", True)] * 2 == [(answer.production.model, answer.engine_port_free) for answer in probed.values()]
    assert [True, True] == [answer.ready for answer in launched.values()]
    assert [(True, True, False)] * 2 == [
        (answer["armed"], answer["guard_alive"], answer["production"]["running"]) for answer in during.values()
    ]
    assert [True, True] == [answer.restoration.restored for answer in finished.values()]
    assert [True, True] == [answer["restoration"]["restored"] for answer in restored.values()]
    assert [True, True] == [answers(node) for node in nodes]
    assert "canary" not in controller.said


def test_hostile_requests(rig_node: RigNode, tmp_path: Path) -> None:
    """Requests are no templates: braces and quotes reach the engine as they are."""
    controller = Controller(tmp_path, [rig_node])
    rig_node.production_unit(enabled=True)
    controller.play("install.yml")
    hostile = ["{{ 7 * 7 }}", "{% raw %}", "{{ lookup('pipe', 'id') }}", "'; id #", "!unsafe x", "$(id)"]
    script = "import sys,json; print(json.dumps(sys.argv[1:]))"
    request = {**rig_node.launch_request(), "argv": [PYTHON, "-c", script, *hostile]}

    launched = controller.ask("launch", request)
    controller.play("restore.yml")
    refused = controller.ask("launch", {**request, "argv": [*request["argv"], "\u2028"]})

    assert hostile == json.loads(launched["gpu1"].log_tail), launched
    assert "U+2028" in str(refused["gpu1"].error), refused
