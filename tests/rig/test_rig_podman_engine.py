"""Engine builds that root's Podman runs, on a node of the rig; devices by CDI."""

import json
import shutil

import pytest
from tests.docker_daemon import IMAGE, root_file_system
from tests.rig.conftest import PYTHON, SERVER, STATE, RigNode

pytestmark = [pytest.mark.e2e]

# The rig's control groups are too few for Podman's; crun does without.
CONTAINERS = '[containers]\ndefault_ulimits=["nofile=1024:1024","nproc=1000:1000"]\n[engine]\nruntime="crun"\n'
STORAGE = '[storage]\ndriver="vfs"\ngraphroot="/run/pod/storage"\nrunroot="/run/pod/run"\n'
BOARD = {
    "cdiVersion": "0.5.0",
    "kind": "tokenpeak.test/board",
    "devices": [
        {"name": "0", "containerEdits": {"env": ["BOARD=zero"], "deviceNodes": [{"path": "/dev/fuse"}]}},
        {"name": "1", "containerEdits": {"env": ["BOARD=one"]}},
    ],
}
MOUNTS = ["/usr:/usr:ro", "/etc:/etc:ro", "/opt:/opt:ro"]
COMMAND = ["/bin/sh", "-c", f'echo "board $BOARD"; exec {PYTHON} {SERVER} "$@"', "sh", "serve"]


@pytest.fixture
def podman(rig_node: RigNode) -> RigNode:
    """A node with Podman, its image for root, and two devices that CDI describes."""
    missing = [name for name in ("podman", "crun", "conmon") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    rig_node.sh("mkdir", "-p", "/etc/containers", "/etc/cdi")
    rig_node.write("/etc/containers/containers.conf", CONTAINERS)
    rig_node.write("/etc/containers/storage.conf", STORAGE)
    rig_node.write("/etc/cdi/board.json", json.dumps(BOARD))
    rig_node.write("/opt/image.tar", root_file_system())
    rig_node.sh("podman", "import", "/opt/image.tar", IMAGE)
    return rig_node


def test_devices_by_their_cdi_names(podman: RigNode) -> None:
    """The container has the declared device and no other, runs as the engine's user, and is gone afterwards."""
    podman.sh("useradd", "--create-home", "engine")
    build = {"version": "0.32.0", "image": IMAGE, "runtime": "podman", "command": COMMAND, "mounts": MOUNTS}
    own = {"devices": ["tokenpeak.test/board=0"], "args": ["--cgroups=disabled"]}
    podman.declare(
        production=podman.production_unit(enabled=True),
        engine={"user": "engine"},
        engines=[{"name": "box", "build": {**build, **own}}],
        simulated=True,
    )
    request = podman.launch_request("--reports", "0.32.0", deadline_s=60)

    launched = podman.node("launch", {**request, "argv": [*COMMAND, *request["argv"][3:]]})
    users = podman.sh("ps", "-o", "user=", "-p", str(launched.get("pid"))).split()
    finished = podman.node("finish", {"trial_id": "0000-abc", "holder": "sweep-1"})

    assert launched.get("ready"), json.dumps(launched)
    assert ["engine"] == users
    assert finished["restoration"]["restored"], finished
    assert "board zero" in podman.sh("cat", f"{STATE}/engine.log")
    assert "" == podman.sh("podman", "ps", "--all", "--quiet")
