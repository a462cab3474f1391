"""The texts of the built pages of sweeps over the real CPU engine, each started for real and asked for a completion.

One sweep measures the engine as a command, one in a container; each text is taken from its page as its owner copies it.
A page that may leave would have no folder of the node.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator
from tests.docker_daemon import IMAGE, daemon, root_file_system, why_no_docker
from tests.e2e.real_boxes import Boxes, in_container
from tests.e2e.second_engine import FIRST, NoEngineError, first_engine
from tests.rig.conftest import RigNode
from tests.rig.deployed import Network, ask, docker_in, own_network, texts_of

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("real engine")]

SERVED = "small"
READY_S = 300.0
"""The real engine's start on a busy machine."""
SCHEMA = Path(__file__).parents[1] / "report" / "deployment-1.32.0.json"
DOCKER_UNIT = """[Unit]
Description=Docker
[Service]
ExecStart=/usr/sbin/dockerd --storage-driver=vfs --iptables=false --data-root /var/lib/rig-docker
KillMode=process
Delegate=yes
"""
# The rig's control groups are too few for Podman's; crun does without.
PODMAN_SETTINGS = """[containers]
cgroups="disabled"
default_ulimits=["nofile=1024:1024","nproc=1000:1000"]
[engine]
runtime="crun"
cgroup_manager="cgroupfs"
"""
PODMAN_STORAGE = '[storage]\ndriver="vfs"\ngraphroot="/run/pod/storage"\nrunroot="/run/pod/run"\n'


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The texts of the page of each sweep: the engine as a `command`, and in a `container`."""
    if reason := why_no_docker():
        pytest.skip(reason)
    try:
        program = first_engine()
    except NoEngineError as error:
        pytest.skip(str(error))
    root, state = (tmp_path_factory.mktemp(name) for name in ("home", "state"))
    boxes = Boxes(root=root, state=state)
    with daemon() as docker:
        builds = {
            "command": {"version": FIRST, "command": [str(program), "serve"]},
            "container": in_container(program, FIRST),
        }
        try:
            boxes.prepare(docker, builds)
            found = {}
            for name in builds:
                boxes.write_spec(name, axes={"engine": [name]})
                archive = boxes.sweep(name)
                boxes.run("report", str(archive), "--node-names", "--output", str(root / f"site-{name}"))
                found[name] = texts_of(root / f"site-{name}" / archive.name / "index.html")
        finally:
            boxes.end()
    yield found


@pytest.fixture
def network() -> Iterator[Network]:
    """A network with a loopback; gone after the test."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("a network of its own needs root and iproute2")
    with own_network() as made:
        yield made


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The tar file of the image that the page names: folders into which the engine is mounted."""
    tar = tmp_path / "image.tar"
    tar.write_bytes(root_file_system())
    return tar


@pytest.fixture
def docker(network: Network, image: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which `docker` speaks to a daemon in the network, which has the image."""
    with docker_in(network, tmp_path, {IMAGE: image}) as environment:
        yield environment


def test_each_page_has_its_forms(pages: dict[str, dict[str, str]]) -> None:
    """Of a command what runs on the machine; of an image each container form too, and none asks for a GPU."""
    assert ["vllm serve", "systemd"] == [*pages["command"]]
    assert ["vllm serve", "docker run", "podman run", "Compose", "Kubernetes", "Helm values", "systemd"] == [
        *pages["container"]
    ]
    for title, text in pages["container"].items():
        assert title == "Helm values" or "gpu" not in text.lower().replace("--gpu-memory-utilization", ""), text


def test_the_command_serves(pages: dict[str, dict[str, str]], network: Network, tmp_path: Path) -> None:
    """The first text, pasted into a shell on the node."""
    argv = network.argv("sh", "-c", pages["command"]["vllm serve"])
    words = tmp_path / "engine.log"
    with words.open("w") as log:
        process = subprocess.Popen(argv, start_new_session=True, stdout=log, stderr=log)
    try:
        assert SERVED == network.completion(SERVED, READY_S)["model"]
    except AssertionError as error:
        raise AssertionError(words.read_text()[-4000:]) from error
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_docker_run_serves(pages: dict[str, dict[str, str]], docker: dict[str, str], network: Network) -> None:
    """`docker run`, with what the measured containers had mounted and their shared memory."""
    process = subprocess.Popen(
        ["sh", "-c", f"exec {pages['container']['docker run']}"], env=docker, stdout=subprocess.DEVNULL
    )
    try:
        assert SERVED == network.completion(SERVED, READY_S)["model"]
        (container,) = subprocess.check_output(["docker", "ps", "-q"], env=docker, text=True).split()
        inspect = ["docker", "inspect", "-f", "{{.HostConfig.ShmSize}}", container]
        assert 2 << 30 == int(subprocess.check_output(inspect, env=docker, text=True))
        subprocess.run(["docker", "kill", container], env=docker, check=True, capture_output=True)
    finally:
        process.kill()
        process.wait()


def test_compose_serves(
    pages: dict[str, dict[str, str]], docker: dict[str, str], network: Network, tmp_path: Path
) -> None:
    """The Compose file, brought up and down."""
    if not shutil.which("docker-compose"):
        pytest.skip("docker-compose is not installed")
    (folder := tmp_path / "served").mkdir()
    (folder / "compose.yml").write_text(pages["container"]["Compose"])
    compose = ["docker-compose", "-f", str(folder / "compose.yml")]
    up = subprocess.run([*compose, "up", "-d"], env=docker, capture_output=True, text=True, check=False)
    assert up.returncode == 0, up.stderr
    try:
        assert SERVED == network.completion(SERVED, READY_S)["model"]
    finally:
        subprocess.run([*compose, "down"], env=docker, capture_output=True, check=True)


def completion_on(node: RigNode) -> str:
    """The model that answers at port 8000 of a node; empty where none does in time."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        said = node.sh("/usr/bin/python3", "-c", ask(SERVED))
        if said:
            return str(json.loads(said)["model"])
        time.sleep(1)
    return ""


@pytest.mark.parametrize("build", ["command", "container"])
def test_unit_serves(pages: dict[str, dict[str, str]], rig_node: RigNode, image: Path, build: str) -> None:
    """The unit, put on a node with a real systemd; that of an image is run by the node's own Docker."""
    if build == "container":
        rig_node.write("/etc/systemd/system/docker.service", DOCKER_UNIT)
        rig_node.sh("systemctl", "daemon-reload")
        rig_node.sh("systemctl", "start", "docker")
        rig_node.write("/root/image.tar", image.read_bytes())
        for _ in range(60):
            if rig_node.sh("docker", "-H", "unix:///var/run/docker.sock", "import", "/root/image.tar", IMAGE):
                break
            time.sleep(0.5)
    rig_node.write("/etc/systemd/system/served.service", pages[build]["systemd"])
    rig_node.sh("systemctl", "daemon-reload")
    rig_node.sh("systemctl", "enable", "--now", "-q", "served")
    served = completion_on(rig_node)
    said = rig_node.sh("journalctl", "-b", "-u", "served", "-n", "30", "--no-pager")
    rig_node.sh("systemctl", "stop", "served")
    left = rig_node.sh("ps", "-ww", "-eo", "args")

    assert SERVED == served, said
    assert "--served-model-name" not in left


def test_podman_run_serves(pages: dict[str, dict[str, str]], rig_node: RigNode, image: Path) -> None:
    """`podman run`, on a node whose Podman searches no registry: the whole name of the image is in the text."""
    missing = [name for name in ("podman", "crun", "conmon") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    rig_node.sh("mkdir", "-p", "/etc/containers", "/opt/served")
    rig_node.write("/etc/containers/containers.conf", PODMAN_SETTINGS)
    rig_node.write("/etc/containers/storage.conf", PODMAN_STORAGE)
    rig_node.write("/opt/image.tar", image.read_bytes())
    rig_node.sh("podman", "import", "/opt/image.tar", f"docker.io/library/{IMAGE}")
    rig_node.write("/opt/served/run", f"#!/bin/sh\nexec {pages['container']['podman run']} > /opt/served/log 2>&1\n")
    rig_node.sh("systemd-run", "-q", "--unit=served", "/bin/sh", "/opt/served/run")
    served = completion_on(rig_node)
    said = rig_node.sh("tail", "-n", "30", "/opt/served/log")
    rig_node.sh("podman", "kill", "--all")

    assert SERVED == served, said


def test_manifest_is_kubernetes(pages: dict[str, dict[str, str]]) -> None:
    """The Deployment passes the published schema, and names the image and every mount."""
    manifest = yaml.safe_load(pages["container"]["Kubernetes"])
    spec = manifest["spec"]["template"]["spec"]

    assert [] == list(Draft7Validator(json.loads(SCHEMA.read_text())).iter_errors(manifest))
    assert IMAGE == spec["containers"][0]["image"]
    assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == {
        each["name"] for each in spec["volumes"]
    }
