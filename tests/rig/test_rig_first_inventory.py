"""`tokenpeak init --probe`: the inventory that it writes of real machines, by what runs on them."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.rig.conftest import PYTHON, STANDIN, RigNode

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
HUB = f"/root/.cache/huggingface/hub/models--{MODEL.replace('/', '--')}"
ADDRESS = "10.77.0.163"
GPU = "NVIDIA A100-SXM4-80GB"
MACHINE = "/opt/vllm/bin"
SERVE = f"{MACHINE}/vllm serve {MODEL} --max-model-len 4096 --gpu-memory-utilization 0.4"
SMALL = "/opt/small/bin/vllm"
UNIT = "[Service]\nEnvironment=TOKENPEAK_SIM_START_S=0\nExecStart={command}\n{more}"


@dataclass(kw_only=True)
class Operator:
    """Somebody whose ssh knows the node, in a working folder."""

    folder: Path
    node: RigNode

    def run(self, *words: str, timeout_s: float = 200) -> "subprocess.CompletedProcess[str]":
        """A command of `tokenpeak` in the working folder."""
        # What stands in ~/.ssh/config otherwise, which ssh takes from the real home alone.
        ssh = self.folder / "bin" / "ssh"
        ssh.parent.mkdir(exist_ok=True)
        known = f"-o UserKnownHostsFile={self.folder / 'known_hosts'} -o StrictHostKeyChecking=accept-new"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh {known} -i {self.node.key} "$@"\n')
        ssh.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{ssh.parent}:{os.environ['PATH']}",
            "TOKENPEAK_STATE": str(self.folder / "state"),
        }
        argv = [TOKENPEAK, *words]
        return subprocess.run(
            argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def found(self, *hosts: str) -> tuple[dict[str, Any], str, str]:
        """The first host's variables as the inventory has them, its text, and what was printed."""
        done = self.run("init", "--probe", *hosts)
        assert 0 == done.returncode, done.stdout + done.stderr
        inventory = self.folder / "inventory" / "nodes"
        written = (inventory / "group_vars" / "all.yml").read_text()
        own = yaml.safe_load((inventory / "hosts.yml").read_text())["all"]["hosts"]
        return {**yaml.safe_load(written), **next(iter(own.values()))}, written, done.stdout


@pytest.fixture(scope="module")
def machine(rig_folder: Path) -> Iterator[RigNode]:
    """A node with two simulated boards and an engine; each test starts its own production there."""
    made = RigNode(name="first1", address=ADDRESS, folder=rig_folder, key=rig_folder / "key")
    try:
        made.testnode("up", ADDRESS, f"{made.key}.pub")
        made.sh(sys.executable, "-m", "tokenpeak.sim.install", MACHINE, "--gpu", GPU, "--count", "2")
        made.sh("ln", "-s", f"{MACHINE}/nvidia-smi", "/usr/local/bin/nvidia-smi")
        made.sh("mkdir", "-p", f"{HUB}/refs", f"{HUB}/snapshots/one")
        made.write(f"{HUB}/refs/main", "one")
        made.write(f"{HUB}/snapshots/one/config.json", "{}")
        # A small server that users without access to the simulator can start.
        made.sh("mkdir", "-p", Path(SMALL).parent.as_posix())
        hang = 'parser.add_argument("--hang"'
        made.write(SMALL, STANDIN.read_text().replace(hang, f'parser.add_argument("--api-key")\n    {hang}'))
        for user in ("serving", "me"):
            made.sh("useradd", "-m", "-s", "/bin/bash", user)
            made.sh("install", "-d", "-o", user, "-m", "700", f"/home/{user}/.ssh")
            made.sh("install", "-o", user, "-m", "600", "/root/.ssh/authorized_keys", f"/home/{user}/.ssh/")
        yield made
    finally:
        made.testnode("down")


@pytest.fixture
def operator(machine: RigNode, tmp_path: Path) -> Iterator[Operator]:
    """An operator in an empty working folder; what was started on the node ends afterwards."""
    for name in ("inventory", "sweeps"):
        (tmp_path / name).mkdir()
    yield Operator(folder=tmp_path, node=machine)
    machine.sh("systemctl", "stop", "prod.service", "prod2.service", "proxy.service")
    machine.sh("pkill", "-f", "tokenpeak.sim.engine|/opt/small/bin/vllm")


def start(node: RigNode, command: str, more: str = "", unit: str = "prod", port: int | None = 8000) -> None:
    """Start a unit, and wait until something answers at the port."""
    node.write(f"/etc/systemd/system/{unit}.service", UNIT.format(command=command, more=more))
    node.sh("systemctl", "daemon-reload")
    node.sh("systemctl", "start", unit)
    assert port is None or answers(node, port), node.sh("journalctl", "-u", unit, "--no-pager")


def by_hand(node: RigNode, user: str, *options: str) -> None:
    """Serve the model as a user would from a terminal."""
    command = shlex.join([PYTHON, SMALL, "serve", MODEL, "--port", "8000", *options])
    node.sh("sh", "-c", f"cd /home/{user}; setsid runuser -u {user} -- {command} >/dev/null 2>&1 &")
    assert answers(node)


def answers(node: RigNode, port: int = 8000) -> bool:
    """Whether a model is served at a port of the node, soon."""
    url = f"http://127.0.0.1:{port}/v1/models"
    return clock.wait_until(lambda: MODEL in node.sh("curl", "-s", "--max-time", "2", url), 40, poll_s=0.5)


def production_of(probed: str) -> tuple[str, str]:
    """Manager and model of what a probe found to be production."""
    [node] = json.loads(probed)["nodes"]
    assert node["production"]["running"]
    return node["production"]["manager"], node["production"]["model"]


def test_unit(operator: Operator) -> None:
    """Boards, engine, unit and model of a machine whose production is a unit; a probe by that inventory is content."""
    start(operator.node, f"{SERVE} --port 8000")
    found, _, said = operator.found(f"root@{ADDRESS}")
    probed = operator.run("probe", "--inventory", "nodes", "--format", "json")
    checked = operator.run("check")

    assert {"manager": "systemd", "unit": "prod.service", "url": "http://127.0.0.1:8000"} == (
        found["tokenpeak_production"]
    )
    assert {"name": MODEL, "served_name": MODEL} == found["tokenpeak_model"]
    assert [f"{MACHINE}/vllm", "serve"] == found["tokenpeak_engine_command"]
    assert [GPU, GPU] == [gpu["name"] for gpu in found["tokenpeak_facts"]["gpus"]]
    assert "grid-ampere" == found["tokenpeak_default_sweep"]
    assert (operator.folder / "sweeps" / "grid-ampere.yml").is_file()
    assert f"2× {GPU}, engine {MACHINE}/vllm serve, production: systemd prod.service serves {MODEL}" in said
    assert 0 == probed.returncode, probed.stdout + probed.stderr
    assert ("systemd", MODEL) == production_of(probed.stdout)
    assert 0 == checked.returncode, checked.stdout


def test_nothing_is_left_there(operator: Operator) -> None:
    """A look leaves no file and no folder on the machine."""
    disk = operator.node.folder / operator.node.name / "upper"
    before = {path: path.stat().st_mtime_ns for path in disk.rglob("*") if path.is_file()}
    operator.found(f"root@{ADDRESS}")
    after = {path: path.stat().st_mtime_ns for path in disk.rglob("*") if path.is_file()}
    # What the machine itself notes of a login, and Podman and the simulator of a question.
    notes = ("var/log", "var/lib/systemd", "run", "var/lib/containers", "etc/cni", "opt/vllm/bin/state")
    changed = {path.relative_to(disk).as_posix() for path in after if before.get(path) != after[path]}

    assert [] == [name for name in changed if not name.startswith(notes) and not name.endswith(".pyc")]
    assert "" == operator.node.sh("find", "/tmp", "-mindepth", "1", "-name", "*.pyz")


def test_process_of_a_user(operator: Operator) -> None:
    """A process that nobody manages is written with its arguments, and that nobody could start it again."""
    by_hand(operator.node, "serving", "--api-key", "hush")
    found, written, _ = operator.found(f"root@{ADDRESS}")
    process = found["tokenpeak_production"]["process"]

    assert "command" == found["tokenpeak_production"]["manager"]
    assert ["runuser", "-u", "serving", "--", PYTHON, SMALL, "serve", MODEL] == process["argv"][:8]
    assert "/home/serving" == process["cwd"]
    assert "hush" not in written
    assert "its command line has what may be secret, which is left out here" in " ".join(written.split())
    assert "so nobody could start it again" in " ".join(written.replace("# ", "").split())
    assert "serving" == found["tokenpeak_engine_user"]


def test_host_that_cannot_be_reached(operator: Operator) -> None:
    """Of several hosts, one that cannot be reached has its sentence, and the others are written."""
    done = operator.run("init", "--probe", f"root@{ADDRESS}", "root@10.77.0.250")
    hosts = yaml.safe_load((operator.folder / "inventory" / "nodes" / "hosts.yml").read_text())["all"]["hosts"]
    again = operator.run("init", "--probe", f"root@{ADDRESS}")

    assert 1 == done.returncode
    assert "PROBLEM 10.77.0.250: no SSH connection to 10.77.0.250 port 22 (No route to host)" in done.stdout
    assert [ADDRESS] == list(hosts)
    assert 2 == again.returncode
    assert "is there already, and stays as it is" in again.stderr


TWO_CONFIGS = """
axes: {max_num_seqs: [8, 64]}
fixed: {name: fixed, flags: {max_model_len: 2048}}
workloads:
  - workload: {kind: synthetic, name: short, input_tokens: 32, output_tokens: 16}
    levels: [{concurrency: 8, requests: 64}]
search: {strategy: grid, baseline: [defaults]}
"""


def test_tune_asks_and_ends_with_a_decision(operator: Operator) -> None:
    """One command with no inventory: what it would do is said before anything is touched, and production is back."""
    start(operator.node, f"{SERVE} --port 8000")
    (operator.folder / "sweeps" / "two.yml").write_text(TWO_CONFIGS)
    words = ("tune", "--host", f"root@{ADDRESS}", "--sweep", "two")
    asked = operator.run(*words)
    untouched = operator.node.sh(
        "systemctl", "show", "-P", "NRestarts", "-P", "ExecMainStartTimestampMonotonic", "prod"
    )
    other = operator.run(*words, "Qwen/Qwen3-8B", "--yes")
    another = operator.run("tune", "--host", "root@10.77.0.164")
    done = operator.run(*words, "--yes", timeout_s=900)
    status = operator.run("status", "--inventory", "tuned")

    assert 2 == asked.returncode, asked.stdout
    assert f"production: systemd prod.service serves {MODEL}" in asked.stdout
    assert f"production of {ADDRESS} is stopped" in asked.stdout
    assert "Nobody can be asked here. Give --yes to begin." in asked.stderr
    assert "0" == untouched.splitlines()[0]
    assert f"is for {MODEL}" in other.stderr
    assert "has no host 10.77.0.164. Give another name by --inventory." in another.stderr
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "Site: " in done.stdout
    assert f"{ADDRESS}: Production (systemd prod.service) serves {MODEL}. No trial has the node.\n" == status.stdout


def test_tune_begins_nothing_on_a_guess(operator: Operator) -> None:
    """A process that nobody manages could not be started again: that is said, and again until it is settled."""
    by_hand(operator.node, "serving")
    for _ in range(2):
        done = operator.run("tune", "--host", f"root@{ADDRESS}", "--yes")

        assert 2 == done.returncode
        assert "tokenpeak_production is not settled: Nobody manages process" in done.stdout
        assert f"Settle this in {operator.folder}/inventory/tuned" in done.stderr.replace("\n", " ")
    assert answers(operator.node)
