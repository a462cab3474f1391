"""Node effects: intervals and winners hold whatever nodes differ by, and equal what dense matrices give."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import integrate, stats

from tokenpeak.ranking.nodes import node_agreement, node_effects, within_nodes
from tokenpeak.ranking.ties import Verdicts, winner_group
from tokenpeak.spec.sweep import MARGIN

Launches = list[tuple[str, str, float]]
DESIGNS = {
    "a search on five nodes": [("abcde"[number % 5], str(number)) for number in range(10)]
    + [("bdeacebda"[number], str(number % 3)) for number in range(9)],
    "two nodes, one of them mostly": [
        ("a", "0"),
        ("a", "0"),
        ("a", "1"),
        ("b", "1"),
        ("a", "1"),
        ("b", "2"),
        ("a", "2"),
    ],
    "four nodes at random": [("abcdbdacabccdbadbcaa"[number], str(number * 7 % 6)) for number in range(20)],
    "no node twice": [(f"node {number}", str(number % 3)) for number in range(12)],
}


def drawn(design: list[tuple[str, str]], node_sd: float, generator: np.random.Generator) -> Launches:
    """Launches of configs that are all alike: log value 5, launches differ by 1%."""
    effects = {node: generator.normal(0, node_sd) for node in sorted({node for node, _ in design})}
    return [(node, config, 5 + effects[node] + generator.normal(0, 0.01)) for node, config in design]


def verdicts(launches: Launches, *, margin: float = MARGIN) -> Verdicts:
    """The winner group of launches."""
    configs = dict.fromkeys(config for _, config, _ in launches)
    return winner_group(
        {each: [math.exp(value) for _, config, value in launches if config == each] for each in configs},
        nodes={each: [node for node, config, _ in launches if config == each] for each in configs},
        margin=margin,
    )


@pytest.mark.parametrize("node_sd", [0.0, 0.03, 0.08])
@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_of_differences_hold_the_truth_in_95_percent(design: str, node_sd: float) -> None:
    """The interval of the difference of two configs that are alike holds zero, in unbalanced designs."""
    generator = np.random.default_rng([11, round(1000 * node_sd), len(DESIGNS[design])])
    many, held = 200, 0
    for _ in range(many):
        found = node_effects(drawn(DESIGNS[design], node_sd, generator))
        assert found is not None
        held += abs(found.means["0"] - found.means["1"]) <= found.half_width("0", ["1"])

    print(f"coverage: {held / many:.3f}")
    assert held / many >= 0.95 - NormalDist().inv_cdf(0.999) * math.sqrt(0.95 * 0.05 / many)


def test_a_config_on_a_slow_node_alone_is_not_slow() -> None:
    """The node's other launches show that it is the node: the config is not worse, and its mean is as the others'."""
    generator = np.random.default_rng(19)
    design = [("fast", "a"), ("fast", "b"), ("slow", "a"), ("slow", "b")] * 3 + [("slow", "c")] * 2
    launches = [(node, config, 5 - 0.08 * (node == "slow") + generator.normal(0, 0.004)) for node, config in design]
    found = {standing.config: standing for standing in verdicts(launches).standings}
    plain = {
        standing.config: standing
        for standing in winner_group(
            {each: [math.exp(value) for _, config, value in launches if config == each] for each in "abc"}
        ).standings
    }

    assert abs(math.log(found["c"].mean / found["a"].mean)) < 0.012
    assert found["c"].standing in ("winner", "tied", "equal")
    assert math.log(plain["c"].mean / plain["a"].mean) < -0.03, "the launches alone say otherwise"


def test_configs_that_share_no_node_are_not_compared() -> None:
    """With each config on a node of its own nobody knows whether config or node is slow: no winner, a wide interval."""
    generator = np.random.default_rng(23)
    launches = [
        (node, config, centre + generator.normal(0, 0.004))
        for node, config, centre in [("x", "a", 5.08), ("y", "b", 5.0)]
        for _ in range(4)
    ]
    found = verdicts(launches)
    half = found.half_width("a", "b")

    assert found.winner is None
    assert half is not None
    assert half > 0.08


def test_one_node_changes_no_number() -> None:
    """The standings of one node are those of launches whose nodes are not known."""
    values = {"a": [8.0, 8.1, 8.05], "b": [7.9, 8.0], "c": [4.0, 4.1]}
    named = winner_group(values, nodes={config: ["x"] * len(own) for config, own in values.items()})

    assert winner_group(values) == named


def test_effects_are_those_of_dense_matrices() -> None:
    """Means, effects and half widths equal an integral over the ratio by generalized least squares of all launches."""
    launches = drawn(DESIGNS["four nodes at random"], 0.02, np.random.default_rng(29))
    nodes, configs = sorted({node for node, _, _ in launches}), sorted({config for _, config, _ in launches})
    on = np.array([[node == each for each in nodes] for node, _, _ in launches], dtype=float)
    of = np.array([[config == each for each in configs] for _, config, _ in launches], dtype=float)
    values = np.array([value for _, _, value in launches])
    freedom = len(values) - len(configs)

    def given(angle: float) -> tuple[float, np.ndarray, np.ndarray, float, float]:
        """The likelihood of a ratio, means of configs, effects, and error of the first difference."""
        ratio = math.tan(angle) ** 2
        covariance = np.eye(len(values)) + ratio * on @ on.T
        inverse = np.linalg.inv(covariance)
        information = of.T @ inverse @ of
        means = np.linalg.solve(information, of.T @ inverse @ values)
        rest = values - of @ means
        square = float(rest @ inverse @ rest) / freedom
        effects = ratio * on.T @ inverse @ rest
        logs = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(information)[1] + freedom * math.log(square)
        contrast = np.zeros(len(configs))
        contrast[:2] = 1, -1
        error = math.sqrt(square * contrast @ np.linalg.solve(information, contrast))
        return math.exp(-0.5 * logs - 60), means + effects.mean(), effects - effects.mean(), error, means[0] - means[1]

    def average(of_one: int, place: int) -> float:
        def weighted(angle: float) -> float:
            each = given(angle)
            return float(each[0] * np.atleast_1d(each[of_one])[place])

        return float(integrate.quad(weighted, 0, math.pi / 2)[0]) / whole

    whole = float(integrate.quad(lambda angle: given(angle)[0], 0, math.pi / 2)[0])
    found = node_effects(launches)
    assert found is not None
    centre, half = found.means["0"] - found.means["1"], found.half_width("0", ["1"])

    def inside(angle: float) -> float:
        weight, _, _, error, difference = given(angle)
        bounds = stats.t.cdf([(centre + side * half - difference) / error for side in (-1, 1)], freedom)
        return float(weight * (bounds[1] - bounds[0]))

    for place, config in enumerate(configs):
        assert pytest.approx(average(1, place), abs=2e-5) == found.means[config]
    for place, node in enumerate(nodes):
        assert pytest.approx(average(2, place), abs=2e-5) == found.effects[node]
    assert pytest.approx(0.95, abs=5e-4) == integrate.quad(inside, 0, math.pi / 2)[0] / whole


NOISE = 0.0125
NODE_SPREAD = 0.05
"""Boards differ by far more than launches of one of them."""


def gaining(
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
        bool(node_agreement(gaining(generator, [0.2] * nodes, launches=launches), "best", "base").apart)
        for _ in range(2000)
    )

    assert named / 2000 < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_a_node_that_gains_nothing_is_named() -> None:
    """One of five, with two launches of each config: in nearly all draws, and no other beside it."""
    generator = np.random.default_rng(7)
    found = [node_agreement(gaining(generator, [0.2] * 4 + [0.0], others=3), "best", "base").apart for _ in range(300)]

    assert 0.95 < sum("n4" in {each.node for each in apart} for apart in found) / 300
    assert 0.1 > sum({each.node for each in apart} > {"n4"} for apart in found) / 300


def test_launches_that_all_gave_the_same_show_any_difference() -> None:
    """And none where there is none."""
    alike = [(node, name, value) for node in "abc" for name, value in (("best", 12.0), ("base", 10.0)) for _ in "12"]
    other = [("d", name, 10.0) for name in ("best", "base") for _ in "12"]

    assert not node_agreement(alike, "best", "base").apart
    assert ["d"] == [each.node for each in node_agreement([*alike, *other], "best", "base").apart]


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
