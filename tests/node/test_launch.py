"""Borrowing a node and giving it back, with real processes."""

from tests.node.conftest import Node


def test_ready(node: Node) -> None:
    """A launch ends with the engine's first real completion."""
    answer = node.run("launch", node.launch_request())

    print(answer)
    assert answer["ready"] is True
