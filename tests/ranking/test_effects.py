"""Effects come out as they went in, and what is not estimable is not filled in."""

import itertools

import numpy as np
import pytest

from tokenpeak.ranking.effects import effects

AXES = {"seqs": ["8", "16", "64"], "eager": ["false", "true"], "dtype": ["a", "b"]}


def trials(noise: float, keep: float = 1.0, seed: int = 1) -> list[tuple[dict[str, str], float]]:
    """Seqs 64 gives +20% over 8, eager costs 10% and 10% more with 64; dtype does nothing."""
    generator = np.random.default_rng(seed)
    found = []
    for values in itertools.product(*AXES.values()):
        choices = dict(zip(AXES, values, strict=True))
        level = {"8": 0.0, "16": 0.1, "64": np.log(1.2)}[choices["seqs"]]
        level += np.log(0.9) if choices["eager"] == "true" else 0.0
        level += np.log(0.9) if choices["eager"] == "true" and choices["seqs"] == "64" else 0.0
        launches = 100 * np.exp(level + generator.normal(0, noise, 3))
        found += [(choices, float(value)) for value in launches if generator.random() < keep]
    return found


def test_main_effects_and_interactions_are_found() -> None:
    """What matters is significant, what does not is not, and estimates are within their intervals of the truth."""
    found = effects(trials(0.01))
    p_values = {importance.axes: importance.p_value for importance in found.importance}
    eager = next(effect for effect in found.main if effect.values == ("true",))

    assert p_values["seqs",] < 0.02 and p_values["eager",] < 1e-3 and p_values["eager", "seqs"] < 1e-3
    assert p_values["dtype",] > 0.01 and p_values["dtype", "seqs"] > 0.01
    assert pytest.approx(np.sqrt(0.9 * 0.9 ** (1 / 3)), rel=0.01) == eager.ratio


def test_confounded_axes_are_not_estimable() -> None:
    """Two axes that always changed together cannot be separated, and are not."""
    together = [
        ({"a": "1", "b": "x", "c": "p"}, 1.0),
        ({"a": "2", "b": "y", "c": "p"}, 2.0),
        ({"a": "1", "b": "x", "c": "q"}, 1.1),
        ({"a": "2", "b": "y", "c": "q"}, 2.3),
    ]
    found = {effect.axes + effect.values: effect for effect in effects(together).main}

    assert not found["a", "1"].estimable and not found["b", "y"].estimable
    assert found["c", "p"].estimable


def test_what_remains_of_an_axis_is_compared() -> None:
    """A value that came only with another axis's is compared with none, the other two with each other."""
    made = [({"seqs": seqs, "dtype": "b"}, value) for seqs, value in (("16", 2.0), ("64", 3.0), ("64", 3.3))]
    found = effects([*made, ({"seqs": "8", "dtype": "a"}, 1.0)])
    main = {effect.axes + effect.values: effect for effect in found.main}

    assert ("16", "64") == main["seqs", "64"].among
    assert pytest.approx((3.0 * 3.3) ** 0.25 / 2**0.5) == main["seqs", "64"].ratio
    assert not main["seqs", "8"].estimable
    assert not main["dtype", "a"].estimable


def test_missing_cells_leave_an_interaction_open() -> None:
    """An interaction whose cell was never launched is not estimable; the rest of the table may be."""
    some = [trial for trial in trials(0.01) if (trial[0]["seqs"], trial[0]["eager"]) != ("64", "true")]
    pairs = [effect for effect in effects(some).pairs if effect.axes == ("eager", "seqs")]

    assert {False} == {effect.estimable for effect in pairs if effect.values == ("true", "64")}


def test_launches_again_do_not_hide_what_the_model_leaves_out() -> None:
    """Twenty launches of each config do not narrow a main effect's interval where the axes act together."""
    once = [({"a": str(a), "b": str(b)}, 1.0 + 0.5 * (a == b == 1)) for a in range(2) for b in range(3)]
    often = [(choices, value * (1 + 0.001 * launch)) for choices, value in once for launch in range(20)]
    first, second = effects(once).main[0], effects(often).main[0]

    assert first.low is not None and second.low is not None
    assert pytest.approx(first.low, rel=0.02) == second.low


def test_an_axis_that_some_configs_do_not_have() -> None:
    """Draft tokens only with speculation: all configs show the batch; a config outside the grid shows nothing."""
    made = [({"k": k, "batch": batch}, 1.0 + (batch == "b")) for k in ("1", "3") for batch in ("a", "b")]
    made += [({"batch": batch}, 3.0 + 3.0 * (batch == "b")) for batch in ("a", "b")]
    found = {effect.values: effect for effect in effects([*made, ({}, 100.0)]).main}

    assert 3 == found["a",].launches
    assert found["a",].ratio is not None and pytest.approx(2**-0.5) == found["a",].ratio
    assert found["1",].ratio is not None and pytest.approx(1.0) == found["1",].ratio
