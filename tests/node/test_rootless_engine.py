"""An engine build that a user's own Podman runs, without root: the real Podman, as another user of this machine."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docker_daemon import IMAGE, root_file_system
from tests.node.conftest import STANDIN, Node

pytestmark = [pytest.mark.e2e]

USER = "nobody"
PYTHON = "/usr/bin/python3"
OPTIONS = "--storage-driver=vfs --cgroup-manager=cgroupfs --runtime=runc"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of that user's, with a `podman` that keeps everything there; the image is imported."""
    missing = [name for name in ("podman", "runc", "conmon", "runuser") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root to play another user, and {', '.join(missing) or 'nothing else'}")
    # Other users can't enter pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="tokenpeak-rootless-") as name:
        made = Path(name)
        account = pwd.getpwnam(USER)
        for folder in ("home", "run", "bin", "shown"):
            (made / folder).mkdir()
        for folder in ("home", "run"):
            os.chown(made / folder, account.pw_uid, account.pw_gid)
            (made / folder).chmod(0o700)
        made.chmod(0o755)
        program = made / "bin" / "podman"
        program.write_text(
            f'#!/bin/sh\nHOME={made}/home XDG_RUNTIME_DIR={made}/run exec {shutil.which("podman")} {OPTIONS} "$@"\n'
        )
        program.chmod(0o755)
        shutil.copy(STANDIN, made / "shown" / "standin.py")
        monkeypatch.setenv("PATH", f"{made}/bin:{os.environ['PATH']}")
        argv = ["runuser", "-u", USER, "--", "podman", "import", "-", IMAGE]
        done = subprocess.run(argv, input=root_file_system(), capture_output=True, cwd="/", check=False)
        if done.returncode != 0:
            pytest.skip(f"Podman does not run without root here: {done.stderr.decode().strip()[-200:]}")
        yield made
        # What it keeps belongs to users of its own namespace.
        subprocess.run(
            ["runuser", "-u", USER, "--", "podman", "unshare", "rm", "-rf", f"{made}/home/.local"], cwd="/", check=False
        )


def test_engine_of_a_rootless_podman(node: Node, place: Path) -> None:
    """The engine is that user's process and serves on the host's network; its container is in that Podman."""
    command = [PYTHON, str(place / "shown" / "standin.py"), "serve"]
    build = {
        "image": IMAGE,
        "runtime": "podman",
        "rootless_user": USER,
        "command": command,
        "mounts": ["/usr:/usr:ro", "/etc:/etc:ro", f"{place}/shown:{place}/shown:ro"],
        "devices": [],
    }
    node.declare(engines=[{"name": "box", "build": build}], simulated=True)
    request = node.launch_request("--reports", "0.32.0", deadline_s=60)

    launched = node.run("launch", {**request, "argv": [*command, *request["argv"][3:]]})
    owner = Path(f"/proc/{launched['pid']}").stat().st_uid if launched.get("pid") else None
    finished = node.run("finish", node.finish_request())
    left = subprocess.run(
        ["runuser", "-u", USER, "--", "podman", "ps", "--all", "--quiet"], capture_output=True, cwd="/", check=False
    )

    assert launched.get("ready"), json.dumps(launched)
    assert pwd.getpwnam(USER).pw_uid == owner
    assert finished["engine_stopped"]
    assert (0, b"") == (left.returncode, left.stdout)
