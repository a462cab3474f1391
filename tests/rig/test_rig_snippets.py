"""The texts of the built page of a simulated sweep, each started for real and asked for a completion.

Docker is a daemon of the test's own, in a network of its own, with an image that plays the release that the page names.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
import yaml
from tests.rig.conftest import RigNode
from tests.rig.engine_image import engine_tar

from tokenpeak import paths
from tokenpeak.sim.install import install

pytestmark = pytest.mark.e2e

SERVED = "llama-8b"
SPEC = {
    "axes": {"max_num_seqs": [16]},
    "fixed": {"name": "fixed", "flags": {"max_model_len": 2048, "tensor_parallel_size": 2}},
    "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "served_name": SERVED},
    "workloads": [
        {
            "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 8},
            "levels": [{"concurrency": 4, "requests": 24}],
        }
    ],
    "search": {"anchor_every": None, "baseline": [], "finalists": 0},
}


def texts_of(page: Path) -> dict[str, str]:
    """Each form of a page's command by its title, as it is copied from the HTML."""
    found = re.findall(r'data-title="([^"]+)".*?<code>(.*?)</code>', page.read_text(), re.DOTALL)
    return {title: unescape(text) for title, text in found}


def ask(model: str) -> str:
    """A program that prints a completion of port 8000, asked for with nothing of the package."""
    return (
        "import json,urllib.request as u;"
        f"body=json.dumps({{'model': '{model}', 'prompt': 'The', 'max_tokens': 2}}).encode();"
        "r=u.Request('http://127.0.0.1:8000/v1/completions', body, {'Content-Type': 'application/json'});"
        "print(u.urlopen(r, timeout=30).read().decode())"
    )


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network of its own, with nothing at port 8000."""

    name: str

    def argv(self, *words: str) -> list[str]:
        """The command that runs these words there."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *words]

    def completion(self, model: str, within_s: float = 60) -> dict[str, object]:
        """What the server at port 8000 answers."""
        deadline, done = time.monotonic() + within_s, None
        while time.monotonic() < deadline:
            argv = self.argv(sys.executable, "-c", ask(model))
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                answer = json.loads(done.stdout)
                assert isinstance(answer, dict)
                return answer
            time.sleep(0.5)
        raise AssertionError(done.stderr if done else "never asked")


@contextmanager
def own_network() -> Iterator[Network]:
    """A network with a loopback; gone afterwards."""
    made = Network(name=f"tpsn{os.getpid()}")
    subprocess.run(["ip", "netns", "add", made.name], check=True)
    subprocess.run(["ip", "-n", made.name, "link", "set", "lo", "up"], check=True)
    try:
        yield made
    finally:
        subprocess.run(["ip", "netns", "del", made.name], check=True)


@contextmanager
def docker_in(network: Network, folder: Path, images: dict[str, Path]) -> Iterator[dict[str, str]]:
    """The environment in which `docker` speaks to a daemon in this network, which has these images of tar files.

    The daemon accepts `--gpus`, because NVIDIA's hook is on its path; this one does nothing.
    """
    (tools := folder / "tools").mkdir()
    hook = tools / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    socket = f"unix://{folder}/docker.sock"
    places = [f"--{name}={folder / name}" for name in ("data-root", "exec-root", "pidfile")]
    argv = network.argv("dockerd", "--storage-driver=vfs", "--iptables=false", *places, "-H", socket)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "DOCKER_HOST": socket, "HOME": str(folder)}
    with (folder / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(120):
            if subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.5)
        else:
            pytest.skip(f"no Docker daemon starts here: {(folder / 'dockerd.log').read_text()[-300:]}")
        for name, tar in images.items():
            subprocess.run(["docker", "import", tar, name], env=environment, capture_output=True, check=True)
        yield environment
        left = subprocess.run(["docker", "ps", "-aq"], env=environment, capture_output=True, text=True, check=True)
        if left.stdout.split():
            words = ["docker", "rm", "-f", *left.stdout.split()]
            subprocess.run(words, env=environment, capture_output=True, check=True)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each form by its title, from the HTML of the page of a sweep over one simulated node with two GPUs."""
    root = tmp_path_factory.mktemp("home")
    for name in ("playbooks", "notebooks", "site"):
        (root / name).symlink_to(paths.ROOT / name)
    (sweeps := root / "analysis" / "sweeps").mkdir(parents=True)
    (sweeps / "pair.yml").write_text(yaml.safe_dump(SPEC))
    shutil.copytree(paths.INVENTORIES / "sim", folder := root / "inventory" / "sim")
    pid = os.getpid()
    host = {
        "tokenpeak_host": f"127.{90 + pid % 7}.{1 + pid // 250 % 250}.{1 + pid % 250}",
        "tokenpeak_simulated_gpu": "NVIDIA L4",
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"one": host}}}))
    shared = yaml.safe_load((folder / "group_vars" / "all.yml").read_text())
    shared["tokenpeak_simulated_machine"]["count"] = 2
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared, sort_keys=False))
    environment = {**os.environ, "TOKENPEAK_HOME": str(root), "TOKENPEAK_STATE": str(tmp_path_factory.mktemp("state"))}
    tokenpeak = str(Path(sys.executable).with_name("tokenpeak"))
    output = root / "built"

    def run(*words: str) -> None:
        done = subprocess.run(
            [tokenpeak, *words], env=environment, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        run("sweep", "--inventory", "sim", "--sweep", "pair", "--no-report")
    finally:
        run("uninstall", "--inventory", "sim")
    (archive,) = (path.parent for path in (root / "results").glob("*/sweep.json"))
    run("report", str(archive), "--output", str(output))
    return texts_of(output / archive.name / "index.html")


@pytest.fixture
def network() -> Iterator[Network]:
    """A network with a loopback; gone after the test."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("a network of its own needs root and iproute2")
    with own_network() as made:
        yield made


@pytest.fixture
def docker(network: Network, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which `docker` speaks to a daemon of its own, which has the image that the page names."""
    if not shutil.which("dockerd"):
        pytest.skip("dockerd is not installed (package docker.io)")
    image = engine_tar(tmp_path, gpus=2, release="0.32.0")
    with docker_in(network, tmp_path, {"vllm/vllm-openai:v0.32.0": image}) as environment:
        yield environment


def test_the_command_serves(texts: dict[str, str], network: Network, tmp_path: Path) -> None:
    """The first text, pasted into a shell on the node."""
    install(tmp_path, {"TOKENPEAK_SIM_GPU_COUNT": "2", "TOKENPEAK_SIM_START_S": "0.3"})
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = network.argv("sh", "-c", f"exec {texts['vllm serve']}")
    process = subprocess.Popen(argv, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        assert SERVED == network.completion(SERVED)["model"]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_docker_run_serves(texts: dict[str, str], docker: dict[str, str], network: Network) -> None:
    """`docker run`, with two GPUs asked for and shared memory for both."""
    assert "--gpus 2 " in texts["docker run"] and "--shm-size 16g" in texts["docker run"]
    process = subprocess.Popen(["sh", "-c", f"exec {texts['docker run']}"], env=docker, stdout=subprocess.DEVNULL)
    try:
        assert SERVED == network.completion(SERVED)["model"]
        (container,) = subprocess.check_output(["docker", "ps", "-q"], env=docker, text=True).split()
        shared = subprocess.check_output(
            ["docker", "inspect", "-f", "{{.HostConfig.ShmSize}}", container], env=docker, text=True
        )
        assert 16 << 30 == int(shared)
        subprocess.run(["docker", "kill", container], env=docker, check=True, capture_output=True)
    finally:
        process.kill()
        process.wait()


def test_unit_serves(texts: dict[str, str], rig_node: RigNode) -> None:
    """The unit, put on a node with a real systemd; the program at the path that it names."""
    rig_node.sh("mkdir", "-p", "/opt/simulated")
    rig_node.write("/usr/local/bin/vllm", shim())
    rig_node.sh("chmod", "755", "/usr/local/bin/vllm")
    rig_node.write("/etc/systemd/system/served.service", texts["systemd"])
    rig_node.sh("systemctl", "daemon-reload")
    rig_node.sh("systemctl", "enable", "--now", "-q", "served")
    said = ""
    for _ in range(60):
        said = rig_node.sh("/usr/bin/python3", "-c", ask(SERVED))
        if said:
            break
        time.sleep(0.5)

    assert SERVED == json.loads(said or "{}").get("model"), rig_node.sh("journalctl", "-u", "served", "-n", "20")


def shim() -> str:
    """A `vllm` for the node, which sees this checkout's files as they lie here."""
    exports = (
        f"export PYTHONPATH={':'.join(path for path in sys.path if path)}\nexport TOKENPEAK_SIM_DIR=/opt/simulated\n"
    )
    settings = "export TOKENPEAK_SIM_GPU_COUNT=2 TOKENPEAK_SIM_START_S=0.3\n"
    return f'#!/bin/sh\n{exports}{settings}exec {sys.executable} -m tokenpeak.sim.engine "$@"\n'
