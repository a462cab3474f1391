"""A rack of many nodes on one machine, each reached over real SSH, with production that really stops and comes back.

Up to twelve are nodes of the rig, with a systemd and an sshd of their own. The others are light: addresses of loopback
behind one sshd, each with a state folder, a simulated machine and a production of its own. The node script on all of
them is the real one. Whatever a rack has started ends with it, and what a killed one left ends before the next begins.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.faults.bench import MACHINE, MODEL, production_unit
from tests.faults.conftest import boot_node
from tests.many_nodes.user import User
from tests.rig.conftest import PYTHON, STATE, TESTNODE, RigNode

from tokenpeak.node.machine import clock
from tokenpeak.sim.install import install

FOLDER = Path("/tmp/tokenpeak-many-nodes")
BOARD = "NVIDIA L4"
RIG_NODES = 12
"""Of a rack of twelve nodes or more; a smaller one has one."""
INVENTORY = "many"
ENGINE_PORT = 8099
BOOTED_AT_ONCE = 4
RIG_NAME = "many"
FIRST_ADDRESS = 200
LIGHT_NETWORK = "127.77"
START_S = 0.5
"""Of engines and production, beside what a process takes to come up."""
SSHD = """Port {port}
ListenAddress 0.0.0.0
AllowUsers root@127.*
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
MaxStartups 2000
SetEnv HOME={folder}/root
LogLevel ERROR
"""
ENGINE = """#!/bin/sh
# A simulated engine that waits before it starts, for as long as the file `hold` is beside it.
while [ "$1" = serve ] && [ -e {machine}/hold ]; do sleep 0.2; done
exec {machine}/vllm "$@"
"""


@dataclass(frozen=True, kw_only=True)
class RackNode:
    """A node as the test sees it; `rig` is None of a light one, whose state folder is here."""

    name: str
    address: str
    production_port: int
    state: Path
    rig: RigNode | None = None

    def answers(self) -> bool:
        """Whether production gives a completion by its model."""
        body = json.dumps({"model": MODEL, "prompt": "The", "max_tokens": 1}).encode()
        url = f"http://{self.address}:{self.production_port}/v1/completions"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return bool(json.load(response)["model"] == MODEL)
        except (OSError, ValueError):
            return False

    def has_free_engine_port(self) -> bool:
        """Whether nothing listens where an engine would."""
        with socket.socket() as tried:
            tried.settimeout(2)
            return tried.connect_ex((self.address, ENGINE_PORT)) != 0

    def has(self, name: str) -> bool:
        """Whether the node's state folder has this file."""
        folder = self.state if self.rig is None else self.rig.folder / self.name / "upper" / STATE.lstrip("/")
        return (folder / name).exists()

    def hold_engines(self, *, held: bool) -> None:
        """Let no engine start from now on, or let them start again."""
        machine = self.state.with_name("machine") if self.rig is None else Path(MACHINE)
        argv = ["touch", str(machine / "hold")] if held else ["rm", "-f", str(machine / "hold")]
        subprocess.run(argv, check=True) if self.rig is None else self.rig.sh(*argv)

    def production_began_s(self) -> float:
        """When production's process began, by the kernel, in seconds since the boot."""
        if self.rig is None:
            pid = json.loads((self.state / "production.json").read_text())["pid"]
            said = Path(f"/proc/{pid}/stat").read_text()
        else:
            pid = self.rig.sh("systemctl", "show", "--property=MainPID", "--value", "prod.service").strip()
            said = self.rig.sh("cat", f"/proc/{pid}/stat")
        return int(said.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Rack:
    """The nodes of an inventory, and where its users are at home."""

    folder: Path
    nodes: tuple[RackNode, ...]

    def user(self, name: str, working_folder: Path) -> User:
        """Somebody with a home, a state folder and a secret of their own."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        return User(home=home, work=working_folder)

    def working_folder(self, specs: dict[str, dict[str, Any]], shared: dict[str, Any]) -> Path:
        """A working folder with the inventory, in which all nodes have these variables too, and with these sweeps."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        inventory = work / "inventory" / INVENTORY
        (inventory / "group_vars").mkdir(parents=True)
        (work / "sweeps").mkdir()
        hosts: dict[str, dict[str, Any]] = {"rig": {}, "light": {}}
        for node in self.nodes:
            group = "light" if node.rig is None else "rig"
            hosts[group][node.name] = {"ansible_host": node.address}
        groups = {group: {"hosts": found} for group, found in hosts.items() if found}
        (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
        variables = {"all": {**self._variables(), **shared}, "rig": self._of_rig(), "light": self._of_light()}
        for group, found in variables.items():
            if group == "all" or hosts[group]:
                (inventory / "group_vars" / f"{group}.yml").write_text(yaml.safe_dump(found))
        for name, spec in specs.items():
            (work / "sweeps" / f"{name}.yml").write_text(yaml.safe_dump(spec))
        return work

    def _variables(self) -> dict[str, Any]:
        checked = f"-o StrictHostKeyChecking=yes -o UserKnownHostsFile={self.folder}/known_hosts"
        return {
            "ansible_user": "root",
            "ansible_python_interpreter": PYTHON,
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": f"-o IdentitiesOnly=yes {checked}",
            "tokenpeak_python": PYTHON,
            "tokenpeak_simulated": True,
            "tokenpeak_model": {"name": MODEL, "served_name": MODEL},
            "tokenpeak_engine_version": "0.32.0",
            "tokenpeak_host": "{{ ansible_host }}",
            "tokenpeak_port": ENGINE_PORT,
        }

    def _of_rig(self) -> dict[str, Any]:
        url = "http://{{ ansible_host }}:8000"
        return {
            "tokenpeak_state_dir": STATE,
            "tokenpeak_tools": MACHINE,
            "tokenpeak_engine_command": [f"{MACHINE}/engine", "serve"],
            "tokenpeak_production": {"manager": "systemd", "unit": "prod.service", "url": url},
        }

    def _of_light(self) -> dict[str, Any]:
        tools = f"{self.folder}/nodes/{{{{ inventory_hostname }}}}/machine"
        argv = [f"{tools}/vllm", "serve", MODEL, "--host", "{{ ansible_host }}", "--port", "18000"]
        return {
            "ansible_port": int((self.folder / "sshd.port").read_text()),
            "tokenpeak_state_dir": f"{self.folder}/nodes/{{{{ inventory_hostname }}}}/state",
            "tokenpeak_tools": tools,
            "tokenpeak_engine_command": [f"{tools}/engine", "serve"],
            "tokenpeak_engine_isolation": "process",
            "tokenpeak_produce": True,
            "tokenpeak_production": {
                "manager": "command",
                "url": "http://{{ ansible_host }}:18000",
                "process": {"argv": [*argv, "--max-model-len", "4096"], "env": {"TOKENPEAK_SIM_START_S": str(START_S)}},
            },
        }


@contextmanager
def rack_of(count: int) -> Iterator[Rack]:
    """A rack of so many nodes; gone afterwards. Only one is on this machine at a time."""
    in_rig = RIG_NODES if count >= RIG_NODES else 1
    with Path(f"{FOLDER}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        _clear()
        FOLDER.mkdir(exist_ok=True)
        try:
            for name in ("key", "host_key"):
                argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(FOLDER / name)]
                subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)
            with ThreadPoolExecutor(BOOTED_AT_ONCE) as pool:
                rig = list(pool.map(_rig_node, range(in_rig)))
                light = list(pool.map(_light_node, range(count - in_rig)))
            _start_sshd([node.address for node in light], [node.rig for node in rig if node.rig])
            yield Rack(folder=FOLDER, nodes=(*rig, *light))
        finally:
            _clear()


def _clear() -> None:
    """End every node and process of a rack, and remove its folder."""
    for kept in Path("/run/testnode").glob(f"{RIG_NAME}*"):
        subprocess.run([str(TESTNODE), "down", kept.name], check=True)
    while left := _own_processes():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(FOLDER, ignore_errors=True)


def _own_processes() -> list[int]:
    """Living processes whose command line or environment names the rack's folder."""
    found, here = [], os.getpid()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            said = (path / "cmdline").read_bytes() + b"\0" + (path / "environ").read_bytes()
            is_dead = (path / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if f"{FOLDER}/".encode() in said and not is_dead and int(path.name) != here:
                found.append(int(path.name))
    return found


def _rig_node(number: int) -> RackNode:
    """A node of the rig that serves."""
    made = boot_node(FOLDER, f"{RIG_NAME}{number}", FIRST_ADDRESS + number)
    made.sh(sys.executable, "-m", "tokenpeak.sim.install", MACHINE, "--gpu", BOARD, "--start-s", str(START_S))
    made.write(f"{MACHINE}/engine", ENGINE.format(machine=MACHINE))
    made.sh("chmod", "755", f"{MACHINE}/engine")
    # What this machine's root does at each login costs seconds when many log in at once.
    made.write("/root/.bashrc", "")
    made.write("/etc/systemd/system/prod.service", production_unit(made.address))
    made.sh("systemctl", "daemon-reload")
    made.sh("systemctl", "start", "prod.service")
    node = RackNode(name=made.name, address=made.address, production_port=8000, state=Path(STATE), rig=made)
    assert clock.wait_until(node.answers, 60), made.sh("journalctl", "-b", "-u", "prod", "--no-pager")
    return node


def _light_node(number: int) -> RackNode:
    """A light node with its simulated machine; its production is started by the first probe."""
    name = f"light{number:03d}"
    machine = FOLDER / "nodes" / name / "machine"
    install(machine, {"TOKENPEAK_SIM_GPU": BOARD, "TOKENPEAK_SIM_START_S": str(START_S)})
    (machine / "engine").write_text(ENGINE.format(machine=machine))
    (machine / "engine").chmod(0o755)
    address = f"{LIGHT_NETWORK}.{1 + number // 250}.{1 + number % 250}"
    return RackNode(name=name, address=address, production_port=18000, state=machine.with_name("state"))


def _start_sshd(addresses: list[str], rigs: list[RigNode]) -> None:
    """One sshd for all light nodes, and the host keys of all nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (FOLDER / "sshd.port").write_text(str(port))
    shutil.copy(FOLDER / "key.pub", FOLDER / "authorized_keys")
    (FOLDER / "root").mkdir()
    (FOLDER / "sshd.conf").write_text(SSHD.format(port=port, folder=FOLDER))
    Path("/run/sshd").mkdir(exist_ok=True)
    argv = [shutil.which("sshd") or "/usr/sbin/sshd", "-f", str(FOLDER / "sshd.conf"), "-E", str(FOLDER / "sshd.log")]
    subprocess.run(argv, check=True)
    own = " ".join((FOLDER / "host_key.pub").read_text().split()[:2])
    known = [f"[{address}]:{port} {own}" for address in addresses]
    for rig in rigs:
        key = " ".join(rig.sh("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[:2])
        known.append(f"{rig.address} {key}")
    (FOLDER / "known_hosts").write_text("\n".join(known) + "\n")
