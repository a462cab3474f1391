"""A node with systemd on which TokenPeak was installed and used is, after uninstalling, as it was before."""

import pytest
from tests.rig.conftest import PYTHON, SERVER, RigNode

from tokenpeak.node.machine import clock

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

COMMAND = "/usr/local/sbin/tokenpeak-node"
PLACES = ("/etc", "/opt", "/root", "/usr/local", "/var/lib", "/run/systemd/transient", "/run/systemd/system")

NOT_COMPARED = (
    "/root/request.json",
    # A node sees this machine's files under its own, and who runs Ansible here changes them meanwhile.
    "/root/.ansible*",
    # systemd makes these folders for the first unit in them; it leaves the first and removes the second when empty.
    "/run/systemd/transient",
    "/etc/systemd/system/*.wants",
)


def everything(node: RigNode) -> tuple[list[str], list[str]]:
    """Every file below the places where TokenPeak writes, and every unit that systemd knows of."""
    words = [word for path in NOT_COMPARED for word in ("-not", "-path", path)]
    files = node.sh("find", *PLACES, *words).splitlines()
    units = node.sh("systemctl", "list-unit-files", "--no-legend", "--no-pager").splitlines()
    loaded = node.sh("systemctl", "list-units", "--all", "--no-legend", "--no-pager", "--plain").splitlines()
    # Who logs in or dumps core meanwhile is no concern of this.
    names = {line.split()[0] for line in loaded if "tokenpeak" in line}
    return sorted(files), sorted([*(" ".join(line.split()) for line in units), *names])


def test_node_is_as_it_was_before(rig_node: RigNode) -> None:
    """Files and units after install, trial, finish and uninstall are those before; sudoers is left, and said."""
    production = rig_node.production_unit(enabled=True)
    assert clock.wait_until(rig_node.answers, 10)
    rig_node.write("/etc/sudoers.d/tokenpeak", f"tuner ALL=(root) NOPASSWD: {COMMAND}\n")
    rig_node.sh("useradd", "-m", "engine")
    before = everything(rig_node)
    rig_node.declare(
        production=production,
        engine={"command": [PYTHON, SERVER, "serve"], "user": "engine"},
        guard_command=COMMAND,
    )
    launched = rig_node.node("launch", rig_node.launch_request())
    refused = rig_node.node("uninstall")
    rig_node.node("finish", {"trial_id": "0000-abc", "holder": "sweep-1"})
    removed = rig_node.node("uninstall")

    assert launched["ready"], launched
    assert "Trial 0000-abc of sweep-1 has the node" in refused["error"]["text"]
    assert removed["removed"], removed
    assert ["/etc/sudoers.d/tokenpeak still names"] == [words.partition(" /")[0] for words in removed["left"]]
    assert before == everything(rig_node)
    assert rig_node.answers()
