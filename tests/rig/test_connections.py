"""Nodes that no sshd reaches: a container by Docker's connection, one by Podman's, a pod by kubectl's.

The collections come out of the package `ansible`, which nobody needs who has nodes over SSH.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docker_daemon import IMAGE, Daemon, daemon, mounts, why_no_docker
from tests.sweep.driven_home import SPEC

from tokenpeak import paths
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.e2e]
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
KUBECTL = """#!{python}
import os, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write("kubectl\\n")
os.execv("/bin/sh", words[words.index("--") + 1 :])
"""
"""A kubectl whose pod is this machine."""


class Place:
    """A home whose one node is reached by another connection than SSH."""

    def __init__(self, folder: Path, collections: Path, variables: dict[str, Any], env: dict[str, str]) -> None:
        self.root, self.state = folder / "home", folder / "state"
        self.env = {
            **os.environ,
            **env,
            "TOKENPEAK_HOME": str(self.root),
            "TOKENPEAK_STATE": str(self.state),
            "ANSIBLE_COLLECTIONS_PATH": str(collections),
        }
        self.root.mkdir()
        for name in ("playbooks", "notebooks", "site"):
            (self.root / name).symlink_to(paths.ROOT / name)
        shared = yaml.safe_load((paths.INVENTORIES / "sim" / "group_vars" / "all.yml").read_text())
        for name in ("tokenpeak_user", "tokenpeak_place", "tokenpeak_loopback"):
            shared.pop(name, None)
        shared |= {"tokenpeak_engine_env": {"TOKENPEAK_SIM_START_S": "0.3"}, **variables}
        node = {"tokenpeak_host": "127.0.0.1", "tokenpeak_simulated_gpu": "NVIDIA L4"}
        inventory = self.root / "inventory" / "boxed"
        (inventory / "group_vars").mkdir(parents=True)
        (inventory / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared))
        (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"boxed": node}}}))
        sweeps = self.root / "analysis" / "sweeps"
        sweeps.mkdir(parents=True)
        (sweeps / "four.yml").write_text(yaml.safe_dump({**SPEC, "axes": {"max_num_seqs": [8, 16, 32, 64]}}))

    def run(self, *words: str) -> str:
        """What the command line prints of a command that ends well."""
        argv = [TOKENPEAK, *words]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def swept(self) -> Archive:
        """The archive of a sweep of four trials, after a probe."""
        assert "NVIDIA L4" in self.run("probe", "--inventory", "boxed")
        self.run("sweep", "--inventory", "boxed", "--sweep", "four", "--no-report")
        (path,) = (self.root / "results").glob("*/sweep.json")
        return Archive(path.parent)


def check(archive: Archive) -> None:
    """Four trials were measured, and production came back after each."""
    trials = list(archive.trials())

    assert ["ok"] * 4 == [trial.status for trial in trials], [trial.failure for trial in trials]
    assert all(trial.restoration and trial.restoration.restored for trial in trials)


@pytest.fixture
def docker() -> Iterator[Daemon]:
    if (reason := why_no_docker()) is not None:
        pytest.skip(reason)
    with daemon() as made:
        yield made


def places(folder: Path) -> list[str]:
    """What a container of this machine's files needs to be a simulated node."""
    folders = {folder, paths.ROOT, Path(sys.prefix), Path(sys.executable).resolve().parents[1]}
    return [word for place in mounts(*sorted(folders)) for word in ("--volume", place)]


def test_node_in_a_container_of_docker(docker: Daemon, collections: Path, tmp_path: Path) -> None:
    """Probe and sweep by `community.docker.docker`; the container has no sshd, and its engine ran in it."""
    docker.docker("run", "--detach", "--name", "box", "--init", "--network=host", *places(tmp_path), IMAGE,
                  "/usr/bin/sleep", "3600")  # fmt: skip
    variables = {"ansible_connection": "community.docker.docker", "ansible_host": "box"}
    place = Place(tmp_path, collections, variables, {"DOCKER_HOST": docker.host})

    check(place.swept())
    processes = docker.docker("top", "box", "-eo", "pid,args")
    assert "sshd" not in processes
    assert "tokenpeak.sim" in processes, "production is the container's own"


def test_node_in_a_pod(collections: Path, tmp_path: Path) -> None:
    """Probe, trials and lease by `kubernetes.core.kubectl`, whose pod is this machine."""
    log = tmp_path / "kubectl.log"
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, log=str(log)))
    program.chmod(0o755)
    variables = {"ansible_connection": "kubernetes.core.kubectl", "ansible_kubectl_pod": "vllm-0"}
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    place = Place(tmp_path, collections, variables, {"PATH": path})
    try:
        check(place.swept())
    finally:
        end = {**place.env, "PYTHONPATH": str(paths.ROOT / "analysis")}
        subprocess.run([sys.executable, "-m", "tokenpeak.sim.install", "--end"], env=end, check=True)

    assert len(log.read_text().splitlines()) > 15, "each step, and the lease"
