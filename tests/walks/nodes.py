"""What is on a walk's nodes before TokenPeak comes: boards, vLLM as a program or an image, production that serves."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.rig.conftest import RigNode

from tokenpeak import paths

FILES = "find /etc /opt /root /home /usr /var /run -iname '*tokenpeak*' -prune 2>/dev/null | sort"
SHAPES = paths.ROOT / "analysis" / "tokenpeak" / "predict" / "data" / "models.json"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
ASK = (
    "import json,urllib.request as u;"
    "b=json.dumps(dict(model={model!r},prompt='The',max_tokens=1)).encode();"
    "r=u.Request('http://127.0.0.1:8000/v1/completions',b,{{'Content-Type':'application/json'}});"
    "print(json.load(u.urlopen(r,timeout=2))['model'])"
)


def simulate(node: RigNode, folder: str, gpu: str, count: int, version: str) -> None:
    """Put a vllm and an nvidia-smi that play this release on these boards into a folder of the node."""
    options = ("--gpu", gpu, "--count", str(count), "--version", version, "--start-s", "0.5")
    node.sh(sys.executable, "-m", "tokenpeak.sim.install", folder, *options)
    node.sh("ln", "-s", f"{folder}/nvidia-smi", "/usr/bin/nvidia-smi")
    # The interpreter of the tests may lie in root's home.
    node.sh("chmod", "711", "/root")
    node.sh("mkdir", "-p", "-m", "1777", f"{folder}/state")


def put_model(node: RigNode, folder: str, name: str = LLAMA) -> None:
    """A checkpoint's config.json, which is all that a simulated engine reads of it."""
    node.sh("mkdir", "-p", folder)
    node.write(f"{folder}/config.json", json.dumps(json.loads(SHAPES.read_text())[name]["config"]))


def start_unit(node: RigNode, name: str, words: Sequence[str]) -> None:
    """A systemd unit that runs these words, now and after a boot."""
    unit = f"[Service]\nExecStart={' '.join(words)}\n[Install]\nWantedBy=multi-user.target\n"
    node.write(f"/etc/systemd/system/{name}.service", unit)
    node.sh("systemctl", "daemon-reload")
    node.sh("systemctl", "enable", "-q", "--now", f"{name}.service")


def start_docker(node: RigNode, image: Path, name: str) -> None:
    """A Docker daemon with one image; NVIDIA's hook is there and does nothing.

    The first node imports the image and leaves in its place what it saved, which the next one loads: as from one
    registry, both have it by the same digest.
    """
    node.write("/usr/bin/nvidia-container-runtime-hook", "#!/bin/sh\nexit 0\n")
    node.sh("chmod", "755", "/usr/bin/nvidia-container-runtime-hook")
    quiet = ("--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--bridge=none")
    start_unit(node, "dockerd", ["/usr/sbin/dockerd", *quiet])
    wait_for(lambda: "Server Version" in node.sh("docker", "info"), "docker", 60)
    node.write("/root/image.tar", image.read_bytes())
    saved = image.with_name("saved.tar")
    if saved.exists():
        node.write("/root/image.tar", saved.read_bytes())
        node.sh("docker", "load", "--input", "/root/image.tar")
    else:
        node.sh("docker", "import", "/root/image.tar", name)
        node.sh("docker", "save", "--output", "/root/saved.tar", name)
        read = subprocess.run(node.ssh_argv("cat", "/root/saved.tar"), stdout=subprocess.PIPE, check=True)
        saved.write_bytes(read.stdout)


def served(node: RigNode, model: str) -> bool:
    """Whether production answers on the node itself, by this model."""
    return model == node.sh("/usr/bin/python3", "-c", ASK.format(model=model)).strip()


def wait_for(is_so: object, what: str, limit_s: float = 60.0) -> None:
    """Wait until it is so."""
    assert callable(is_so)
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def own_files(node: RigNode) -> str:
    """Every path of the node's disks that bears our name."""
    return node.sh("sh", "-c", FILES)
