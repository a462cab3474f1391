"""Which nodes gain otherwise: judged by drawing launches of which it is known, and by SciPy's own test of two nodes."""

import math

import numpy as np
import pytest
from scipy import stats

from tokenpeak.ranking.nodes import node_agreement

NOISE = 0.0125
NODE_SPREAD = 0.05
"""Boards differ by far more than launches of one of them."""


def drawn(
    generator: np.random.Generator, gains: list[float], *, launches: int = 2, others: int = 0
) -> list[tuple[str, str, float]]:
    """Launches of `best` and `base` on as many nodes as there are gains, and of `others` more configs."""
    found = []
    for index, gain in enumerate(gains):
        speed = 1000 * math.exp(generator.normal(0, NODE_SPREAD))
        configs = {"base": 1.0, "best": 1 + gain} | {f"c{number}": 1 + number / 10 for number in range(others)}
        for name, factor in configs.items():
            drawn_speeds = speed * factor * np.exp(generator.normal(0, NOISE, launches))
            found += [(f"n{index}", name, float(each)) for each in drawn_speeds]
    return found


@pytest.mark.parametrize(("nodes", "launches"), [(2, 2), (5, 2), (12, 3)])
def test_nodes_that_gain_alike_are_named_in_one_of_twenty_sweeps(nodes: int, launches: int) -> None:
    """However slow some of them are: 5% of 2,000 draws, within four standard errors."""
    generator = np.random.default_rng(nodes)
    named = sum(
        bool(node_agreement(drawn(generator, [0.2] * nodes, launches=launches), "best", "base").apart)
        for _ in range(2000)
    )

    assert named / 2000 < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_a_node_that_gains_nothing_is_named() -> None:
    """One of five, with two launches of each config: in nearly all draws, and no other beside it."""
    generator = np.random.default_rng(7)
    found = [node_agreement(drawn(generator, [0.2] * 4 + [0.0], others=3), "best", "base").apart for _ in range(300)]

    assert 0.95 < sum("n4" in {each.node for each in apart} for apart in found) / 300
    assert 0.1 > sum({each.node for each in apart} > {"n4"} for apart in found) / 300


def test_two_nodes_are_judged_as_by_a_linear_model() -> None:
    """With two nodes and two configs the interaction has one degree of freedom: the ANOVA's F, at 5%."""
    generator = np.random.default_rng(3)
    for _ in range(200):
        launches = drawn(generator, [0.2, 0.2 + generator.normal(0, 0.04)], launches=3)
        logs = {
            (node, config): np.log([value for at, name, value in launches if (at, name) == (node, config)])
            for node in ("n0", "n1")
            for config in ("best", "base")
        }
        contrast = sum(
            values.mean() * (1 if (node, config) in {("n0", "best"), ("n1", "base")} else -1)
            for (node, config), values in logs.items()
        )
        residual = sum(((values - values.mean()) ** 2).sum() for values in logs.values()) / 8
        f = contrast**2 / (4 / 3) / residual
        apart = node_agreement(launches, "best", "base").apart
        # Two nodes are named together, each with half of the false alarms: as strict as F at 2.5%.
        assert bool(apart) == (f > stats.f.ppf(0.975, 1, 8))
        assert len(apart) in (0, 2)


def test_launches_that_all_gave_the_same_show_any_difference() -> None:
    """And none where there is none."""
    alike = [(node, name, value) for node in "abc" for name, value in (("best", 12.0), ("base", 10.0)) for _ in "12"]
    other = [("d", name, 10.0) for name in ("best", "base") for _ in "12"]

    assert not node_agreement(alike, "best", "base").apart
    assert ["d"] == [each.node for each in node_agreement([*alike, *other], "best", "base").apart]
