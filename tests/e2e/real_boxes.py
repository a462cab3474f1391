"""A home whose node runs the real vLLM of this machine's CPU, as commands and in containers of a real Docker daemon."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.docker_daemon import IMAGE, Daemon, mounts
from tests.e2e.second_engine import MODEL

from tokenpeak import paths

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
PRODUCTION_PORT = "28100"
SPEC: dict[str, Any] = {
    "axes": {"max_num_seqs": [8]},
    "fixed": {"name": "fixed", "flags": {"dtype": "bfloat16", "max_model_len": 2048, "enforce_eager": True}},
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 64, "output_tokens": 16},
            "levels": [{"concurrency": 8, "requests": 32}],
        }
    ],
    "search": {"baseline": [], "anchor_every": None},
    "deadlines": {"engine_ready_s": 400},
}


def folders_of(program: Path) -> list[Path]:
    """What a container needs of the machine to run this engine: environment, libraries, Python, and the model."""
    environment = program.parents[1]
    interpreter = (environment / "bin" / "python").resolve().parents[1]
    own = next((environment / "lib").glob("python3*")) / "site-packages"
    libraries = [Path(line.strip()).parents[2] for path in own.glob("libraries-*.pth") for line in path.open()]
    return sorted({environment, interpreter, MODEL.resolve(), *libraries})


def in_container(program: Path, version: str, **changes: Any) -> dict[str, Any]:
    """A build that is this engine in the image of empty folders."""
    return {
        "version": version,
        "image": IMAGE,
        "command": [str(program), "serve"],
        "mounts": [*mounts(), *(f"{folder}:{folder}:ro" for folder in folders_of(program))],
        "devices": [],
        "shm_size": "2g",
        **changes,
    }


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """The home, and where its state is."""

    root: Path
    state: Path

    def prepare(self, docker: Daemon, builds: Mapping[str, Mapping[str, Any]]) -> None:
        """An inventory `boxes` of the real engine in these builds, the first one the default."""
        for name in ("playbooks", "notebooks", "site"):
            (self.root / name).symlink_to(paths.ROOT / name)
        tools = self.root / "tools"
        tools.mkdir()
        (tools / "docker").write_text(f'#!/bin/sh\nDOCKER_HOST={docker.host} exec {shutil.which("docker")} "$@"\n')
        (tools / "docker").chmod(0o755)
        shutil.copytree(paths.INVENTORIES / "cpu", self.root / "inventory" / "boxes")
        variables = self.root / "inventory" / "boxes" / "group_vars" / "all.yml"
        given = yaml.safe_load(variables.read_text().replace("18000", PRODUCTION_PORT))
        del given["tokenpeak_engine_command"]
        given |= {
            "tokenpeak_setup_roles": ["simulator"],
            "tokenpeak_tools": str(tools),
            "tokenpeak_model_path": str(MODEL.resolve()),
            "tokenpeak_engines": {name: dict(build) for name, build in builds.items()},
        }
        variables.write_text(yaml.safe_dump(given, sort_keys=False))
        (self.root / "analysis" / "sweeps").mkdir(parents=True)

    def write_spec(self, name: str, **changes: Any) -> None:
        """Make a sweep that can be named."""
        (self.root / "analysis" / "sweeps" / f"{name}.yml").write_text(yaml.safe_dump({**SPEC, **changes}))

    def run(self, *words: str) -> str:
        """What `tokenpeak` says, which must end well."""
        environment = {**os.environ, "TOKENPEAK_HOME": str(self.root), "TOKENPEAK_STATE": str(self.state)}
        done = subprocess.run(
            [TOKENPEAK, *words], env=environment, capture_output=True, text=True, timeout=1800, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def sweep(self, name: str) -> Path:
        """Carry a sweep out; its archive."""
        self.run("sweep", "--inventory", "boxes", "--sweep", name, "--no-report")
        return max(path.parent for path in (self.root / "results").glob("*/sweep.json"))

    def end(self) -> None:
        """Give the node back and end its production."""
        environment = {**os.environ, "TOKENPEAK_HOME": str(self.root), "TOKENPEAK_STATE": str(self.state)}
        restore = [TOKENPEAK, "restore", "--inventory", "boxes"]
        subprocess.run(restore, env=environment, check=False, timeout=300, stdout=subprocess.DEVNULL)
        for process in self.state.glob("nodes/*/production.json"):
            os.killpg(json.loads(process.read_text())["pid"], signal.SIGKILL)


def trials_of(archive: Path) -> list[dict[str, Any]]:
    """The trial files of an archive."""
    return [json.loads(path.read_text()) for path in sorted((archive / "trials").glob("*.json"))]
