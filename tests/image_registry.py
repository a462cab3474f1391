"""A real registry of images on a port of this machine, behind a way that carries so many bytes a second."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docker_daemon import Daemon

from tokenpeak.node.machine import clock

REGISTRY = "docker-registry"
_RELAY = """
import socket, sys, threading, time
to, rate = int(sys.argv[1]), float(sys.argv[2])
front = socket.create_server(("127.0.0.1", 0))
print(front.getsockname()[1], flush=True)
def carry(a, b, slow):
    try:
        while data := a.recv(65536):
            b.sendall(data)
            if slow: time.sleep(len(data) / rate)
    except OSError: pass
    for each in (a, b):
        try: each.shutdown(socket.SHUT_RDWR)
        except OSError: pass
while True:
    near, _ = front.accept()
    far = socket.create_connection(("127.0.0.1", to))
    threading.Thread(target=carry, args=(near, far, False), daemon=True).start()
    threading.Thread(target=carry, args=(far, near, True), daemon=True).start()
"""


def why_no_registry() -> str | None:
    """Why no registry can be started here; None when one can."""
    return None if shutil.which(REGISTRY) else f"{REGISTRY} is not installed"


@contextmanager
def registry(folder: Path, *, bytes_per_s: float = 1e9) -> Iterator[tuple[int, int]]:
    """The ports at which it answers at once, and behind the slow way."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/images}}}}\n"
        f"http: {{addr: 127.0.0.1:{port}}}\n"
    )
    with (folder / "registry.log").open("w") as log:
        server = subprocess.Popen([REGISTRY, "serve", str(config)], stdout=log, stderr=log, start_new_session=True)
    relay = subprocess.Popen(
        [sys.executable, "-c", _RELAY, str(port), str(bytes_per_s)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert relay.stdout
        slow = int(relay.stdout.readline())
        assert clock.wait_until(lambda: _answers(port), 20, poll_s=0.1), (folder / "registry.log").read_text()
        yield port, slow
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        relay.kill()
        server.wait()
        relay.communicate()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def publish(docker: Daemon, port: int, name: str, size_bytes: int) -> None:
    """Have an image of this size, which does not compress, in the registry, and not in the daemon."""
    tree = docker.folder / f"tree-{name.replace(':', '-')}"
    tree.mkdir()
    (tree / "weights").write_bytes(os.urandom(size_bytes))
    tar = subprocess.run(["tar", "-C", str(tree), "-c", "."], capture_output=True, check=True).stdout
    shutil.rmtree(tree)
    docker.docker("import", "-", f"127.0.0.1:{port}/{name}", given=tar)
    docker.docker("push", "--quiet", f"127.0.0.1:{port}/{name}")
    docker.docker("rmi", f"127.0.0.1:{port}/{name}")
