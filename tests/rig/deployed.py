"""The texts of a built page, and where each is started: a network of its own with a Docker daemon in it."""

import json
import os
import re
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
