"""A folder in which a second user plays an attacker's part."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.conftest import Node, node_in

from tokenpeak.node.machine.state import State

ATTACKER = 65534
"""nobody"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in /tmp that every user can enter, root's own."""
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-attack-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node of this user's own."""
    with node_in(tmp_path / "state") as made:
        yield made


@pytest.fixture
def state(place: Path) -> State:
    """The state folder of a node, empty."""
    return State.make(place / "state")
