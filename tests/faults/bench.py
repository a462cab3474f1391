"""A rig node with simulated engine and production, and a controller that sweeps on it: what faults strike at."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.docker_daemon import IMAGE
from tests.faults import docker_node
from tests.rig.conftest import PYTHON, STATE, RigNode

from tokenpeak import paths
from tokenpeak.node.machine import clock
from tokenpeak.store.archive import Archive

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MACHINE = "/opt/machine"
ENGINE = f"{MACHINE}/engine"
CHATTER = f"{MACHINE}/chatter"
LEASE_S = 8.0
SLACK_S = 15.0
"""For what is neither the lease nor production's own start: the fault's detection, the engine's end, a busy machine."""

SPEC: dict[str, Any] = {
    "axes": {"max_num_seqs": [8, 16]},
    "fixed": {"name": "fixed", "flags": {"max_model_len": 2048}},
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 32},
            "levels": [{"concurrency": 4, "requests": 8, "warmup_requests": 4}],
        }
    ],
    "search": {"anchor_every": None, "baseline": [], "finalists": 0},
    "deadlines": {
        "engine_ready_s": 40,
        "run_s": 40,
        "engine_stop_s": 3,
        "production_ready_s": 30,
        "lease_s": LEASE_S,
    },
}


def production_unit(address: str) -> str:
    """A simulated engine as production's unit; its slow stop is long enough to be struck in."""
    return f"""[Unit]
Description=Production
StartLimitIntervalSec=0
[Service]
Environment=TOKENPEAK_SIM_START_S=0.5
ExecStartPre=/bin/sh -c 'test ! -e /root/refuse || {{ test -e /root/always || rm /root/refuse; exit 1; }}'
ExecStart={MACHINE}/vllm serve {MODEL} --host {address} --port 8000 --max-model-len 4096
ExecStop=/bin/sleep 0.7
KillMode=mixed
Restart=no
[Install]
WantedBy=multi-user.target
"""


ENGINE_SCRIPT = f"""#!/bin/sh
# The simulated engine; with much to say before it starts, where there is something for it to say.
if [ "$1" = serve ] && [ -e {CHATTER} ]; then cat {CHATTER}; fi
exec {MACHINE}/vllm "$@"
"""


@dataclass
class Controller:
    """A `tokenpeak` under way."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    seen_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)
            self.seen_s.append(time.monotonic())

    def since_s(self, word: str) -> float | None:
        """Seconds since it printed a line with this word; None when it has not."""
        seen = (at for line, at in zip(self.lines, self.seen_s, strict=False) if word in line)
        at = next(seen, None)
        return None if at is None else time.monotonic() - at

    def end(self) -> None:
        """Kill it, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait(30)

    @property
    def said(self) -> str:
        """Everything it has printed."""
        return "".join(self.lines)

    def wait(self, timeout_s: float) -> int:
        """Its exit status; it is killed, and the test fails, when it does not end in time."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"The controller did not end within {timeout_s:g} s:\n{self.said}") from None
        self._reader.join(5)
        if not self._reader.is_alive():
            assert self.process.stdout
            self.process.stdout.close()
        return status


@dataclass
class Bench:
    """A node, and a TokenPeak home with an inventory that names it.

    `in_container`: its engine and its production are Docker's, else a command and a systemd unit.
    """

    node: RigNode
    root: Path
    state: Path
    in_container: bool = False
    gpu: str = "NVIDIA L4"
    baseline_bytes: int = 0
    production_start_s: float = 0.0
    kept: tuple[tuple[str, ...], ...] = ()
    """What the node's Docker had before the first fault: containers, images, layers, volumes."""
    temporary: Path | None = None
    """Where the controller keeps temporary files, if not where this machine does."""

    def prepare(self) -> None:
        """Put the simulated machine and its production on the node, and write the inventory."""
        self.root.mkdir(parents=True, exist_ok=True)
        machine = (sys.executable, "-m", "tokenpeak.sim.install", MACHINE, "--gpu", self.gpu, "--start-s", "1")
        self.node.sh(*machine)
        self.node.write(ENGINE, ENGINE_SCRIPT)
        self.node.sh("chmod", "755", ENGINE)
        if self.in_container:
            docker_node.start(self.node)
            docker_node.make_production(self.node, MACHINE, MODEL)
            start, said = ("docker", "start", "prod"), ("docker", "logs", "prod")
        else:
            self.node.write("/etc/systemd/system/prod.service", self.unit())
            self.node.sh("systemctl", "daemon-reload")
            self.node.sh("systemctl", "enable", "-q", "prod.service")
            start, said = ("systemctl", "start", "prod.service"), ("journalctl", "-b", "-u", "prod", "--no-pager")
        began = time.monotonic()
        self.node.sh(*start)
        assert clock.wait_until(self.answers, 90), self.node.sh(*said)
        self.production_start_s = time.monotonic() - began
        self.baseline_bytes = self.vram_bytes()
        self.kept = docker_node.keeps(self.node) if self.in_container else ()
        self._write_home()

    def unit(self) -> str:
        """Production's unit file."""
        return production_unit(self.node.address)

    def variables(self) -> dict[str, Any]:
        """What the inventory declares beyond what all benches do."""
        return {}

    def _engine(self) -> dict[str, Any]:
        """How the inventory declares the engine."""
        if not self.in_container:
            return {"tokenpeak_engine_version": "0.32.0", "tokenpeak_engine_command": [ENGINE, "serve"]}
        build = {
            "version": "0.32.0",
            "image": IMAGE,
            "command": [ENGINE, "serve"],
            "mounts": docker_node.machine_mounts(MACHINE),
            "args": ["--pid=host"],
        }
        return {"tokenpeak_engines": {"box": build}}

    def _write_home(self) -> None:
        for name in ("playbooks", "notebooks", "site"):
            (self.root / name).symlink_to(paths.ROOT / name)
        known = self.node.folder / "known_hosts"
        variables = {
            "ansible_host": self.node.address,
            "ansible_user": "root",
            "ansible_python_interpreter": PYTHON,
            "ansible_ssh_private_key_file": str(self.node.key),
            "ansible_ssh_common_args": f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={known}",
            "tokenpeak_python": PYTHON,
            "tokenpeak_state_dir": STATE,
            "tokenpeak_simulated": True,
            "tokenpeak_model": {"name": MODEL, "served_name": MODEL},
            "tokenpeak_tools": MACHINE,
            **self._engine(),
            "tokenpeak_host": "{{ ansible_host }}",
            "tokenpeak_port": 8099,
            "tokenpeak_production": {
                "manager": "docker" if self.in_container else "systemd",
                "unit": "prod" if self.in_container else "prod.service",
                "url": f"http://{self.node.address}:8000",
            },
            **self.variables(),
        }
        inventory = self.root / "inventory" / "rig"
        inventory.mkdir(parents=True)
        hosts = {"all": {"hosts": {self.node.name: variables}}}
        (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
        self.write_spec("pair", SPEC)
        self.write_spec("one", {**SPEC, "axes": {"max_num_seqs": [8]}})

    def write_spec(self, name: str, spec: dict[str, Any]) -> None:
        """Make a sweep that can be named."""
        folder = self.root / "analysis" / "sweeps"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yml").write_text(yaml.safe_dump(spec))

    def start(self, *arguments: str) -> Controller:
        """Start `tokenpeak` with these arguments."""
        environment = {**os.environ, "TOKENPEAK_HOME": str(self.root), "TOKENPEAK_STATE": str(self.state)}
        if self.temporary is not None:
            environment["TMPDIR"] = str(self.temporary)
        return Controller(
            subprocess.Popen(
                [TOKENPEAK, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        )

    def let_engine_chatter(self) -> None:
        """Give the engine a log that takes most of a second to pack, so that its collection can be struck."""
        letters = random.Random(0).choices("ab", k=7 << 20)
        self.node.write(CHATTER, "\n".join("".join(letters[at : at + 100]) for at in range(0, len(letters), 100)))

    def silence_engine(self) -> None:
        """Let the engine say no more than usual."""
        self.node.sh("rm", "-f", CHATTER)

    def sweep(self, name: str = "one") -> Controller:
        """Start a sweep, with nothing left from the one before."""
        self.node.sh("rm", "-f", f"{STATE}/phase.json")
        return self.start("sweep", "--inventory", "rig", "--sweep", name, "--no-report")

    def on_disk(self, name: str) -> Path:
        """A file of the node's state folder, seen from this machine even when the node's cable is cut."""
        return self.node.folder / self.node.name / "upper" / STATE.lstrip("/") / name

    def phase(self) -> str | None:
        """What the node says it is doing."""
        try:
            return str(json.loads(self.on_disk("phase.json").read_text())["name"])
        except (OSError, ValueError):
            return None

    def load_phase(self) -> str | None:
        """What the load client says it is doing."""
        for path in self.state.glob("work/*/*/progress.json"):
            try:
                return str(json.loads(path.read_text())["phase"])
            except (OSError, ValueError, KeyError):
                continue
        return None

    def is_armed(self) -> bool:
        """Whether a trial has the node."""
        return self.on_disk("record.json").exists()

    def answers(self) -> bool:
        """Whether production gives a real completion by its model."""
        body = json.dumps({"model": MODEL, "prompt": "The", "max_tokens": 1}).encode()
        url = f"http://{self.node.address}:8000/v1/completions"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=2) as response:
                return bool(json.load(response)["model"] == MODEL)
        except (OSError, ValueError):
            return False

    def vram_bytes(self) -> int:
        """Memory in use on the node's boards."""
        said = self.node.sh(f"{MACHINE}/nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
        return int(said.split()[0]) << 20

    def engine_processes(self) -> list[str]:
        """Command lines on the node that belong to a trial."""
        words = ("--port 8099", "--port=8099", "tokenpeak-node.pyz telemetry")
        return [
            line
            for line in self.node.sh("ps", "-ww", "-eo", "args").splitlines()
            if any(word in line for word in words)
        ]

    def archives(self) -> list[Path]:
        """The archives of this home, oldest first."""
        return sorted(path.parent for path in (self.root / "results").glob("*/sweep.json"))

    def await_phase(self, controller: Controller, is_reached: Callable[["Bench", Controller], bool]) -> bool:
        """Return the moment that a phase is reached; False when the sweep went through it unseen."""
        deadline = time.monotonic() + 600
        while not is_reached(self, controller):
            if controller.process.poll() is not None:
                assert controller.wait(30) == 0, f"The sweep failed before the phase:\n{controller.said}"
                return False
            assert time.monotonic() < deadline, f"The phase never came ({self.phase()}):\n{controller.said}"
            time.sleep(0.005)
        return True

    def begin(self, is_reached: Callable[["Bench", Controller], bool], name: str = "one") -> tuple[Controller, int]:
        """A sweep that has just reached a phase, and how many archives there were before it.

        On a busy machine a phase of some milliseconds can go by unseen; then another sweep is begun.
        """
        for _ in range(5):
            before = len(self.archives())
            controller = self.sweep(name)
            try:
                if self.await_phase(controller, is_reached):
                    return controller, before
            except BaseException:
                controller.end()
                raise
        raise AssertionError("five sweeps went through the phase unseen")

    def recovered_s(self, since: float, *, within_s: float) -> float:
        """How long after `since` the node was disarmed and production answered."""
        assert clock.wait_until(lambda: not self.is_armed() and self.answers(), within_s, poll_s=0.1), (
            f"not given back within {within_s:.1f} s: armed {self.is_armed()}, phase {self.phase()}\n"
            + self.node.sh("journalctl", "-b", "--no-pager", "-n", "60")
        )
        return time.monotonic() - since

    def finish_sweep(self, *, before: int, controller: Controller, name: str = "one") -> Path:
        """Resume what was begun, or begin anew what never was, until it is complete; the archive."""
        begun = self.archives()[before:]
        ended = Archive(begun[-1]).read_end() if begun else None
        if ended is not None and ended.status == "completed" and not ended.unrestored:
            return begun[-1]
        arguments = ["--resume", begun[-1].name] if begun else ["--inventory", "rig", "--sweep", name]
        again = self.start("sweep", *arguments, "--no-report")
        assert again.wait(400) == 0, f"{controller.said}\n--- then ---\n{again.said}"
        return self.archives()[-1]

    def check_as_it_was(self) -> None:
        """Production answers, memory is free, nothing of a trial is left."""
        assert self.answers()
        assert self.vram_bytes() == self.baseline_bytes
        assert [] == self.engine_processes()
        left = [name for name in ("record.json", "engine.json", "lock.json") if self.on_disk(name).exists()]
        assert [] == left
        units = self.node.sh("systemctl", "list-units", "--all", "--no-legend", "--plain", "tokenpeak-engine-*")
        assert "" == units.strip()
        if self.in_container:
            assert self.kept == docker_node.keeps(self.node)
        else:
            assert "enabled" == self.node.sh("systemctl", "is-enabled", "prod.service").strip()

    def check_archive(self, path: Path, *, configs: int = 1) -> None:
        """Every file can be read, and each config was measured exactly once."""
        archive = Archive(path)
        archive.read_sweep()
        trials = tuple(archive.trials())
        assert [] == archive.malformed
        ended = archive.read_end()
        assert ended is not None
        assert ("completed", ()) == (ended.status, ended.unrestored)
        measured = Counter(trial.config.name for trial in trials if trial.status == "ok")
        assert [1] * configs == list(measured.values()), [(t.trial_id, t.status, t.failure) for t in trials]
        assert not list(path.rglob("*.part"))


def strike_power(bench: Bench) -> None:
    """Power loss: every process of the node is gone at once."""
    os.kill(int((bench.node.folder / bench.node.name / "pid").read_text()), signal.SIGKILL)


FINISHED = re.compile(r" \d{4}-[0-9a-f]+ \S+: ")
