"""A Docker daemon on a node of the rig, production as a container of it, and everything that it keeps."""

import sys
from pathlib import Path

from tests.docker_daemon import IMAGE, mounts, root_file_system
from tests.rig.conftest import RigNode

from tokenpeak import paths
from tokenpeak.node.machine import clock

_DATA = "/var/lib/rig-docker"
_UNIT = f"""[Unit]
Description=Docker
[Service]
ExecStart=/usr/sbin/dockerd --storage-driver=vfs --iptables=false --ip6tables=false --bridge=none \\
  --data-root {_DATA} --exec-root /run/rig-docker --pidfile /run/rig-docker.pid -H unix:///var/run/docker.sock
KillMode=process
Delegate=yes
[Install]
WantedBy=multi-user.target
"""


def start(node: RigNode) -> None:
    """Have the daemon on the node, at each of its boots, with the image."""
    node.write("/etc/systemd/system/dockerd.service", _UNIT)
    node.sh("systemctl", "daemon-reload")
    node.sh("systemctl", "enable", "--now", "-q", "dockerd.service")
    assert clock.wait_until(lambda: "Server" in node.sh("docker", "version"), 60, poll_s=0.2)
    node.write("/root/image.tar", root_file_system())
    node.sh("docker", "import", "/root/image.tar", IMAGE)


def machine_mounts(machine: str) -> list[str]:
    """The node's own programs and the simulated machine: what a container of another image would have in it."""
    folders = {Path(sys.executable).resolve().parents[1], Path(sys.prefix), paths.ROOT}
    return [*mounts(*sorted(folders)), f"{machine}:{machine}"]


def make_production(node: RigNode, machine: str, model: str) -> None:
    """Create the container `prod`, a simulated engine whose slow stop is long enough to be struck in.

    The simulated boards know who holds their memory by its pid on the node.
    """
    script = f"{machine}/production"
    node.write(
        script,
        f"""#!/bin/sh
trap 'sleep 0.7; kill $served; wait $served; exit 0' TERM
{machine}/vllm "$@" &
served=$!
wait $served
""",
    )
    node.sh("chmod", "755", script)
    options = [word for place in machine_mounts(machine) for word in ("--volume", place)]
    options += ["--network", "host", "--pid", "host", "--restart", "unless-stopped", "--env"]
    options += ["TOKENPEAK_SIM_START_S=0.5", "--entrypoint", script]
    served = ("serve", model, "--host", node.address, "--port", "8000", "--max-model-len", "4096")
    node.sh("docker", "create", "--name", "prod", *options, IMAGE, *served)


def keeps(node: RigNode) -> tuple[tuple[str, ...], ...]:
    """The node's containers with their state and restart policy, its images, all layers, and its volumes."""
    policy = "{{.Id}} {{.State.Status}} {{.HostConfig.RestartPolicy.Name}}"
    ids = node.sh("docker", "ps", "--all", "--quiet").split()
    said = (
        node.sh("docker", "inspect", "--format", policy, *ids) if ids else "",
        node.sh("docker", "images", "--all", "--quiet"),
        node.sh("ls", f"{_DATA}/vfs/dir"),
        node.sh("docker", "volume", "ls", "--quiet"),
    )
    return tuple(tuple(sorted(each.splitlines())) for each in said)
