"""Ctrl-C while an image is pulled: the command ends, no trial was begun, and the next install has the image."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from driven_home import Home
from tests.docker_daemon import Daemon, daemon, why_no_docker
from tests.image_registry import publish, registry, why_no_registry

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e]

SIZE = 24 << 20
BYTES_PER_S = 1 << 20
"""The pull takes half a minute."""


@pytest.fixture
def inventory(home: Home, tmp_path: Path) -> Iterator[tuple[str, Daemon]]:
    """An inventory whose node is to pull its image from a slow registry, and the node's daemon."""
    if reason := why_no_docker() or why_no_registry():
        pytest.skip(reason)
    with registry(tmp_path, bytes_per_s=BYTES_PER_S) as (fast, slow), daemon() as docker:
        publish(docker, fast, "engine:1", SIZE)
        name = "pulls"
        folder = home.root / "inventory" / name
        shutil.copytree(home.root / "inventory" / "lone", folder, dirs_exist_ok=True)
        variables = folder / "group_vars" / "all.yml"
        given = yaml.safe_load(variables.read_text())
        given.pop("tokenpeak_engine_command", None)
        box = {"image": f"127.0.0.1:{slow}/engine:1", "pull": "missing"}
        given["tokenpeak_engines"] = {"box": box}
        variables.write_text(yaml.safe_dump(given))
        machine = home.state / "nodes" / "one" / "machine"
        machine.mkdir(parents=True, exist_ok=True)
        machine.parent.chmod(0o700)
        (machine / "docker").write_text(f'#!/bin/sh\nDOCKER_HOST={docker.host} exec {shutil.which("docker")} "$@"\n')
        (machine / "docker").chmod(0o755)
        yield name, docker
        (machine / "docker").unlink()


def pulls(docker: Daemon) -> list[str]:
    """Commands that pull from this daemon's point of view: the clients that run."""
    said = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if line.startswith("docker pull") or "/docker pull --quiet" in line]


@pytest.mark.parametrize("words", [("install",), ("sweep", "--sweep", "pair", "--no-report")], ids=["install", "sweep"])
def test_ctrl_c_during_a_pull(home: Home, inventory: tuple[str, Daemon], words: tuple[str, ...]) -> None:
    """130 within seconds, and nothing on record; what the node pulls on by itself is no other pull's hindrance."""
    name, docker = inventory
    before = len(home.archives())
    process = home.start(words[0], "--inventory", name, *words[1:])
    assert clock.wait_until(lambda: bool(pulls(docker)), 90, poll_s=0.1)
    time.sleep(2)
    struck = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    took_s = time.monotonic() - struck

    assert 130 == process.returncode, said
    assert took_s < 10
    assert "Traceback" not in said
    assert before == len(home.archives())
    assert 0 == home.run("install", "--inventory", name).returncode
    assert 1 == len(docker.docker("images", "--quiet", "127.0.0.1:*/engine").split())
    assert clock.wait_until(lambda: not pulls(docker), 60, poll_s=0.2), pulls(docker)
