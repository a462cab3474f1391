"""The node's state folder."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.node.conftest import node_in

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State


def test_kept_twice(tmp_path: Path) -> None:
    """What production cannot come back without is read from its copy where the file itself is torn."""
    state = State.make(tmp_path / "state")
    state.write("record.json", {"a": 1})

    state.path("record.json").write_text("{")

    assert state.read("record.json") == {"a": 1}
    state.remove("record.json")
    assert not state.has("record.json")
    assert list(state.folder.iterdir()) == []


def test_malformed(tmp_path: Path) -> None:
    """A file that is no JSON is named, with what to do, where nothing can go on without it; others count as missing."""
    state = State.make(tmp_path / "state")
    state.path("record.json").write_text("{")

    with pytest.raises(ScriptError, match=r"record\.json is not JSON .* then remove it"):
        state.read("record.json")
    state.path("lock.json").write_text("{")
    assert state.read("lock.json") is None


def test_room(tmp_path: Path) -> None:
    """A disk without room is said to be full, with what there is and what is needed."""
    state = State.make(tmp_path / "state")
    state.require_room(1)

    with pytest.raises(ScriptError, match=r"No space left.* MB free and a trial needs 1000000000000\.0 MB"):
        state.require_room(10**18)


def test_disk_without_inodes(tmp_path: Path) -> None:
    """A node whose disk can have no more files borrows nothing, and the probe says so before."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,nr_inodes=80", "tmpfs", str(place)], check=True)
    try:
        with node_in(place / "state") as node:
            launched = node.run("launch", node.launch_request())
            problems = node.run("probe")["problems"]
            held = node.read("record.json")
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)

    assert "disk" == launched["error"]["code"]
    assert "No inodes left on the node's disk" in launched["error"]["text"]
    assert held is None
    assert any("No inodes left" in problem for problem in problems)
