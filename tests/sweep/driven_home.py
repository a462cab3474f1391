"""A TokenPeak home of its own, and its command line as a process."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SPEC: dict[str, Any] = {
    "axes": {"max_num_seqs": [8, 64]},
    "fixed": {"name": "fixed", "flags": {"max_model_len": 2048}},
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 8},
            "levels": [{"concurrency": 4, "requests": 24}],
        }
    ],
    "search": {"anchor_every": None, "baseline": [], "finalists": 0},
    "deadlines": {"engine_ready_s": 60, "run_s": 60, "production_ready_s": 60, "lease_s": 20},
}
CLIMB = {
    **SPEC,
    "axes": {
        "max_num_batched_tokens": [512, 4096],
        "gpu_memory_utilization": {"highest": True, "values": [0.91, 0.93, 0.95, 0.97]},
    },
    "fixed": {**SPEC["fixed"], "env": {"TOKENPEAK_SIM_FAULT": "oom_under_load:0.93"}},
}
"""An engine that starts at any of these shares of the memory and survives the load up to 0.93."""

BUILDS = {"old": "0.24.0", "new": "0.32.0"}
"""The engine builds of the inventory `builds`: the release that each plays."""
VERSIONS = {**SPEC, "axes": {"engine": ["old", "0.32.0"]}}
"""One config on two engine builds, of which one is asked for by its name and one by its version."""


OTHER_MODEL = "Qwen/Qwen2.5-7B-Instruct"
"""What the second node of the inventory `models` serves."""
SHARE = {
    **SPEC,
    "axes": {"max_num_seqs": [8, 64], "enforce_eager": [True, False]},
    "search": {**SPEC["search"], "trials": 5, "budget": "per_sweep"},
}
"""Four configs on each kind of hardware, and five trials for all."""

KEEP = {**SPEC, "restore": "per_sweep"}

NOTIFIED = "notified.jsonl"
"""What the receiver of the inventory `mixed` got, an event a line."""


def receiver_to(path: Path) -> dict[str, Any]:
    """A receiver that writes each event to the end of a file."""
    line = f"import sys; open({str(path)!r}, 'a').write(sys.stdin.read() + chr(10))"
    return {"command": [sys.executable, "-c", line]}


def notified(path: Path) -> list[dict[str, Any]]:
    """The events in that file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True, kw_only=True)
class Home:
    """Where `tokenpeak` works in a test: its checkout, its state, and the address of the node `one`."""

    root: Path
    state: Path
    address: str

    def command(self, *arguments: str) -> list[str]:
        """The command line with these arguments."""
        return [TOKENPEAK, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """What makes the command work here and nowhere else."""
        return {**os.environ, "TOKENPEAK_HOME": str(self.root), "TOKENPEAK_STATE": str(self.state)}

    def run(self, *arguments: str, limit_s: float = 300) -> "subprocess.CompletedProcess[str]":
        """The command's end; both streams are in stdout."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """The command under way, with its output line by line."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )

    def archives(self) -> list[Path]:
        """The archives that sweeps made here, oldest first."""
        return sorted(path.parent for path in (self.root / "results").glob("*/sweep.json"))

    def trials(self, archive: Path) -> list[dict[str, Any]]:
        """The trial files of an archive that are JSON, in order."""
        found = []
        for path in sorted((archive / "trials").glob("*.json")):
            try:
                found.append(json.loads(path.read_text()))
            except ValueError:
                continue
        return found

    def production_answers(self) -> str:
        """The model that production serves, from a real completion."""
        body = json.dumps({"model": MODEL, "prompt": "The", "max_tokens": 1}).encode()
        request = urllib.request.Request(
            f"http://{self.address}:18000/v1/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return str(json.load(response)["model"])

    def interrupted_and_resumed(self, inventory: str, sweep: str, *, trials: int) -> tuple[str, Path]:
        """What a sweep said at its end that was ended when so many trials had begun, and its archive."""
        process = self.start("sweep", "--inventory", inventory, "--sweep", sweep, "--no-report")
        for _ in range(trials):
            read_until(process, " begins")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        archive = self.archives()[-1]
        done = self.run("sweep", "--resume", archive.name, "--no-report")
        assert 0 == done.returncode, done.stdout
        return done.stdout, archive


def read_until(process: "subprocess.Popen[str]", word: str) -> str:
    """The process's output up to the line that has `word`."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if word in line:
            return said
    raise AssertionError(f"{word!r} was never said:\n{said}")
