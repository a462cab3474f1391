"""The gate on several nodes: what nodes differ by is neither a regression nor hides one."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from gate.sides import side_of
from tokenpeak.gate.comparison import Gate, compare
from tokenpeak.gate.power import power_against
from tokenpeak.gate.side import Side

FIGURE = ("ask", "concurrency=32", "output_tok_per_s")
CONFIGS = 3
OLD, NEW = ["fast", "fast", "fast", "slow", "slow"], ["fast", "slow", "slow", "slow", "slow"]
"""The old side has more launches on one node, the new one on the other."""


def drawn(nodes: Sequence[str], slow: float, draw: np.random.Generator, *, by: float = 0.0) -> Side:
    """A side whose launches vary by 1%; one node is slower by `slow`, and the first config is by `by`."""
    values = draw.normal(7, 0.01, (CONFIGS, len(nodes), 1)) - slow * (np.array(nodes) == "slow")[:, None]
    values[0] -= by
    return side_of("side", [FIGURE], list(values), [nodes] * CONFIGS)


def gated(old: Side, new: Side) -> Gate:
    """The gate with the usual margin."""
    return compare(old, new, margin=0.02)


@pytest.mark.parametrize("slow", [0.0, *(pytest.param(slow, marks=pytest.mark.e2e) for slow in (0.03, 0.08))])
def test_equal_sides_on_unequal_nodes_are_called_equal(slow: float) -> None:
    """At most 5% of gates alarm, though the new side was mostly on the slow node."""
    draw = np.random.default_rng([41, round(100 * slow)])
    many = 100
    alarms = 0
    for _ in range(many):
        found = gated(drawn(OLD, slow, draw), drawn(NEW, slow, draw))
        alarms += bool(found.of("regressed") or found.of("improved"))

    print(f"false alarms: {alarms} of {many}")
    assert alarms / many <= 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / many)


@pytest.mark.e2e
def test_a_regression_is_found_where_nodes_differ_by_more() -> None:
    """Nodes that differ by 8% hide no regression of the size that is stated beforehand."""
    draw = np.random.default_rng(47)
    many, found = 200, 0
    nodes = ["fast", "fast", "fast", "slow", "slow", "slow"]
    for _ in range(many):
        before = drawn(nodes, 0.08, draw)
        power = power_against(before, margin=0.02)
        stated = power.smallest(power.figures[0], len(nodes))
        assert stated is not None
        assert stated < 0.08, "what nodes differ by is not counted as noise"
        gate = gated(before, drawn(nodes, 0.08, draw, by=-math.log1p(-stated)))
        found += "config 0" in {each.config for each in gate.of("regressed")}

    print(f"found: {found} of {many}")
    assert found / many >= 0.95 - 2.33 * math.sqrt(0.05 * 0.95 / many)
