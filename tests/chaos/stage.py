"""A rig node with witnesses on it, controllers, and the hands that strike and lift each fault of the catalogue.

It drives; it judges nothing. Set-up and phases come from the fault matrix's bench.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.chaos.observation import Controller as Seen
from tests.chaos.observation import Limits, Look, look
from tests.faults import bench as faults_bench
from tests.faults.bench import MACHINE, MODEL, SPEC, Bench, Controller
from tests.faults.conftest import boot_node
from tests.rig.conftest import STATE, RigNode

from tokenpeak.node.machine import clock

HERE = Path(__file__).parent
WITNESS = "/run/witness"
LEASE_S = 6.0
SLACK_S = 15.0
BOARD, MEMORY_SHARE = "NVIDIA A100-SXM4-80GB", 0.4
"""Production and an engine fit beside each other, so that one that should not be there shows."""
LOAD_S = 8
"""Of load: long enough that production which somebody starts serves within it, and that a flapping cable is felt."""
SPEC_OF_RUN: dict[str, Any] = {
    **SPEC,
    "fixed": {"name": "fixed", "flags": {"max_model_len": 2048, "gpu_memory_utilization": MEMORY_SHARE}},
    "workloads": [{**SPEC["workloads"][0], "levels": [{"concurrency": 4, "duration_s": LOAD_S, "warmup_requests": 4}]}],
    "deadlines": {
        "engine_ready_s": 15,
        "run_s": 20,
        "engine_stop_s": 3,
        "production_ready_s": 15,
        "lease_s": LEASE_S,
    },
}


class ChaosBench(Bench):
    """A home with two sweeps, on a node whose engine and production log what they do."""

    known_hosts = Path()

    def prepare(self) -> None:
        """Put the simulated machine with its witnesses on the node, start production, and write the home."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.node.sh("mkdir", "-p", MACHINE, "/run/boards", WITNESS)
        self.node.sh("ln", "-sfn", "/run/boards", f"{MACHINE}/state")
        machine = (sys.executable, "-m", "tokenpeak.sim.install", MACHINE, "--gpu", BOARD, "--start-s", "0.3")
        self.node.sh(*machine)
        witnessed = shlex.join([sys.executable, str(HERE / "standin_engine.py"), WITNESS])
        self.node.sh("sh", "-c", f"head -n -1 {MACHINE}/vllm > {MACHINE}/witnessed")
        start = shlex.quote(f'exec {witnessed} "$@"')
        self.node.sh("sh", "-c", f"echo {start} >> {MACHINE}/witnessed")
        self.node.write(faults_bench.ENGINE, f'#!/bin/sh\nexec {MACHINE}/witnessed "$@"\n')
        self.node.sh("chmod", "755", f"{MACHINE}/witnessed", faults_bench.ENGINE)
        unit = faults_bench.production_unit(self.node.address).replace(f"{MACHINE}/vllm", f"{MACHINE}/witnessed")
        unit = unit.replace("--port 8000", f"--port 8000 --gpu-memory-utilization {MEMORY_SHARE}")
        self.node.write("/etc/systemd/system/prod.service", unit)
        self.node.sh("systemctl", "daemon-reload")
        self.node.sh("systemctl", "enable", "-q", "prod.service")
        began = time.monotonic()
        self.node.sh("systemctl", "start", "prod.service")
        assert clock.wait_until(self.answers, 90), self.node.sh("journalctl", "-b", "-u", "prod", "--no-pager")
        self.production_start_s = time.monotonic() - began
        self._write_home()

    def _write_home(self) -> None:
        super()._write_home()
        path = self.root / "inventory" / "rig" / "hosts.yml"
        hosts = yaml.safe_load(path.read_text())
        hosts["all"]["hosts"][self.node.name].update(
            ansible_ssh_common_args=f"-o StrictHostKeyChecking=yes -o UserKnownHostsFile={self.known_hosts}",
            tokenpeak_host=self.node.address,
        )
        path.write_text(yaml.safe_dump(hosts))
        self.write_spec("pair", SPEC_OF_RUN)
        self.write_spec("one", {**SPEC_OF_RUN, "axes": {"max_num_seqs": [8]}})

    def start(self, *arguments: str) -> Controller:
        """Start `tokenpeak` with these arguments, in a user's home of its own."""
        home = self.root.parent / "user"
        home.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "HOME": str(home),
            "TOKENPEAK_HOME": str(self.root),
            "TOKENPEAK_STATE": str(self.state),
        }
        return Controller(
            subprocess.Popen(
                [faults_bench.TOKENPEAK, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        )


class Stage:
    """One node and everything around it, for as many runs as leave it as it was."""

    def __init__(self, place: Path, number: int) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="stage-", dir=place))
        self.node: RigNode = boot_node(place, f"c{number}", 160 + number, disk="1400m")
        self.known_hosts = self.place / f"known_hosts-{number}"
        self._homes = 0
        try:
            self._know_the_key()
            self.bench = self.new_home()
            self.bench.prepare()
        except BaseException:
            self.down()
            raise

    def _know_the_key(self) -> None:
        key = self.node.sh("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()
        self.known_hosts.write_text(f"{self.node.address} {key[0]} {key[1]}\n")

    def new_home(self) -> ChaosBench:
        """Another user's home with the same inventory."""
        self._homes += 1
        home = self.place / f"home-{self._homes}"
        made = ChaosBench(node=self.node, root=home / "checkout", state=home / "state")
        made.known_hosts = self.known_hosts
        return made

    def fresh(self) -> None:
        """A new home for the next run, and no log of the last one's engines; production's goes on."""
        old = self.bench
        self.bench = self.new_home()
        self.bench.root.mkdir(parents=True)
        self.bench.production_start_s = old.production_start_s
        self.bench._write_home()
        shutil.rmtree(old.root.parent, ignore_errors=True)
        self.node.sh("sh", "-c", f"rm -f {WITNESS}/8099-* {STATE}/phase.json")

    def down(self) -> None:
        """Take everything away."""
        self.node.testnode("down")

    @property
    def limits(self) -> Limits:
        """What a run's spec allows."""
        deadlines = SPEC_OF_RUN["deadlines"]
        return Limits(
            lease_s=deadlines["lease_s"],
            engine_ready_s=deadlines["engine_ready_s"],
            run_s=deadlines["run_s"],
            engine_stop_s=deadlines["engine_stop_s"],
            production_ready_s=deadlines["production_ready_s"],
            production_start_s=self.bench.production_start_s,
            slack_s=SLACK_S,
        )

    @property
    def pid(self) -> int:
        """The node's systemd, as this machine numbers it."""
        return int((self.node.folder / self.node.name / "pid").read_text())

    def look(self) -> Look:
        """The node as it is now."""
        return look(["nsenter", "-t", str(self.pid), "-a", "-r", "-w"], f"{MACHINE}/nvidia-smi")

    def witness(self) -> Path:
        """Where the logs of the stand-in engines are, seen from this machine."""
        return Path(f"/proc/{self.pid}/root{WITNESS}")

    def start_sampler(self, path: Path) -> "subprocess.Popen[bytes]":
        """Begin to ask production and the engine."""
        argv = ["ip", "netns", "exec", f"tp-{self.node.name}", sys.executable, str(HERE / "sampler.py")]
        return subprocess.Popen([*argv, self.node.address, MODEL, str(path)], stdin=subprocess.DEVNULL)

    def pids_of_node(self, role: str) -> list[int]:
        """The node's processes of a role, as this machine numbers them, oldest first."""
        words: dict[str, Callable[[list[str]], bool]] = {
            "engine": lambda argv: "serve" in argv and "8099" in argv,
            "production": lambda argv: "serve" in argv and "8000" in argv,
            "guard": lambda argv: _is_command(argv, "guard"),
            "node-lease": lambda argv: _is_command(argv, "lease"),
            "telemetry": lambda argv: _is_command(argv, "telemetry"),
            "command": lambda argv: _is_command(argv, "launch", "finish", "restore"),
        }
        argv = ["ip", "netns", "pids", f"tp-{self.node.name}"]
        listed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
        return sorted(pid for pid in map(int, listed) if words[role](_argv(pid)))

    def pids_of_controller(self, controller: Controller, role: str) -> list[int]:
        """A controller's processes of a role, oldest first."""
        if role == "controller":
            return [controller.process.pid]
        words: dict[str, Callable[[list[str]], bool]] = {
            "ansible": lambda argv: any("ansible-playbook" in word for word in argv[:3]),
            "ssh": lambda argv: argv[0] == "ssh" and not any(" lease " in word for word in argv),
            "lease": lambda argv: argv[0] == "ssh" and any(" lease " in word for word in argv),
            "client": lambda argv: ("load" in argv and "--job" in argv) or "tokenpeak.loadgen.workers.local" in argv,
        }
        return [pid for pid in descendants(controller.process.pid) if words[role](_argv(pid) or [""])]


def _is_command(argv: list[str], *names: str) -> bool:
    """Whether this is the node script with one of these commands, and not a shell or sudo that runs it."""
    script = next((at for at, word in enumerate(argv) if word.endswith("tokenpeak-node.pyz")), None)
    return script is not None and script <= 2 and argv[script + 1 : script + 2] != [] and argv[script + 1] in names


def _argv(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents first."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, left = [], [pid]
    while left:
        children = sorted(child for child, parent in parents.items() if parent == left[0])
        left = left[1:] + children
        found += children
    return found


def seen(controller: Controller, who: str, arguments: list[str], began_s: float) -> Seen:
    """A controller that has ended, for the oracle."""
    return Seen(
        who=who,
        arguments=arguments,
        began_s=began_s,
        ended_s=time.time(),
        status=controller.process.returncode,
        said=controller.said,
    )
