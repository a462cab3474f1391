"""Faults of an engine in a container that have a place of their own: a launch, a guard or a daemon that dies."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docker_daemon import (
    Daemon,
    daemon,
    declare_image,
    request_in_image,
    why_no_docker,
)
from tests.node.conftest import STANDIN, Node, node  # noqa: F401

from tokenpeak.node.machine import clock, process_files

pytestmark = [pytest.mark.faults]

Record = Callable[[str, object], None]
LEASE_S = 3.0
BACK_S = 60.0


@pytest.fixture(scope="module")
def docker() -> Iterator[Daemon]:
    """A Docker daemon of this module's own."""
    if reason := why_no_docker():
        pytest.skip(reason)
    with daemon() as made:
        yield made


@pytest.fixture
def hosted(node: Node, docker: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:  # noqa: F811
    """A node with an image as its engine build; its `docker` ends its caller after the verb that a file names."""
    real = shutil.which("docker")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text(
        f'#!/bin/sh\n{real} "$@"\nstatus=$?\n'
        f'if [ "$1" = "$(cat {tmp_path}/strike 2>/dev/null)" ]; then rm {tmp_path}/strike; kill -9 $PPID; fi\n'
        "exit $status\n"
    )
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", docker.host)
    declare_image(node)
    node.production()
    node.run("produce")
    return node


def given_back(hosted: Node) -> bool:
    """Whether no trial has the node."""
    return not (hosted.folder / "record.json").exists()


def check_nothing_is_left(hosted: Node, docker: Daemon) -> None:
    """No container, no record of an engine, none of its processes, and production answers."""
    assert [] == docker.containers()
    assert hosted.read("engine.json") is None
    port = str(hosted.declaration["port"])
    assert not [one for one in process_files.all_processes() if port in _words(one.pid)]
    assert "prod" == hosted.run("status")["production"]["model"]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


@pytest.mark.faults_ci
@pytest.mark.parametrize("verb", ["create", "start"])
def test_launch_dies(hosted: Node, docker: Daemon, tmp_path: Path, verb: str, record_property: Record) -> None:
    """Between a container's creation, or its start, and the record of it: the guard finds it by its label."""
    record_property("cell", f"launch dies after docker {verb}")
    (tmp_path / "strike").write_text(verb)

    launching = hosted.start("launch", request_in_image(hosted, lease_s=LEASE_S))
    launching.communicate(timeout=BACK_S)
    left = docker.containers()
    assert clock.wait_until(lambda: given_back(hosted), BACK_S, poll_s=0.1)

    assert -signal.SIGKILL == launching.returncode
    assert 1 == len(left)
    check_nothing_is_left(hosted, docker)


@pytest.mark.faults_ci
def test_record_of_the_engine_is_lost(hosted: Node, docker: Daemon, record_property: Record) -> None:
    """Both copies, while it runs: whoever gives the node back finds the container by its label."""
    record_property("cell", "record of a container's engine is lost")
    assert hosted.run("launch", request_in_image(hosted))["ready"]
    for name in ("engine.json", "engine.copy.json"):
        (hosted.folder / name).unlink()

    assert hosted.run("restore")["restoration"]["restored"]

    check_nothing_is_left(hosted, docker)


def test_daemon_dies(hosted: Node, docker: Daemon, record_property: Record) -> None:
    """The engine is ended by its pid and production is back; the container goes when the daemon is there again."""
    record_property("cell", "Docker's daemon dies during a trial")
    launched = hosted.run("launch", request_in_image(hosted))
    assert launched["ready"]
    docker.kill()

    finished = hosted.run("finish", hosted.finish_request())
    ended = process_files.stat_of(launched["pid"]) is None
    docker.start()
    hosted.run("restore")

    assert ended
    assert finished["restoration"]["restored"]
    check_nothing_is_left(hosted, docker)
