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
from tests.docker_daemon import IMAGE, mounts, why_no_docker
from tests.faults import docker_node
from tests.rig.conftest import PYTHON, STANDIN, RigNode

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
ADDRESS = "10.77.0.163"
GPU = "NVIDIA A100-SXM4-80GB"
MACHINE = "/opt/vllm/bin"
SERVE = f"{MACHINE}/vllm serve {MODEL} --max-model-len 4096 --gpu-memory-utilization 0.4"
SMALL = "/opt/small/bin/vllm"
UNIT = "[Service]\nEnvironment=TOKENPEAK_SIM_START_S=0\nExecStart={command}\n{more}"
HAPROXY = """#!/usr/bin/python3
# Stands in for a proxy: passes bytes on from one port to another.
import socket, threading
def pump(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
server = socket.create_server(("0.0.0.0", 8000))
while True:
    one, _ = server.accept()
    other = socket.create_connection(("127.0.0.1", 8001))
    threading.Thread(target=pump, args=(one, other), daemon=True).start()
    threading.Thread(target=pump, args=(other, one), daemon=True).start()
"""


@dataclass(kw_only=True)
class Operator:
    """Somebody whose ssh knows the node, in a working folder."""

    folder: Path
    node: RigNode

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
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
            argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=200, check=False
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


def test_proxy_in_front(operator: Operator) -> None:
    """Behind a proxy at the port it finds what serves; the proxy's user is who answers."""
    start(operator.node, f"{SERVE} --port 8001", port=8001)
    start(operator.node, f"{SERVE} --port 8002", unit="prod2", port=8002)
    operator.node.write("/opt/haproxy", HAPROXY)
    start(operator.node, "/usr/bin/python3 /opt/haproxy", "User=serving\n", unit="proxy")
    found, written, _ = operator.found(f"root@{ADDRESS}")
    production = found["tokenpeak_production"]

    assert ["systemctl", "start", "prod.service", "prod2.service"] == [
        *production["start"][:2],
        *sorted(production["start"][2:]),
    ]
    assert ("command", "serving") == (production["manager"], production["listens_as"])
    assert "In front of it, at http://127.0.0.1:8000: /usr/bin/python3 /opt/haproxy" in " ".join(
        written.replace("# ", "").split()
    )


def test_user_without_root(operator: Operator) -> None:
    """A user without root gets an inventory with state in the home folder, and a probe by it is content."""
    by_hand(operator.node, "me")
    found, _, _ = operator.found(f"me@{ADDRESS}")

    assert "/home/me/.local/state/tokenpeak-node" == found["tokenpeak_state_dir"]
    assert "me" == found["ansible_user"]
    assert "ansible_become" not in found
    assert "tokenpeak_engine_user" not in found
    assert "serve" in found["tokenpeak_production"]["process"]["argv"]


def test_nothing_serves(operator: Operator) -> None:
    """A machine that serves nothing has no production, and the comment says what belongs there."""
    found, written, _ = operator.found(f"root@{ADDRESS}")

    assert {"manager": "none"} == found["tokenpeak_production"]
    assert "Nothing serves at http://127.0.0.1:8000." in written
    assert [f"{MACHINE}/vllm", "serve"] == found["tokenpeak_engine_command"]


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


@pytest.fixture
def with_docker(operator: Operator) -> Iterator[RigNode]:
    """The node with a Docker daemon, and the image."""
    if reason := why_no_docker():
        pytest.skip(reason)
    node = operator.node
    docker_node.start(node)
    yield node
    node.sh("sh", "-c", "docker rm -f $(docker ps -aq)")
    node.sh("systemctl", "stop", "dockerd")


def run_container(node: RigNode, name: str, *options: str) -> None:
    """Serve the model in a container at port 8000."""
    volumes = [word for mount in mounts(Path(SMALL).parents[1]) for word in ("-v", mount)]
    command = (PYTHON, SMALL, "serve", MODEL, "--port", "8000")
    said = node.sh("docker", "run", "-d", "--name", name, "--network", "host", *volumes, *options, IMAGE, *command)
    assert answers(node), said + node.sh("docker", "logs", name)


def test_container(operator: Operator, with_docker: RigNode) -> None:
    """Production in a container: the container, its image and its mounts, and the unit that starts it."""
    run_container(with_docker, "vllm-prod")
    found, _, _ = operator.found(f"root@{ADDRESS}")
    build = found["tokenpeak_engines"]["found"]
    probed = operator.run("probe", "--inventory", "nodes", "--format", "json")

    assert {"manager": "docker", "unit": "vllm-prod", "url": "http://127.0.0.1:8000"} == found["tokenpeak_production"]
    assert (IMAGE, "docker") == (build["image"], build["runtime"])
    assert "/opt/small:/opt/small" in build["mounts"]
    assert "/usr:/usr:ro" in build["mounts"]
    assert ("docker", MODEL) == production_of(probed.stdout), probed.stdout + probed.stderr


def test_service_of_a_compose_file(operator: Operator, with_docker: RigNode) -> None:
    """A container with Compose's labels is a service of its file."""
    labels = {"project": "llm", "service": "server", "project.config_files": "/srv/llm/compose.yml"}
    run_container(
        with_docker,
        "llm-server-1",
        *(word for name, value in labels.items() for word in ("--label", f"com.docker.compose.{name}={value}")),
    )
    found, _, _ = operator.found(f"root@{ADDRESS}")
    production = found["tokenpeak_production"]

    assert ("compose", "/srv/llm/compose.yml", "server", "llm") == tuple(
        production[name] for name in ("manager", "file", "unit", "project")
    )


def test_container_that_a_unit_starts(operator: Operator, with_docker: RigNode) -> None:
    """Where a unit starts the container, the comment says to name the unit."""
    run_container(with_docker, "vllm-prod")
    with_docker.write("/etc/systemd/system/llm.service", "[Service]\nExecStart=/usr/bin/docker start -a vllm-prod\n")
    _, written, _ = operator.found(f"root@{ADDRESS}")

    assert "llm.service starts this container: write manager: systemd and unit: llm.service" in " ".join(
        written.replace("# ", "").split()
    )
