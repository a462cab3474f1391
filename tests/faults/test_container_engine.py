"""Faults of an engine in a container that have a place of their own: a launch, a guard or a daemon that dies."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docker_daemon import (
    COMMAND,
    IMAGE,
    PYTHON,
    Daemon,
    daemon,
    declare_image,
    mounts,
    request_in_image,
    why_no_docker,
)
from tests.free_ports import free_port
from tests.node.conftest import STANDIN, Node, node  # noqa: F401

from tokenpeak.node.engine import serving
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


def test_guard_dies(hosted: Node, docker: Daemon, record_property: Record) -> None:
    """With the controller: `tokenpeak restore` ends the container."""
    record_property("cell", "guard of a container's engine dies")
    assert hosted.run("launch", request_in_image(hosted, lease_s=LEASE_S))["ready"]
    watching = hosted.read("guard.json")
    assert watching
    os.kill(watching["pid"], signal.SIGKILL)

    assert hosted.run("restore")["restoration"]["restored"]

    check_nothing_is_left(hosted, docker)


def test_container_is_removed_by_somebody(hosted: Node, docker: Daemon, record_property: Record) -> None:
    """The trial ends as one whose engine has ended."""
    record_property("cell", "container is removed by somebody")
    assert hosted.run("launch", request_in_image(hosted))["ready"]
    docker.docker("rm", "--force", *docker.containers())

    finished = hosted.run("finish", hosted.finish_request())

    assert (False, True) == (finished["engine_ran"], finished["engine_stopped"])
    assert finished["restoration"]["restored"]
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


NOTICED_S = 2.0


@pytest.mark.timing("how soon a start of production is noticed has a limit in seconds, beside a real Docker daemon")
@pytest.mark.parametrize("stays", [True, False], ids=["stays", "ends at once"])
def test_somebody_starts_production(hosted: Node, docker: Daemon, stays: bool, record_property: Record) -> None:
    """Its container, beside an engine's: noticed within two seconds, the engine ended, and production serves.

    Also one that could not stay up, as where the engine has its memory.
    """
    record_property("cell", f"somebody starts production's container{'' if stays else ', which ends at once'}")
    url = containerized(hosted, docker)
    assert hosted.run("launch", request_in_image(hosted))["ready"]

    docker.docker("start", "prod")
    began = time.monotonic()
    if not stays:
        docker.docker("kill", "prod")
    assert clock.wait_until(lambda: (hosted.folder / "overlap.json").exists(), 20, poll_s=0.01)
    noticed_s = time.monotonic() - began
    assert clock.wait_until(lambda: given_back(hosted), BACK_S, poll_s=0.1)
    record_property("recovered_s", round(time.monotonic() - began, 2))
    finished = hosted.run("finish", hosted.finish_request())
    print(f"production that {'stays' if stays else 'ends'}: noticed {noticed_s:.2f} s after its start")

    assert noticed_s <= NOTICED_S
    assert finished["production_overlap_unix_s"]
    assert clock.wait_until(lambda: serving.served_model(url) == "prod", 30, poll_s=0.1)
    assert ["prod"] == docker.containers()
    docker.docker("rm", "--force", "prod")


def containerized(hosted: Node, docker: Daemon) -> str:
    """Have production as a container in place of a process; where it serves."""
    hosted.stop_production()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    places = [word for place in mounts(PYTHON.parents[1], STANDIN.parent) for word in ("-v", place)]
    serve = (IMAGE, *COMMAND, "prod", "--port", str(port))
    docker.docker("run", "-d", "--init", "--name", "prod", "--network", "host", *places, *serve)
    hosted.declare(production={"manager": "docker", "unit": "prod", "stop_grace_s": 2, "url": url})
    assert clock.wait_until(lambda: serving.served_model(url) == "prod", 30, poll_s=0.1)
    return url
