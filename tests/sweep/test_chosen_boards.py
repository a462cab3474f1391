"""Facts that an inventory declares for planning, of the boards that it chooses."""

import pytest

from tokenpeak.sweep.inventory.nodes import Node
from tokenpeak.sweep.probe import declared_facts

BOARDS = [{"index": index, "name": name} for index, name in enumerate(("NVIDIA T4", "NVIDIA L4", "NVIDIA L4"))]


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({}, "3x NVIDIA L4 + NVIDIA T4"),
        ({"tokenpeak_gpus": [1, 2]}, "2x NVIDIA L4"),
        ({"tokenpeak_engine_env": {"CUDA_VISIBLE_DEVICES": "0"}}, "1x NVIDIA T4"),
        ({"tokenpeak_gpus": [2], "tokenpeak_engine_env": {"CUDA_VISIBLE_DEVICES": "0"}}, "1x NVIDIA L4"),
    ],
)
def test_declared_facts_are_of_the_chosen_boards(given: dict[str, object], label: str) -> None:
    """A plan without the node counts the boards that its trials will use."""
    facts = declared_facts(Node(name="n", variables={"tokenpeak_facts": {"gpus": BOARDS}, **given}))

    assert facts is not None
    assert label == facts.hardware
