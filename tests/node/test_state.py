"""The node's state folder."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.node.conftest import node_in

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State


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
