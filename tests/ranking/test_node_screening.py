"""Node screening in virtual time: which nodes of a drawn group are named, how often wrongly, and for which cause.

The nodes are drawn by this module alone: speeds second by second, with noise of 1.25% between launches (those of the
recorded H100 landscape differ by about 1%), of 0.5% between healthy nodes' silicon, and of 3% between seconds.
"""

import math
import random
from dataclasses import dataclass

import pytest

from tokenpeak.ranking.node_outliers import node_outliers
from tokenpeak.results.node_launch import NodeLaunch, fall_of
from tokenpeak.results.node_screening import NodeScreening, screen

LAUNCH_NOISE, SILICON, SECOND_NOISE = 0.0125, 0.005, 0.03
RUN_S = 120
MARGIN = 0.02
REPETITIONS = 100


@dataclass(frozen=True, kw_only=True)
class VirtualNode:
    """What is wrong with a node: `slow` of its speed is missing; from `hot_from` of a run on it loses `falls` more."""

    name: str
    slow: float = 0.0
    falls: float = 0.0
    hot_from: float = 1.0
    power_limit_w: float = 700.0


def launched(node: VirtualNode, luck: float, lots: random.Random, *, sensor: bool = True) -> NodeLaunch:
    """One launch: two minutes of tokens, second by second, and what the boards' sensors say where there are any."""
    level = 5000 * (1 - node.slow) * (1 + luck) * lots.lognormvariate(0, LAUNCH_NOISE)
    seconds = []
    for second in range(RUN_S):
        beyond = max(0.0, second / RUN_S - node.hot_from) / (1 - node.hot_from) if node.hot_from < 1 else 0.0
        # It takes a board a fifth of the rest of the run to come to its lower clock.
        lost = node.falls * min(1.0, beyond / 0.2)
        ramp = min(1.0, (second + 1) / 3, (RUN_S - second) / 3)
        seconds.append(level * (1 - lost) * ramp * (1 + lots.gauss(0, SECOND_NOISE)))
    clock = 1980 * (1 - node.slow) * (1 - node.falls * (1 - node.hot_from))
    return NodeLaunch(
        node=node.name,
        speed=sum(seconds) / RUN_S,
        fall=fall_of(seconds),
        clock_mhz=clock + lots.gauss(0, 10) if sensor else None,
        temperature_c=(88 if node.falls else 66) + lots.gauss(0, 2) if sensor else None,
        slowed=0.0 if sensor else None,
    )


def screened(nodes: list[VirtualNode], seed: int, *, launches: int = 2, sensor: bool = True) -> NodeScreening:
    """The screening of nodes, each with its own luck in silicon."""
    lots = random.Random(f"virtual nodes {seed}")
    luck = {node.name: lots.gauss(0, SILICON) for node in nodes}
    made = [launched(node, luck[node.name], lots, sensor=sensor) for _ in range(launches) for node in nodes]
    return screen(made, {node.name: node.power_limit_w for node in nodes}, margin=MARGIN)


def healthy(count: int) -> list[VirtualNode]:
    """So many nodes with nothing wrong."""
    return [VirtualNode(name=f"node-{number:02}") for number in range(count)]


ILL = {
    "node-03": VirtualNode(name="node-03", slow=0.08, power_limit_w=400),
    "node-11": VirtualNode(name="node-11", slow=0.08),
    "node-17": VirtualNode(name="node-17", falls=0.12, hot_from=0.3),
}
TWENTY = [ILL.get(node.name, node) for node in healthy(20)]


def test_two_slow_boards_and_one_that_throttles_are_named_among_twenty() -> None:
    """All three in 100 of 100 repetitions (399 of 400), the one that throttles as such; a healthy one in 5 at most."""
    found = [screened(TWENTY, seed) for seed in range(REPETITIONS)]
    named = [{node.node: node.verdict for node in each.outliers} for each in found]

    assert REPETITIONS == sum(set(ILL) <= set(each) for each in named)
    assert REPETITIONS == sum("throttles" == each["node-17"] for each in named)
    assert sum(bool(set(each) - set(ILL)) for each in named) <= 0.05 * REPETITIONS


@pytest.mark.parametrize(("nodes", "launches"), [(20, 2), (20, 1), (12, 2), (6, 2), (4, 3), (3, 2), (3, 1), (2, 3)])
@pytest.mark.e2e
def test_healthy_groups_raise_an_alarm_in_one_of_twenty_at_most(nodes: int, launches: int) -> None:
    """Over 400 groups of any size the rate stays within 5%, but for the chance of this many draws (7.2%)."""
    alarms = sum(bool(screened(healthy(nodes), 1000 + seed, launches=launches).outliers) for seed in range(400))

    assert alarms / 400 <= 0.072


def test_a_cause_is_named_where_the_nodes_differ() -> None:
    """The power limit of the slow board, the heat of the one that throttles; for the third no more than shows."""
    sentences = {node.node: node.sentence for node in screened(TWENTY, 1).outliers}

    assert "slow: power limit 400 W, 700 W on the others; clock 18" in sentences["node-03"]
    assert "power limit" not in sentences["node-11"]
    assert "node-17 throttles" in sentences["node-17"]
    assert "% during the run, by 0% on the others" in sentences["node-17"]
    assert "°C, 6" in sentences["node-17"]


def test_a_slow_board_without_telemetry_is_named_without_a_cause() -> None:
    """Nodes whose boards nothing reads are judged by their speed alone, and no cause is made up."""
    nodes = [VirtualNode(name=node.name, slow=0.08 if node.name == "node-11" else 0.0) for node in healthy(20)]
    (outlier,) = screened(nodes, 3, sensor=False).outliers

    assert "node-11" == outlier.node
    assert outlier.sentence.endswith("% slow: nothing that was recorded shows why")


def test_what_the_driver_says_names_a_node_in_any_group() -> None:
    """A board that is held back in half of the samples throttles, also of two nodes; where all are, none does."""

    def pair(*shares: float) -> NodeScreening:
        made = [NodeLaunch(node=f"n{number}", speed=100.0, slowed=share) for number, share in enumerate(shares)]
        return screen(made, {}, margin=MARGIN)

    assert ["n1"] == [node.node for node in pair(0.0, 0.5).outliers]
    assert "in 50% of the samples, in 0% on the others" in pair(0.0, 0.5).outliers[0].sentence
    assert () == pair(0.6, 0.5, 0.7).outliers


def test_of_two_nodes_none_is_named_by_its_speed() -> None:
    """That they differ is said, with the cause that shows, and that nobody can say which one is unusual."""
    nodes = [VirtualNode(name="a"), VirtualNode(name="b", slow=0.3, power_limit_w=400)]
    found = screened(nodes, 5, launches=3)

    assert () == found.outliers
    assert ["undecided", "undecided"] == [node.verdict for node in found.nodes]
    assert any("power limit 400 W, 700 W on the others" in line for line in found.lines)
    assert "Of two nodes, nobody can say which one is unusual" in found.power_words


def test_three_nodes_of_one_launch_say_how_little_they_show() -> None:
    """A node 8% slow is not named, and the group says how slow it would have to be; further launches name it."""
    nodes = [*healthy(2), VirtualNode(name="node-02", slow=0.08)]
    once = [screened(nodes, seed, launches=1) for seed in range(REPETITIONS)]
    often = [screened(nodes, seed, launches=4) for seed in range(REPETITIONS)]

    assert sum(bool(each.outliers) for each in once) < 0.3 * REPETITIONS
    assert all(each.detectable is None or each.detectable > MARGIN for each in once)
    assert "3 nodes with 1 launch each show " in once[0].power_words
    assert sum(["node-02"] == [node.node for node in each.outliers] for each in often) >= 0.95 * REPETITIONS


def test_what_is_said_to_be_detectable_is_detected() -> None:
    """Of nodes as slow as the group says that it shows, about half are named; of much slower ones all."""
    shown = [screened(healthy(12), seed).detectable or 1.0 for seed in range(REPETITIONS)]
    typical = sorted(shown)[REPETITIONS // 2]

    def named(slow: float) -> int:
        nodes = [*healthy(11), VirtualNode(name="node-11", slow=slow)]
        return sum(["node-11"] == [node.node for node in screened(nodes, seed).outliers] for seed in range(REPETITIONS))

    assert 20 <= named(typical) <= 90
    assert named(2.5 * typical) >= 97


def test_a_fast_node_is_said_and_makes_no_other_slow() -> None:
    """One of three that is 10% faster is no reason to exclude the two that are as usual."""
    nodes = [*healthy(2), VirtualNode(name="node-02", slow=-0.10)]
    found = screened(nodes, 7, launches=4)

    assert () == found.outliers
    assert {"node-00": "usual", "node-01": "usual", "node-02": "fast"} == {
        node.node: node.verdict for node in found.nodes
    }


def test_a_node_that_gave_no_figure_is_said_with_its_reason() -> None:
    """A launch that failed on one node is no speed, and does not spoil the others' comparison."""
    made = [NodeLaunch(node=f"n{number}", speed=100.0 + number) for number in range(6)]
    found = screen([*made, NodeLaunch(node="n9", speed=None, failure="port in use")], {}, margin=MARGIN)

    assert "n9 gave no figure: port in use" in found.lines
    assert "6 nodes with 1 launch each" in found.power_words


def test_the_interval_of_a_usual_node_holds_one() -> None:
    """Of healthy nodes' intervals 95% hold the group's median, roughly: each is as wide as nodes differ."""
    nodes = [node for seed in range(40) for node in screened(healthy(20), seed).nodes]
    holds = [node for node in nodes if node.low is not None and node.high is not None and node.low <= 1 <= node.high]

    assert 0.93 <= len(holds) / len(nodes) <= 0.98


def test_outliers_do_not_hide_each_other() -> None:
    """Two nodes that are equally slow are both named, where the first alone would widen the spread for the second."""
    lots = random.Random(4)
    speeds = {f"{number:02}": [math.log(100) + lots.gauss(0, 0.01)] for number in range(14)}
    speeds |= {"30": [math.log(80)], "31": [math.log(80)]}

    assert {"30", "31"} == set(node_outliers(speeds, margin=0.02, false_alarms=0.05).low)
