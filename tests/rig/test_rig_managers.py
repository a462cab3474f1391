"""supervisord and Podman, the real ones."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.free_ports import free_port
from tests.node.conftest import STANDIN, Node, node  # noqa: F401
from tests.rig.conftest import PYTHON, SERVER, RigNode

from tokenpeak.node.engine import serving
from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e]

ENGINES = Path.home() / ".local/share/tokenpeak/engines"


def supervisord() -> Path | None:
    """Supervisord of the system, or the one that an engine's environment brings."""
    found = shutil.which("supervisord")
    return Path(found) if found else next(ENGINES.glob("*/bin/supervisord"), None)


def answers(url: str) -> bool:
    """Whether the server there serves the model `prod`."""
    return serving.served_model(url, timeout_s=2) == "prod"


def test_supervisord(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """A program of supervisord is borrowed and given back."""
    program = supervisord()
    if program is None:
        pytest.skip("supervisord is not installed")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = tmp_path / "supervisord.conf"
    config.write_text(
        f"[unix_http_server]\nfile={tmp_path}/sock\n[supervisord]\nlogfile={tmp_path}/log\npidfile={tmp_path}/pid\n"
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        f"[supervisorctl]\nserverurl=unix://{tmp_path}/sock\n"
        f"[program:prod]\ncommand={sys.executable} {STANDIN} serve prod --port {port}\n"
    )
    started = subprocess.Popen(
        [str(program), "-n", "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    node.declare(
        production={
            "manager": "supervisord",
            "unit": "prod",
            "config": str(config),
            "url": url,
        }
    )

    assert clock.wait_until(lambda: answers(url), 15)

    launched = node.run("launch", node.launch_request())
    during = answers(url)
    finished = node.run("finish", node.finish_request())
    after = answers(url)

    started.terminate()
    started.wait(timeout=20)
    assert launched["ready"]
    assert not during
    assert finished["restoration"]["restored"]
    assert after


STORAGE = '[storage]\ndriver="overlay"\ngraphroot="/run/pod/storage"\nrunroot="/run/pod/run"\n'
ULIMITS = '[containers]\ndefault_ulimits=["nofile=1024:1024","nproc=1000:1000"]\n'


def test_podman(rig_node: RigNode) -> None:
    """A Podman container is borrowed and given back: the same one, by its id.

    It runs on a view of the node's own files, so that no registry is needed.
    """
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    rig_node.sh("mkdir", "-p", "/etc/containers")
    rig_node.write("/etc/containers/storage.conf", STORAGE)
    rig_node.write("/etc/containers/containers.conf", ULIMITS)
    options = ("--name", "prod", "--network", "host", "--cgroups", "disabled", "--rootfs", "/:O")
    serve = (PYTHON, SERVER, "serve", "prod", "--host", rig_node.address, "--port", "8000")
    container_id = rig_node.sh("podman", "create", *options, *serve).strip()
    rig_node.sh("podman", "start", "prod")
    url = f"http://{rig_node.address}:8000"
    assert clock.wait_until(lambda: answers(url), 15), rig_node.sh("podman", "ps", "-a")
    rig_node.declare(production={"manager": "podman", "unit": "prod", "stop_grace_s": 1, "url": url})

    launched = rig_node.node("launch", rig_node.launch_request())
    during = answers(url)
    finished = rig_node.node("finish", {"trial_id": "0000-abc", "holder": "sweep-1"})

    assert (True, False) == (launched["ready"], during)
    assert finished["restoration"]["restored"], finished
    assert answers(url)
    assert container_id == rig_node.sh("podman", "inspect", "--format", "{{.Id}}", "prod").strip()
    rig_node.sh("podman", "rm", "-f", "-t", "0", "prod")
