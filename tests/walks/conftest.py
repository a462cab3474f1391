"""Readers and nodes of the walks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docs.reader import Reader, reader
from tests.faults.conftest import boot_node
from tests.rig.conftest import RigNode, why_no_rig
from tests.sim.running_engine import StartEngine, engines

Boot = Callable[[str, int], RigNode]


@pytest.fixture
def somebody() -> Iterator[Reader]:
    """A reader with nothing but the wheel."""
    with reader() as made:
        yield made


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """Starts simulated engines."""
    yield from engines(tmp_path)


@pytest.fixture
def boot(somebody: Reader) -> Iterator[Boot]:
    """Boots nodes of the rig that let the reader in; all are down after the walk."""
    if reason := why_no_rig():
        pytest.skip(reason)
    nodes: list[RigNode] = []

    def up(name: str, last: int) -> RigNode:
        nodes.append(boot_node(somebody.place, name, last, "6g"))
        if len(nodes) == 1:
            somebody.know(nodes[0].key)
        return nodes[-1]

    yield up
    for node in nodes:
        node.testnode("down")
