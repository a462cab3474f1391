"""The gate's two guarantees, judged on recorded landscapes: no more than 5% false alarms, and what it says it finds."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from gate.noise_model import noise_model_of, recorded
from gate.sides import side_of
from tokenpeak.gate.comparison import Gate, compare
from tokenpeak.gate.power import power_against
from tokenpeak.gate.side import Side

MARGIN = 0.02
LANDSCAPES = ("landscape-cpu", "requests-sim")


def gated(old: Side, new: Side) -> Gate:
    """Both sides, compared by all figures of all configs together."""
    return compare(old, new, margin=MARGIN)


def beyond(share: float, many: int) -> float:
    """How far a share that is true lies from the one seen in so many at most, in 99%."""
    return 2.33 * math.sqrt(share * (1 - share) / many)


def is_alarm(found: Gate) -> bool:
    """Whether anything is said to have changed."""
    return bool(found.of("regressed") or found.of("improved"))


@pytest.mark.parametrize(
    ("landscape", "configs", "old", "new", "many"),
    [
        ("landscape-cpu", 4, 4, 4, 100),
        *(
            pytest.param(landscape, *design, 1000 if design[0] < 40 else 200, marks=pytest.mark.e2e)
            for landscape in LANDSCAPES
            for design in ((1, 3, 3), (1, 5, 5), (4, 3, 5), (4, 5, 5), (12, 4, 4), (40, 3, 3))
        ),
    ],
)
def test_equal_sides_by_the_noise_model_are_called_equal(
    landscape: str, configs: int, old: int, new: int, many: int
) -> None:
    """By noise as it was recorded, with blocks and unequal configs, at most 5% of gates over equal sides alarm."""
    model = noise_model_of(recorded(landscape))
    draw = np.random.default_rng([29, configs, old, new])
    alarms = 0
    for _ in range(many):
        scales = model.configs(configs, draw)
        sides = [model.launches(scales, count, draw) for count in (old, new)]
        alarms += is_alarm(
            gated(*(side_of(str(number), model.figures, list(side)) for number, side in enumerate(sides)))
        )

    print(f"false alarms: {alarms} of {many}")
    assert alarms / many <= 0.05 + beyond(0.05, many)


@pytest.mark.parametrize(
    ("landscape", "configs", "old", "new", "many"),
    [
        ("landscape-cpu", 4, 4, 4, 50),
        *(
            pytest.param(landscape, *design, 500, marks=pytest.mark.e2e)
            for landscape in LANDSCAPES
            for design in ((1, 5, 5), (4, 4, 4), (4, 3, 8), (12, 5, 5))
        ),
    ],
)
def test_a_regression_of_the_stated_size_is_found(landscape: str, configs: int, old: int, new: int, many: int) -> None:
    """A regression of the size that was stated beforehand, planted in one figure of one config, is found in 95%."""
    model = noise_model_of(recorded(landscape))
    draw = np.random.default_rng([31, configs, old, new])
    found = 0
    for _ in range(many):
        scales = model.configs(configs, draw)
        before = side_of("old", model.figures, list(model.launches(scales, old, draw)))
        power = power_against(before, margin=MARGIN)
        figure = power.figures[draw.integers(len(power.figures))]
        stated = power.smallest(figure, new)
        assert stated is not None
        place = (figure.load.workload, figure.load.level, figure.metric)
        config, column = int(draw.integers(configs)), model.figures.index(place)
        values = model.launches(scales, new, draw)
        worse = math.log1p(-stated) if figure.metric == "output_tok_per_s" else math.log1p(stated)
        values[config, :, column] += worse
        after = side_of("new", model.figures, list(values))
        regressed = {(each.config, each.load, each.metric) for each in gated(before, after).of("regressed")}
        found += (f"config {config}", figure.load, figure.metric) in regressed

    print(f"found: {found} of {many}")
    assert found / many >= 0.95 - beyond(0.95, many)


FIGURE = ("ask", "concurrency=32", "output_tok_per_s")
CONFIGS = 3
OLD, NEW = ["fast", "fast", "fast", "slow", "slow"], ["fast", "slow", "slow", "slow", "slow"]
"""The old side has more launches on one node, the new one on the other."""


def on_nodes(nodes: Sequence[str], slow: float, draw: np.random.Generator, *, by: float = 0.0) -> Side:
    """A side whose launches vary by 1%; one node is slower by `slow`, and the first config is by `by`."""
    values = draw.normal(7, 0.01, (CONFIGS, len(nodes), 1)) - slow * (np.array(nodes) == "slow")[:, None]
    values[0] -= by
    return side_of("side", [FIGURE], list(values), [nodes] * CONFIGS)


@pytest.mark.parametrize("slow", [0.0, *(pytest.param(slow, marks=pytest.mark.e2e) for slow in (0.03, 0.08))])
def test_equal_sides_on_unequal_nodes_are_called_equal(slow: float) -> None:
    """At most 5% of gates alarm, though the new side was mostly on the slow node."""
    draw = np.random.default_rng([41, round(100 * slow)])
    many = 100
    alarms = 0
    for _ in range(many):
        found = gated(on_nodes(OLD, slow, draw), on_nodes(NEW, slow, draw))
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
        before = on_nodes(nodes, 0.08, draw)
        power = power_against(before, margin=0.02)
        stated = power.smallest(power.figures[0], len(nodes))
        assert stated is not None
        assert stated < 0.08, "what nodes differ by is not counted as noise"
        gate = gated(before, on_nodes(nodes, 0.08, draw, by=-math.log1p(-stated)))
        found += "config 0" in {each.config for each in gate.of("regressed")}

    print(f"found: {found} of {many}")
    assert found / many >= 0.95 - 2.33 * math.sqrt(0.05 * 0.95 / many)
