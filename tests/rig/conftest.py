"""Whole machines on this one: each with its own address, a real systemd as PID 1 and a real sshd.

The rig needs root, systemd, an SSH server and iproute2; elsewhere its tests are skipped with the reason.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.bundle import write_bundle

TESTNODE = Path(__file__).with_name("testnode")
STANDIN = Path(__file__).parents[1] / "node" / "standin.py"
SERVER = "/opt/standin.py"
"""Where the small server is on a node: a checkout in /tmp would not be seen there."""
PYTHON = "/usr/bin/python3"
STATE = "/var/lib/tokenpeak"
SECRET = "secret-0123abcd"

COLLECTIONS = (
    "community/docker",
    "community/general",
    "community/library_inventory_filtering_v1",
    "containers/podman",
    "kubernetes/core",
)


def why_no_rig() -> str | None:
    """Why the rig cannot run here; None when it can."""
    said = subprocess.run([str(TESTNODE), "check"], capture_output=True, text=True, check=False)
    return None if said.returncode == 0 else f"no nodes on this machine: {said.stderr.strip()}"


@dataclass
class RigNode:
    """A booted node of the rig."""

    name: str
    address: str
    folder: Path
    key: Path

    def testnode(self, *words: str) -> str:
        """Run a verb of testnode on this node."""
        environment = {**os.environ, "TESTNODE_DIR": str(self.folder)}
        verb, *rest = words
        done = subprocess.run(
            [str(TESTNODE), verb, self.name, *rest], env=environment, capture_output=True, text=True, check=False
        )
        if verb != "sh":
            assert done.returncode == 0, done.stderr
        return done.stdout

    def sh(self, *argv: str) -> str:
        """Run a command inside, without ssh; its output."""
        return self.testnode("sh", *argv)

    def ssh_argv(self, *argv: str) -> list[str]:
        """The command that runs `argv` on the node over ssh."""
        known = self.folder / "known_hosts"
        options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={known}"]
        return ["ssh", *options, "-i", str(self.key), f"root@{self.address}", *argv]

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file on the node."""
        raw = content.encode() if isinstance(content, str) else content
        environment = {**os.environ, "TESTNODE_DIR": str(self.folder)}
        argv = [str(TESTNODE), "sh", self.name, "tee", path]
        subprocess.run(argv, env=environment, input=raw, stdout=subprocess.DEVNULL, check=True)

    def node(self, command: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run a command of the node script; its answer."""
        self.write("/root/request.json", json.dumps(request or {}))
        out = self.sh(
            *(PYTHON, f"{STATE}/tokenpeak-node.pyz", command, "--state", STATE, "--request", "/root/request.json")
        )
        answer = json.loads(out)
        assert isinstance(answer, dict)
        return answer

    def read(self, name: str) -> dict[str, Any] | None:
        """A file of the node's state folder."""
        text = self.sh("cat", f"{STATE}/{name}")
        return json.loads(text) if text else None

    def declare(self, **declaration: Any) -> None:
        """Install the node script with this declaration, as install.yml does."""
        self.sh("mkdir", "-p", "-m", "700", STATE)
        bundle = write_bundle(self.folder / "tokenpeak-node.pyz")
        self.write(f"{STATE}/tokenpeak-node.pyz", bundle.read_bytes())
        self.write(
            f"{STATE}/node.json",
            json.dumps(
                {
                    "host": self.address,
                    "port": 8099,
                    "engine": {"command": [PYTHON, "serve"]},
                    "model": {"name": "tiny", "served_name": "tiny"},
                    **declaration,
                }
            ),
        )
        self.write(f"{STATE}/{SECRET}", "the controller's secret")
        assert self.node("install")["guard"] == "systemd"

    def launch_request(self, *options: str, **changes: Any) -> dict[str, Any]:
        argv = [PYTHON, SERVER, "serve", "tiny", "--host", self.address, "--port", "8099", *options]
        return {
            "trial_id": "0000-abc",
            "holder": "sweep-1",
            "argv": argv,
            "env": {},
            "served_model": "tiny",
            "secret": SECRET,
            "key_nonce": "00112233445566778899aabbccddeeff",
            "deadline_s": 20,
            "lease_s": 60,
            "trial_deadline_s": 600,
            "engine_stop_s": 5,
            "production_ready_s": 20,
            **changes,
        }

    def answers(self) -> bool:
        """Whether production gives a real completion by its model."""
        body = json.dumps({"model": "prod", "prompt": "x", "max_tokens": 1}).encode()
        request = urllib.request.Request(f"http://{self.address}:8000/v1/completions", body)
        try:
            with urllib.request.urlopen(request, timeout=2) as response:
                return json.load(response)["model"] == "prod"
        except OSError:
            return False

    def production_unit(self, *, enabled: bool) -> dict[str, Any]:
        """A small server as production's systemd unit; started."""
        self.write("/etc/systemd/system/prod.service", production_unit(self.address, 8000))
        self.sh("systemctl", "daemon-reload")
        if enabled:
            self.sh("systemctl", "enable", "-q", "prod.service")
        self.sh("systemctl", "start", "prod.service")
        return {"manager": "systemd", "unit": "prod.service", "url": f"http://{self.address}:8000"}


def production_unit(address: str, port: int) -> str:
    """A unit file that serves the model `prod`."""
    return (
        "[Unit]\nDescription=Production\n[Service]\n"
        f"ExecStart={PYTHON} {SERVER} serve prod --host {address} --port {port}\nRestart=always\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


@pytest.fixture(scope="session")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collections, as they are published."""
    folder = tmp_path_factory.mktemp("collections")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), "ansible>=12"]
    if subprocess.run(argv, check=False).returncode:
        pytest.skip("no package index offers `ansible` here")
    (wheel,) = folder.glob("ansible-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        wanted = tuple(f"ansible_collections/{name}/" for name in COLLECTIONS)
        packed.extractall(folder, [name for name in packed.namelist() if name.startswith(wanted)])
    return folder


@pytest.fixture(scope="session")
def rig_folder() -> Iterator[Path]:
    """Where this session's nodes are kept; only one session of this machine has the rig at a time."""
    reason = why_no_rig()
    if reason:
        pytest.skip(reason)
    with Path("/tmp/tokenpeak-rig.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(tempfile.mkdtemp(prefix="tokenpeak-rig-"))
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")],
            stdin=subprocess.DEVNULL,
            check=True,
        )
        yield folder
        shutil.rmtree(folder)


@pytest.fixture
def boot(rig_folder: Path) -> Iterator[Callable[..., RigNode]]:
    """Boots a node by name and last part of its address; all are down after the test."""
    nodes: list[RigNode] = []

    def up(name: str = "gpu1", last: int = 11, disk: str = "4g") -> RigNode:
        made = RigNode(name=name, address=f"10.77.0.{last}", folder=rig_folder, key=rig_folder / "key")
        environment = {**os.environ, "TESTNODE_DIR": str(rig_folder), "TESTNODE_DISK": disk}
        argv = [str(TESTNODE), "up", name, made.address, f"{made.key}.pub"]
        nodes.append(made)
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made.write(SERVER, STANDIN.read_bytes())
        return made

    yield up
    for made in nodes:
        made.testnode("down")
    (rig_folder / "known_hosts").unlink(missing_ok=True)


@pytest.fixture
def rig_node(boot: Callable[..., RigNode]) -> RigNode:
    """One booted node."""
    return boot()
