"""Logins that fail, over the real Ansible and sshd of `tokenpeak probe`: each is one sentence that says what to do."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.rig.conftest import RigNode

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
ADDRESS = "10.77.0.161"
USERS = {"noshell": "/usr/sbin/nologin", "asked": "/bin/bash", "others": "/bin/bash"}
"""User of the node → login shell. `asked` has to type a password for sudo, `others` may not use it."""


@dataclass(kw_only=True)
class Controller:
    """A working folder with an inventory of one node, and what its commands print."""

    folder: Path
    node: RigNode
    variables: Mapping[str, object] = field(default_factory=dict)
    options: str = ""
    """Of ssh."""

    @property
    def known_hosts(self) -> Path:
        """Where this user's ssh keeps host keys."""
        return self.folder / "known_hosts"

    def run(self, command: str = "probe", **variables: object) -> tuple[int, str]:
        """A command with these variables of the node; its exit status and what it printed."""
        ssh = f"-o UserKnownHostsFile={self.known_hosts} -o GlobalKnownHostsFile=/dev/null -o ControlPath=none"
        given = {
            "ansible_host": self.node.address,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.node.key),
            "ansible_ssh_common_args": f"{ssh} {self.options}".strip(),
            "tokenpeak_python": "/usr/bin/python3",
            "tokenpeak_state_dir": "/var/lib/tokenpeak",
            "tokenpeak_model": {"name": "tiny", "served_name": "tiny"},
            "tokenpeak_engine_command": ["/bin/true", "serve"],
            "tokenpeak_host": self.node.address,
            "tokenpeak_port": 8099,
            "tokenpeak_production": {"manager": "none"},
            **variables,
        }
        inventory = self.folder / "inventory" / "rig"
        inventory.mkdir(parents=True, exist_ok=True)
        (self.folder / "sweeps").mkdir(exist_ok=True)
        (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"gpu1": given}}}))
        done = subprocess.run(
            [TOKENPEAK, command, "--inventory", "rig"],
            cwd=self.folder,
            env={**os.environ, "TOKENPEAK_STATE": str(self.folder / "state")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def trust(self) -> None:
        """Know the node's key, as the documented command does."""
        argv = ["ssh-keyscan", "-t", "ed25519", self.node.address]

        def is_scanned() -> bool:
            # A server that has just been reloaded does not listen yet.
            self.known_hosts.write_bytes(subprocess.run(argv, capture_output=True, check=False).stdout)
            return self.known_hosts.stat().st_size > 0

        assert clock.wait_until(is_scanned, 30, poll_s=0.2)


def add_users(node: RigNode) -> None:
    """Users of the node whom the controller's key lets in."""
    for user, shell in USERS.items():
        node.sh("useradd", "-m", "-s", shell, user)
        node.sh("install", "-d", "-o", user, "-m", "700", f"/home/{user}/.ssh")
        node.sh("install", "-o", user, "-m", "600", "/root/.ssh/authorized_keys", f"/home/{user}/.ssh/authorized_keys")
    node.write("/etc/sudoers.d/asked", "asked ALL=(ALL) ALL\n")
    node.sh("chmod", "0440", "/etc/sudoers.d/asked")


@pytest.fixture(scope="module")
def node(rig_folder: Path) -> Iterator[RigNode]:
    """One node for all tests of this module, which change nothing on it."""
    made = RigNode(name="login1", address=ADDRESS, folder=rig_folder, key=rig_folder / "key")
    try:
        made.testnode("up", ADDRESS, f"{made.key}.pub")
        add_users(made)
        yield made
    finally:
        made.testnode("down")


@pytest.fixture
def controller(node: RigNode, tmp_path: Path) -> Controller:
    """A controller that knows the node's key."""
    made = Controller(folder=tmp_path, node=node)
    made.trust()
    return made


CASES = {
    "no Python": (
        {"ansible_python_interpreter": "/opt/py/bin/python"},
        "there is no Python at /opt/py/bin/python. Install Python 3.8 or newer there",
    ),
    "no shell": (
        {"ansible_user": "noshell"},
        "user noshell has no login shell there (This account is currently not available.). Give one there (usermod "
        "--shell /bin/sh noshell)",
    ),
    "sudo asks": (
        {"ansible_user": "asked", "ansible_become": True},
        "sudo asks user asked for a password there, which nobody types. Let it ask for none: sudo visudo -f "
        "/etc/sudoers.d/tokenpeak, with the line asked ALL=(root) NOPASSWD: ALL",
    ),
    "no rights": (
        {"ansible_user": "others"},
        "Permission denied. Log in as root (ansible_user: root), or set ansible_become: true",
    ),
    "key not accepted": (
        {"ansible_user": "stranger"},
        f"{ADDRESS} accepts no key that was offered for user stranger (Permission denied (publickey",
    ),
    "nobody there": (
        {"ansible_host": "10.77.0.250"},
        "no SSH connection to 10.77.0.250 port 22 (No route to host). Is the address right",
    ),
}


@pytest.mark.parametrize(("variables", "sentence"), CASES.values(), ids=CASES)
def test_failed_login_is_a_sentence(variables: Mapping[str, object], sentence: str, controller: Controller) -> None:
    """Each way in which a login fails is said in one line, with what to do."""
    status, said = controller.run(**variables)
    [problem] = [line for line in said.splitlines() if line.startswith("PROBLEM")]

    assert 1 == status
    assert sentence in problem, said


def test_probe_logs_in_once(controller: Controller) -> None:
    """A probe makes one connection to a node, which all tasks share, also those of the next probe."""
    options = f"-o UserKnownHostsFile={controller.known_hosts} -o GlobalKnownHostsFile=/dev/null"

    def logins() -> int:
        return controller.node.sh("journalctl", "-q", "--no-pager", "-t", "sshd").count("Accepted publickey")

    counts, statuses = [logins()], []
    for _ in range(2):
        statuses.append(controller.run(ansible_ssh_common_args=options)[0])
        counts.append(logins())
    where = controller.node.sh("stat", "-c", "%a %U", "/var/lib/tokenpeak", "/var/lib/tokenpeak/node.json")

    assert [0, 0] == statuses
    assert [1, 0] == [after - before for before, after in itertools.pairwise(counts)]
    assert ["700 root", "600 root"] == where.splitlines()


def test_jump(controller: Controller) -> None:
    """A node that only another machine reaches is probed through that one, as ~/.ssh/config has it."""
    config = controller.folder / "config"
    # The second sshd listens on the node's loopback address alone.
    controller.node.sh("sh", "-c", "/usr/sbin/sshd -o ListenAddress=127.0.0.1:2222 -o PidFile=/run/inner.pid")
    config.write_text(
        f"Host jump\n  HostName {ADDRESS}\nHost inner\n  HostName 127.0.0.1\n  Port 2222\n  ProxyJump jump\n"
        f"Host *\n  User root\n  IdentityFile {controller.node.key}\n  UserKnownHostsFile {controller.known_hosts}\n"
    )
    inner = {"ansible_host": "inner", "ansible_ssh_common_args": f"-F {config} -o ControlPath=none"}
    unknown = controller.run(**inner)
    [key] = [line.split(" ", 1)[1] for line in controller.known_hosts.read_text().splitlines()]
    with controller.known_hosts.open("a") as known:
        known.write(f"[127.0.0.1]:2222 {key}\n")
    reached = controller.run(**inner)
    controller.known_hosts.unlink()
    jump_unknown = controller.run(**inner)
    controller.node.sh("sh", "-c", "kill $(cat /run/inner.pid)")

    assert "its host key is unknown, so nothing was sent there" in unknown[1]
    assert 0 == reached[0], reached
    assert "the host key of the machine on the way there (ProxyJump) is unknown" in jump_unknown[1]
