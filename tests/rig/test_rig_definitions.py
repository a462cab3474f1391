"""Definitions of production on whole nodes: systemd units of the system and of a user, and containers of Podman."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.rig.conftest import PYTHON, SERVER, RigNode

from tokenpeak.node.machine import clock
from tokenpeak.node.production.managers.systemd import DROP_IN

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("rig")]

UNIT = """[Unit]
Description=Production
[Service]
Environment=MODEL=prod "WORDS=a b" VLLM_OLD=1
ExecStart={python} {server} serve ${{MODEL}} \\
  --host {address} --port 8000 \\
  --say "a b" '%% of $$5' "back\\\\slash"
Restart=always
[Install]
WantedBy=multi-user.target
"""


def request_of(node: RigNode, *words: str, **changes: Any) -> dict[str, Any]:
    """A change that keeps the present words and adds these."""
    found = node.node("describe")
    edit = {"words": [*range(len(found["words"])), *words], "env": {}, "image": None}
    edit.update(changes.pop("edit", {}))
    return {
        "apply_id": "a-1",
        "holder": "apply a-1",
        "was_sha256": found["sha256"],
        "lease_s": 60,
        "confirm_within_s": 300,
        "production_ready_s": 20,
        "edit": edit,
        **changes,
    }


def confirm(node: RigNode) -> dict[str, Any]:
    return node.node("confirm", {"apply_id": "a-1", "holder": "apply a-1"})


def fingerprint(node: RigNode, *systemctl: str) -> str:
    """A digest of what systemd itself says of the unit and its files, and of what is in its folder of drop-ins."""
    said = node.sh(*(systemctl or ("systemctl",)), "cat", "prod.service")
    said += node.sh("sh", "-c", "ls -la /etc/systemd/system/prod.service.d /home/*/.config/systemd/user/*.d 2>&1")
    said += node.sh(*(systemctl or ("systemctl",)), "show", "-p", "ExecStart,Environment,DropInPaths", "prod.service")
    return hashlib.sha256(said.split("start_time")[0].encode()).hexdigest()


def arguments(node: RigNode, *systemctl: str) -> list[str]:
    """The arguments of the unit's process, by the kernel."""
    pid = node.sh(*(systemctl or ("systemctl",)), "show", "-p", "MainPID", "--value", "prod.service").strip()
    return node.sh("cat", f"/proc/{pid}/cmdline").rstrip("\0").split("\0")[3:]


OLD = ["prod", "--host", "{}", "--port", "8000", "--say", "a b", "% of $5", "back\\slash"]
HOSTILE = ["--say", "$HOME", "${MODEL}", "%h", "a  b", "'", '"', ";reboot", "\\", "`id`", "$$", "100%", "--say=é"]


def test_systemd_unit(rig_node: RigNode) -> None:
    """Words that stay are as they were, new ones reach the engine unchanged, and a rollback leaves nothing of ours."""
    unit = UNIT.format(python=PYTHON, server=SERVER, address=rig_node.address)
    rig_node.write("/etc/systemd/system/prod.service", unit)
    rig_node.sh("systemctl", "daemon-reload")
    rig_node.sh("systemctl", "start", "prod.service")
    url = f"http://{rig_node.address}:8000"
    rig_node.declare(production={"manager": "systemd", "unit": "prod.service", "url": url})
    assert clock.wait_until(rig_node.answers, 60)
    before = fingerprint(rig_node)
    old = [word.format(rig_node.address) for word in OLD]
    assert old == arguments(rig_node)

    found = rig_node.node("describe")
    changed = rig_node.node("change", request_of(rig_node, *HOSTILE, edit={"env": {"VLLM_NEW": "x $y %z"}}))
    new = arguments(rig_node)
    pid = rig_node.sh("systemctl", "show", "-p", "MainPID", "--value", "prod.service").strip()
    environment = rig_node.sh("cat", f"/proc/{pid}/environ").split("\0")
    assert changed["changed"], changed
    confirmed = confirm(rig_node)
    sha256 = rig_node.node("describe")["sha256"]
    second = rig_node.node("change", request_of(rig_node, "--say", "2", edit={"env": {"VLLM_OLD": None}}))
    environment_2 = rig_node.sh(
        "sh", "-c", "cat /proc/$(systemctl show -p MainPID --value prod.service)/environ"
    ).split("\0")
    rig_node.node("restore", {"holder": "apply a-1"})
    after_second = arguments(rig_node)
    undone = rig_node.node("change", {**request_of(rig_node), "edit": None})
    assert undone.get("changed"), undone
    assert confirm(rig_node)["confirmed"]

    assert ["${MODEL}" if word == "prod" else word for word in old] == found["words"][3:]
    assert [*old, *HOSTILE] == new
    assert "VLLM_NEW=x $y %z" in environment
    assert {"MODEL=prod", "WORDS=a b", "VLLM_OLD=1"} <= {*environment}
    assert confirmed["confirmed"]
    assert confirmed["sha256"] == sha256
    assert second["changed"], second
    assert "VLLM_OLD=1" not in environment_2
    assert "VLLM_NEW=x $y %z" in environment_2
    assert new == after_second
    assert undone["changed"], undone
    assert before == fingerprint(rig_node)
    assert old == arguments(rig_node)
    assert rig_node.answers()


def test_unit_of_a_user(rig_node: RigNode) -> None:
    """A user's unit is changed and put back as that user, in that user's folder."""
    rig_node.sh("useradd", "-m", "serving")
    rig_node.sh("mkdir", "-p", "/run/user", "/home/serving/.config/systemd/user")
    uid = rig_node.sh("id", "-u", "serving").strip()
    rig_node.sh("install", "-d", "-o", "serving", "-m", "700", f"/run/user/{uid}")
    unit = f"[Service]\nExecStart={PYTHON} {SERVER} serve prod --host {rig_node.address} --port 8000\n"
    rig_node.write("/home/serving/.config/systemd/user/prod.service", unit)
    rig_node.sh("chown", "-R", "serving", "/home/serving/.config")
    rig_node.sh("systemctl", "start", f"user@{uid}.service")
    systemctl = ("runuser", "-u", "serving", "--", "env", f"XDG_RUNTIME_DIR=/run/user/{uid}", "systemctl", "--user")
    rig_node.sh(*systemctl, "start", "prod.service")
    url = f"http://{rig_node.address}:8000"
    rig_node.declare(production={"manager": "systemd", "unit": "prod.service", "user": "serving", "url": url})
    assert clock.wait_until(rig_node.answers, 60)
    before = fingerprint(rig_node, *systemctl)

    changed = rig_node.node("change", request_of(rig_node, "--say", "new"))
    owner = rig_node.sh("stat", "-c", "%U", "/home/serving/.config/systemd/user/prod.service.d/zz-tokenpeak.conf")
    new = arguments(rig_node, *systemctl)
    restored = rig_node.node("restore", {"holder": "apply a-1"})

    assert changed["changed"], changed
    assert "serving" == owner.strip()
    assert ["--say", "new"] == new[-2:]
    assert restored["restoration"]["restored"], restored
    assert before == fingerprint(rig_node, *systemctl)


def test_disk_that_is_full_when_the_definition_is_put_back(boot: Callable[..., RigNode]) -> None:
    """Putting back needs no room: the file that was is there under a second name."""
    node = boot(disk="80m")
    node.declare(production=node.production_unit(enabled=True))
    assert clock.wait_until(node.answers, 60)
    node.node("change", request_of(node, "--say", "one"))
    confirm(node)
    one = fingerprint(node)
    changed = node.node("change", request_of(node, "--say", "two"))
    node.sh("sh", "-c", "cat /dev/zero > /root/filler")

    node.write("/run/request.json", json.dumps({"holder": "apply a-1"}))
    state = "/var/lib/tokenpeak"
    node.sh(PYTHON, f"{state}/tokenpeak-node.pyz", "restore", "--state", state, "--request", "/run/request.json")

    assert changed["changed"], changed
    assert one == fingerprint(node)
    assert ["--say", "one"] == arguments(node)[-2:]
    assert node.answers()


@pytest.mark.parametrize("by", ["restore", "guard"])
def test_drop_in_that_systemd_does_not_load(rig_node: RigNode, by: str) -> None:
    """A definition with which systemd neither starts nor stops the unit: the former one is back, and serves."""
    declared = rig_node.production_unit(enabled=True)
    rig_node.declare(production=declared)
    assert clock.wait_until(rig_node.answers, 20)
    before = fingerprint(rig_node)
    changed = rig_node.node("change", request_of(rig_node, "--say", "new", lease_s=20))
    rig_node.sh("systemctl", "stop", "prod.service")
    rig_node.write(f"/etc/systemd/system/prod.service.d/{DROP_IN}", "[Service]\nExecStart=\n")
    rig_node.sh("systemctl", "daemon-reload")
    loaded = rig_node.sh("systemctl", "show", "-p", "LoadState", "--value", "prod.service").strip()

    if by == "restore":
        outcome = rig_node.node("restore")["restoration"]
    else:
        assert clock.wait_until(lambda: rig_node.read("record.json") is None, 60)
        outcome = rig_node.read("outcome.json")

    assert changed["changed"], changed
    assert "bad-setting" == loaded
    assert (True, by, "put_back") == (outcome["restored"], outcome["by"], outcome["definition"]), outcome
    assert rig_node.answers()
    assert before == fingerprint(rig_node)
