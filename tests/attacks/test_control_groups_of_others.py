"""Another user names a unit of their own by the id of production's container or pod, and answers in its place.

Every user may read that id in /proc, and `systemd-run --user --unit=ID` makes a control group that bears it. It passed
for production's, and was sent its key. Only the very group that the container's first process is in counts, and of a
pod one that no user makes.
"""

from collections.abc import Callable

import pytest

from tokenpeak.node.engine.container import EngineContainer
from tokenpeak.node.machine import process_files
from tokenpeak.node.machine.containers import of_containers
from tokenpeak.node.production.managers.kubernetes import KubernetesManager

ID = "ab12" * 16
UID = "8f2d1c00-1111-2222-3333-444455556666"
OWN = f"pod{UID}"
SLICE = OWN.replace("-", "_")
LEADER, OTHER = 4_194_301, 4_194_302
"""Pids that no process has: the kernel gives out none so high."""
SESSION = "/user.slice/user-1005.slice/user@1005.service"

Groups = Callable[[str, str], None]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Puts the two processes into these control groups."""

    def put(leader: str, other: str) -> None:
        found = {LEADER: leader, OTHER: other}
        monkeypatch.setattr(process_files, "_lines", lambda pid, name: [f"0::{found[pid]}"])

    return put


@pytest.mark.parametrize(
    "group",
    [
        f"/system.slice/docker-{ID}.scope",
        f"/docker/{ID}",
        f"/machine.slice/libpod-{ID}.scope/container",
        f"/system.slice/prod.service/libpod-payload-{ID}",
        f"{SESSION}/user.slice/libpod-{ID}.scope/container",
    ],
)
@pytest.mark.parametrize(
    "other",
    [
        f"{SESSION}/app.slice/{ID}.service",
        f"{SESSION}/app.slice/docker-{ID}.scope",
        f"/user.slice/libpod-{ID}.scope/container",
        f"/system.slice/docker-{ID}.scope-x/y",
        f"/system.slice/x-docker-{ID}.scope",
        "/",
        "",
    ],
)
def test_container(groups: Groups, group: str, other: str) -> None:
    """Of production, and of an engine: a namesake is neither; what is in the container's own group is."""
    groups(group, other)
    inspected = [{"Id": ID, "State": {"Pid": LEADER}}]
    engine = EngineContainer.__new__(EngineContainer)
    engine.id = ID

    found = [of_containers(inspected, 0)(OTHER), engine.members(LEADER)(OTHER)]
    groups(group, f"{group.removesuffix('/container')}/exec")
    own = [of_containers(inspected, 0)(OTHER), engine.members(LEADER)(OTHER)]

    assert [False, False] == found
    assert [True, True] == own


@pytest.mark.parametrize("group", ["/", "", f"{SESSION}/session-3.scope", "/system.slice/docker.service"])
def test_container_without_a_group_of_its_own(groups: Groups, group: str) -> None:
    """Where the first process shares its group with others, those are no processes of the container."""
    groups(group, group)

    assert not of_containers([{"Id": ID, "State": {"Pid": LEADER}}], 0)(OTHER)
    assert not of_containers([{"Id": ID, "State": {"Pid": 0}}], 0)(OTHER)


@pytest.mark.parametrize(
    ("group", "is_own"),
    [
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{SLICE}.slice/cri-containerd-{ID}.scope", True),
        (f"/kubepods.slice/kubepods-{SLICE}.slice", True),
        (f"/kubepods/besteffort/{OWN}/{ID}", True),
        (f"/docker/{ID}/kubelet/kubepods/{OWN}/{ID}", True),
        (f"/system.slice/docker-{ID}.scope/kubelet.slice/kubelet-kubepods-{SLICE}.slice/x.scope", True),
        (f"{SESSION}/app.slice/{OWN}.service", False),
        (f"{SESSION}/app.slice/{OWN}", False),
        (f"/user.slice/{OWN}/x", False),
        (f"/system.slice/theirs.service/kubepods/{OWN}/x", False),
        (f"/kubepods/x{OWN}x/y", False),
        (f"/kubepods/{OWN}0/y", False),
        (f"/kubepods/{OWN[:-1]}/y", False),
    ],
)
def test_pod(groups: Groups, monkeypatch: pytest.MonkeyPatch, group: str, is_own: bool) -> None:
    """A whole part of the path, outside of what a user may name."""
    groups("/", group)
    manager = KubernetesManager({"manager": "kubernetes", "unit": "deployment/x"}, None)  # type: ignore[arg-type]
    monkeypatch.setattr(manager, "workload", dict)
    monkeypatch.setattr(manager, "pods", lambda workload: [{"metadata": {"uid": UID}}])
    is_member = manager.members()

    assert is_member is not None
    assert is_own is is_member(OTHER)
