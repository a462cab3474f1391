"""Difference within nodes: it is that of least squares, and nodes take no part in it."""

import math

import numpy as np
import pytest

from tokenpeak.ranking.nodes import within_nodes

OLD_NODES, NEW_NODES = list("aaabbc"), list("abbbbd")


def sides(generator: np.random.Generator) -> tuple[list[float], list[float]]:
    """Launches of both sides, a tenth apart, on nodes that differ by a half."""
    nodes = {node: generator.normal(0, 0.5) for node in "abcd"}
    drawn = [
        [math.exp(level + nodes[node] + generator.normal(0, 0.01)) for node in names]
        for level, names in ((0.0, OLD_NODES), (0.1, NEW_NODES))
    ]
    return drawn[0], drawn[1]


def test_difference_and_error_are_those_of_least_squares() -> None:
    """With a column for each node and one for the new side."""
    old, new = sides(np.random.default_rng(3))
    found = within_nodes(old, new, OLD_NODES, NEW_NODES)
    design = np.array(
        [
            [*(name == node for node in "abcd"), side]
            for side, names in ((0, OLD_NODES), (1, NEW_NODES))
            for name in names
        ],
        dtype=float,
    )
    values = np.log([*old, *new])
    solution, squares, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    deviation = math.sqrt(float(squares[0]) / (len(values) - rank))

    assert found is not None
    assert pytest.approx(solution[-1]) == found.effect
    assert len(values) - rank == found.freedom
    assert pytest.approx(deviation) == found.deviation
    assert pytest.approx(math.sqrt(np.linalg.inv(design.T @ design)[-1, -1])) == found.launches
