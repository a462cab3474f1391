"""A real Docker daemon of one's own, without a network bridge, and an image whose programs are this machine's files.

The image is a tree of empty folders: `/usr` and what else a program needs are mounted into its containers.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node.conftest import STANDIN, Node

from tokenpeak.node.machine import clock, process_files

IMAGE = "engine:1"
START_S = 30
_FOLDERS = ("usr", "etc", "tmp", "proc", "dev", "sys", "sbin", "root", "work", "opt", "run")
_LINKS = ("bin", "lib", "lib64")


def why_no_docker() -> str | None:
    """Why no daemon can be started here; None when one can."""
    if os.geteuid() != 0:
        return "a Docker daemon needs root"
    missing = [name for name in ("docker", "dockerd", "containerd", "runc") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed (Debian: docker.io)" if missing else None


@dataclass
class Daemon:
    """A daemon, and all that it keeps in a folder; `start` gives it the image `engine:1`."""

    folder: Path
    starts: int = 0
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def host(self) -> str:
        """What DOCKER_HOST is to be."""
        return f"unix://{self.folder}/socket"

    def start(self) -> None:
        """Start it, again after a kill; it answers afterwards."""
        self.starts += 1
        # What a killed daemon left of its run would keep the next from starting.
        run = self.folder / f"run-{self.starts}"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *("dockerd", "--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"),
                    *("--data-root", str(self.folder / "data"), "--exec-root", str(run)),
                    *("--pidfile", f"{run}.pid", "-H", self.host),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        is_up = clock.wait_until(self._answers, START_S, poll_s=0.1)
        assert is_up, (self.folder / "log").read_text()[-2000:]

    def kill(self) -> None:
        """End it and its containerd by SIGKILL; containers go on."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it as its service would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def docker(self, *words: str, given: bytes | None = None) -> str:
        """Run `docker`; what it prints."""
        done = subprocess.run(["docker", "-H", self.host, *words], input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """All containers, by name."""
        return self.docker("ps", "--all", "--format", "{{.Names}}").split()

    def _answers(self) -> bool:
        done = subprocess.run(["docker", "-H", self.host, "version"], capture_output=True, check=False)
        return done.returncode == 0


def root_file_system() -> bytes:
    """The image's content as a tar file: mount points alone."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        for name in _FOLDERS:
            Path(made, name).mkdir()
        for name in _LINKS:
            if Path("/", name).is_symlink():
                Path(made, name).symlink_to(Path("/", name).readlink())
        return subprocess.run(["tar", "-C", made, "-c", "."], capture_output=True, check=True).stdout


def mounts(*folders: Path) -> list[str]:
    """The machine's own programs and these folders, each at its own place."""
    own = [f"/{name}:/{name}:ro" for name in ("usr", "etc") if Path("/", name).is_dir()]
    return [*own, *(f"{folder}:{folder}" for folder in folders)]


@contextmanager
def daemon() -> Iterator[Daemon]:
    """A daemon for as long as the block runs; everything that it made goes."""
    made = Daemon(Path(tempfile.mkdtemp(prefix="tokenpeak-docker-")))
    try:
        made.start()
        made.docker("import", "-", IMAGE, given=root_file_system())
        yield made
        for name in made.containers():
            made.docker("rm", "--force", name)
    finally:
        made.stop()
        _end_shims(made.folder)
        # Innermost first: what a daemon leaves mounted would keep its folder.
        left = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(made.folder) in line]
        for place in reversed(left):
            subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(made.folder)


def _end_shims(folder: Path) -> None:
    """End what a killed daemon left to itself, known by the daemon's own folder in its arguments."""
    for one in process_files.all_processes():
        try:
            words = Path(f"/proc/{one.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if words.startswith(b"/usr/bin/containerd-shim") and str(folder).encode() in words:
            os.kill(one.pid, signal.SIGKILL)


PYTHON = Path(sys.executable).resolve()
COMMAND = [str(PYTHON), str(STANDIN), "serve"]


def declare_image(node: Node, folders: Sequence[Path] = (), **changes: Any) -> None:
    """Declare `engine:1` with the small server as the node's one engine build, with these changes."""
    places = mounts(PYTHON.parents[1], STANDIN.parent, *folders)
    build = {"image": IMAGE, "command": COMMAND, "mounts": places, "version": "0.32.0", **changes}
    node.declare(engines=[{"name": "box", "build": build}], simulated=True)


def request_in_image(node: Node, *options: str, **changes: Any) -> dict[str, Any]:
    """A launch request for the small server in the image; a daemon on a busy machine takes seconds to start it."""
    given = node.launch_request(*options, **{"deadline_s": 60, **changes})
    return {**given, "argv": [*COMMAND, *given["argv"][3:]]}
