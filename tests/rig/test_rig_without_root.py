"""A user who is root nowhere on a node: sweeps what is that user's own, and is refused what is others'."""

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.faults.bench import MODEL, SPEC
from tests.rig.conftest import PYTHON, RigNode

from tokenpeak import paths
from tokenpeak.node.machine import clock
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
HOME = "/home/me"
MACHINE = f"{HOME}/machine"
PACKAGES = f"{paths.ROOT / 'analysis'}:{sysconfig.get_paths()['purelib']}"


def why_not() -> str | None:
    """Why another user could not run the simulator here; None where one can."""
    for place in PACKAGES.split(":"):
        if not all(folder.stat().st_mode & stat.S_IXOTH for folder in (Path(place), *Path(place).parents)):
            return f"others may not enter {place}"
        if Path(place).is_relative_to("/tmp"):
            return f"a node has a /tmp of its own, without {place}"
    said = subprocess.run([PYTHON, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    return None if said.stdout.strip() == str(sys.version_info[:2]) else f"{PYTHON} is of another version"


@pytest.fixture
def node(boot: Callable[..., RigNode]) -> RigNode:
    """A node with a user `me`, who has the simulator at home."""
    made = boot("mine1", 165)
    made.sh("useradd", "-m", "-s", "/bin/bash", "me")
    made.sh("install", "-d", "-o", "me", "-m", "700", f"{HOME}/.ssh")
    made.sh("install", "-o", "me", "-m", "600", "/root/.ssh/authorized_keys", f"{HOME}/.ssh/")
    return made


def simulator(node: RigNode) -> None:
    """Put the simulated machine into the user's home, run by the system's Python."""
    if reason := why_not():
        pytest.skip(reason)
    install = f"PYTHONPATH={PACKAGES} {PYTHON} -m tokenpeak.sim.install {MACHINE} --gpu 'NVIDIA L4' --start-s 1"
    node.sh("runuser", "-u", "me", "--", "sh", "-c", install)
    for program in ("vllm", "nvidia-smi"):
        node.sh("sed", "-i", f"2a PYTHONPATH={PACKAGES}; export PYTHONPATH", f"{MACHINE}/{program}")


def run(
    node: RigNode, folder: Path, *words: str, env: dict[str, str] | None = None, **variables: Any
) -> "subprocess.CompletedProcess[str]":
    """A command with an inventory of the node for that user."""
    ssh = f"-o UserKnownHostsFile={folder / 'known_hosts'} -o StrictHostKeyChecking=accept-new -o ControlPath=none"
    given = {
        "ansible_host": node.address,
        "ansible_user": "me",
        "ansible_ssh_private_key_file": str(node.key),
        "ansible_ssh_common_args": ssh,
        "tokenpeak_python": PYTHON,
        "tokenpeak_state_dir": f"{HOME}/.local/state/tokenpeak-node",
        "tokenpeak_model": {"name": MODEL, "served_name": MODEL},
        "tokenpeak_engine_version": "0.32.0",
        "tokenpeak_engine_command": [f"{MACHINE}/vllm", "serve"],
        "tokenpeak_host": node.address,
        "tokenpeak_port": 8099,
        "tokenpeak_production": {"manager": "none"},
        **variables,
    }
    inventory = folder / "inventory" / "rig"
    inventory.mkdir(parents=True, exist_ok=True)
    (folder / "sweeps").mkdir(exist_ok=True)
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"mine1": given}}}))
    (folder / "sweeps" / "one.yml").write_text(yaml.safe_dump({**SPEC, "axes": {"max_num_seqs": [8]}}))
    environment = {**os.environ, "TOKENPEAK_STATE": str(folder / "state"), **(env or {})}
    argv = [TOKENPEAK, *words, "--inventory", "rig"]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False)


def sweep(node: RigNode, folder: Path, **more: Any) -> None:
    """Sweep in place of the user's own production: it serves again, and nothing outside the home was written."""
    simulator(node)
    url = f"http://{node.address}:8000"
    argv = [f"{MACHINE}/vllm", "serve", MODEL, "--host", node.address, "--port", "8000", "--max-model-len", "4096"]
    done = run(
        node,
        folder,
        "sweep",
        "--sweep",
        "one",
        "--no-report",
        tokenpeak_simulated=True,
        tokenpeak_tools=MACHINE,
        tokenpeak_produce=True,
        tokenpeak_production={"manager": "command", "url": url, "process": {"argv": argv}},
        **more,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    [archive] = [Archive(path.parent) for path in (folder / "results").glob("*/sweep.json")]
    [trial] = archive.trials()
    disk = node.folder / node.name / "upper"
    mine = [path for path in disk.rglob("*tokenpeak*") if path.is_file() and "__pycache__" not in path.parts]

    assert "ok" == trial.status
    assert trial.restoration is not None
    assert trial.restoration.restored
    assert trial.restoration.was_running
    assert clock.wait_until(lambda: MODEL in node.sh("curl", "-s", f"{url}/v1/models"), 20)
    assert mine
    assert {disk / HOME.lstrip("/")} == {next(up for up in path.parents if up.name == "me") for path in mine}


def test_sweep_without_root(node: RigNode, tmp_path: Path) -> None:
    """By a login of that user's own."""
    sweep(node, tmp_path)


@pytest.mark.parametrize("method", ["sudo", "doas"])
def test_sweep_as_another_user(method: str, node: RigNode, collections: Path, tmp_path: Path) -> None:
    """By the login of somebody who may become that user, and nobody else: each step and the lease do."""
    if shutil.which(method) is None:
        pytest.skip(f"{method} is not installed")
    node.sh("useradd", "-m", "-s", "/bin/bash", "gate")
    node.sh("install", "-d", "-o", "gate", "-m", "700", "/home/gate/.ssh")
    node.sh("install", "-o", "gate", "-m", "600", "/root/.ssh/authorized_keys", "/home/gate/.ssh/")
    node.write("/etc/doas.conf", "permit nopass gate as me\n")
    node.write("/etc/sudoers.d/gate", "gate ALL=(me) NOPASSWD: ALL\n")
    become = {"ansible_become": True, "ansible_become_user": "me"}
    if method == "doas":
        # One way alone, or another could have been taken.
        node.sh("rm", "/etc/sudoers.d/gate")
        become["ansible_become_method"] = "community.general.doas"

    sweep(node, tmp_path, ansible_user="gate", env={"ANSIBLE_COLLECTIONS_PATH": str(collections)}, **become)


def test_production_of_others_is_refused_by_the_probe(node: RigNode, tmp_path: Path) -> None:
    """A unit of the system, which only root may stop, is said before anything is stopped."""
    declared = node.production_unit(enabled=True)
    done = run(node, tmp_path, "probe", tokenpeak_production=declared, tokenpeak_engine_command=["/bin/true", "serve"])

    assert 1 == done.returncode
    assert "'prod.service' is a unit of the system, which root alone may stop and start" in done.stdout
    assert "active" == node.sh("systemctl", "is-active", "prod.service").strip()
