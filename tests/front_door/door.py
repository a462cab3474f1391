"""A user's place: a clean clone, an empty home, and a rig node that the v100 inventory names. Commands run as typed."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig.conftest import STATE, RigNode

from tokenpeak import paths

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
MACHINE = "/opt/vllm/bin"
PRODUCTION = f"""[Unit]
Description=What this machine normally serves
[Service]
ExecStart={MACHINE}/vllm serve {MODEL} --host 127.0.0.1 --port 8000 --tensor-parallel-size 4 --dtype float16 \
--max-model-len 4096
Restart=no
[Install]
WantedBy=multi-user.target
"""
SPEC = """description: The smallest sweep, to walk through the front door
axes: {max_num_seqs: [8]}
fixed: {name: fixed, flags: {FLAGS}}
workloads:
  - workload: {kind: synthetic, name: short, input_tokens: 16, output_tokens: 16}
    levels: [{concurrency: 4, requests: 8, warmup_requests: 4}]
search: {anchor_every: null, baseline: [], finalists: 0}
deadlines: {engine_ready_s: 60, run_s: 60, engine_stop_s: 5, production_ready_s: 60, lease_s: 15}
"""


ROOT_SSH = Path("~root").expanduser() / ".ssh"


@dataclass(kw_only=True)
class Done:
    """A command that has ended."""

    line: str
    status: int
    said: str
    seconds: float


@dataclass
class Door:
    """Where a user types. `home` is all that a fresh account has: a key that the node knows."""

    place: Path
    node: RigNode
    ids: dict[str, str] = field(default_factory=dict)
    """What a line's placeholder stands for, such as the id of the sweep to resume."""
    marks: dict[str, str] = field(default_factory=dict)
    """What was seen earlier and is compared later."""

    @property
    def clone(self) -> Path:
        """The checkout."""
        return self.place / "tokenpeak"

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.place / "home"

    def make(self) -> None:
        """Clone what is committed, and give the user a key."""
        subprocess.run(["git", "clone", "-q", str(paths.ROOT), str(self.clone)], check=True)
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        # The place that the user's folder is mounted over, as ssh reads root's by the password file.
        ROOT_SSH.mkdir(mode=0o700, exist_ok=True)
        for suffix in ("", ".pub"):
            shutil.copy(f"{self.node.key}{suffix}", self.home / ".ssh" / f"id_ed25519{suffix}")

    def prepare_node(self) -> None:
        """What is on a V100 machine before TokenPeak comes: vLLM, nvidia-smi, and production that serves."""
        simulator = ("--gpu", "Tesla V100-PCIE-32GB", "--count", "4", "--version", "0.8.5.post1", "--start-s", "0.5")
        self.node.sh(sys.executable, "-m", "tokenpeak.sim.install", MACHINE, *simulator)
        self.node.sh("ln", "-s", f"{MACHINE}/nvidia-smi", "/usr/bin/nvidia-smi")
        # The model is in the engine's cache, as on a node that serves it.
        cached = f"/root/.cache/huggingface/hub/models--{MODEL.replace('/', '--')}/snapshots/0123"
        self.node.sh("mkdir", "-p", cached)
        self.node.write("/etc/systemd/system/vllm.service", PRODUCTION)
        self.node.sh("systemctl", "daemon-reload")
        self.node.sh("systemctl", "enable", "-q", "--now", "vllm.service")
        deadline = time.monotonic() + 40
        while self.served() != MODEL:
            assert time.monotonic() < deadline, self.node.sh("journalctl", "-b", "-u", "vllm", "--no-pager")
            time.sleep(0.2)

    def edit_inventory(self) -> None:
        """README's first step, by an editor: the node's address in place of the example's."""
        hosts = self.clone / "inventory" / "v100" / "hosts.yml"
        hosts.write_text(hosts.read_text().replace("192.0.2.11", self.node.address))
        # Nobody else asks this production anything.
        with (hosts.parent / "group_vars" / "all.yml").open("a") as variables:
            variables.write("tokenpeak_bake: {bake_s: 10, settle_s: 2, test_load: true}\n")
        small = self.clone / "analysis" / "sweeps"
        v100 = "dtype: float16, max_model_len: 4096, tensor_parallel_size: 4"
        (small / "door.yml").write_text(SPEC.replace("FLAGS", v100))
        (small / "door-sim.yml").write_text(SPEC.replace("FLAGS", "dtype: bfloat16, max_model_len: 2048"))

    def argv(self, line: str) -> list[str]:
        """The line in a shell of the user's: only its own home, and ssh's files in it too."""
        ssh = shlex.quote(str(self.home / ".ssh"))
        inside = f"mount --bind {ssh} {shlex.quote(str(ROOT_SSH))} && {line}"
        return ["unshare", "--mount", "bash", "-c", inside]

    def environment(self) -> dict[str, str]:
        """A login's environment: no virtual environment, no settings of TokenPeak, nothing of the test's."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TOKENPEAK", "ANSIBLE", "PYTEST", "VIRTUAL_ENV", "MAKE", "MFLAGS", "SSH_", "XDG_"))
        }
        return {**kept, "HOME": str(self.home)}

    def start(self, line: str) -> "subprocess.Popen[str]":
        """Begin a command at a terminal of its own."""
        return subprocess.Popen(
            self.argv(line),
            cwd=self.clone,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, line: str, timeout_s: float) -> Done:
        """Type a line and wait."""
        began = time.monotonic()
        process = self.start(line)
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            said += f"\n[did not end within {timeout_s:g} s]"
        return Done(line=line, status=process.returncode, said=said, seconds=time.monotonic() - began)

    def interrupt_when(self, line: str, word: str, timeout_s: float) -> Done:
        """Type a line, and Ctrl-C two seconds after it has printed a word."""
        began = time.monotonic()
        process = self.start(line)
        assert process.stdout
        said = ""
        for printed in process.stdout:
            said += printed
            if word in printed:
                time.sleep(2.0)
                os.killpg(process.pid, signal.SIGINT)
                break
            if time.monotonic() - began > timeout_s:
                os.killpg(process.pid, signal.SIGKILL)
        rest, _ = process.communicate(timeout=timeout_s)
        return Done(line=line, status=process.returncode, said=said + rest, seconds=time.monotonic() - began)

    def served(self) -> str | None:
        """The model by which production answers on the node itself; None when it does not."""
        script = (
            "import json,urllib.request as u;"
            f"b=json.dumps(dict(model={MODEL!r},prompt='The',max_tokens=1)).encode();"
            "r=u.Request('http://127.0.0.1:8000/v1/completions',b,{'Content-Type':'application/json'});"
            "print(json.load(u.urlopen(r,timeout=2))['model'])"
        )
        return self.node.sh("/usr/bin/python3", "-c", script).strip() or None

    def started(self) -> str:
        """What moves when production is started again."""
        names = "NRestarts,ActiveEnterTimestampMonotonic,MainPID"
        return self.node.sh("systemctl", "show", "-p", names, "vllm.service")

    def arguments(self) -> str:
        """What the process that serves on production's port was started with, by the kernel."""
        listed = self.node.sh("ps", "-ww", "-eo", "args").splitlines()
        return next(line.partition(" serve ")[2] for line in listed if " serve " in line and "--port 8000" in line)

    def secrets(self) -> str:
        """The secrets in the node's state folder, by name."""
        return self.node.sh("sh", "-c", f"ls {STATE} | grep ^secret-")

    def own_files(self) -> str:
        """Every path of the node's disks that bears our name."""
        return self.node.sh("sh", "-c", "find /etc /opt /root /usr /var /run -iname '*tokenpeak*' -prune | sort")

    def sweeps(self) -> list[Path]:
        """The archives, oldest first."""
        return sorted(path.parent for path in (self.clone / "results").glob("*/sweep.json"))

    def end_of(self, archive: Path) -> dict[str, object]:
        """How a sweep ended, by its file."""
        found: dict[str, object] = json.loads((archive / "end.json").read_text())
        return found

    def page(self, url: str, timeout_s: float = 20) -> str:
        """What a web server answers, as soon as it does."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with urllib.request.urlopen(url, timeout=3) as response:
                    return str(response.read().decode(errors="replace"))
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def end_simulated(self) -> None:
        """End the simulated servers that `make sweep` leaves running: by the ids in this home's own state folder."""
        for path in (self.home / ".local" / "state" / "tokenpeak" / "nodes").glob("*/production.json"):
            found = re.search(r'"pid": *(\d+)', path.read_text())
            with contextlib.suppress(OSError):
                if found and b"18000" in Path(f"/proc/{found[1]}/cmdline").read_bytes():
                    os.kill(int(found[1]), signal.SIGTERM)
