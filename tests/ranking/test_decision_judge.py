"""Decision, judged by sweeps whose truth is known: NumPy draws launches, and counts how often the decision is right.

Nothing here shares code with what is judged: shares within a limit are counted by the binomial sum, launches are
normal in the logarithm, and a search is one launch of each config, three of what runs now, and the leader again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import comb

import numpy as np
import pytest

from tokenpeak.ranking.comparisons import Candidate
from tokenpeak.ranking.decision import Decision, decide

SWEEPS = 1000
Floats = np.ndarray
Launches = Callable[[np.random.Generator, Floats, float], list[list[float]]]


def launches_of(number: int) -> Launches:
    """Every config launched so often."""

    def launched(draw: np.random.Generator, truth: Floats, spread: float) -> list[list[float]]:
        return [list(np.exp(np.log(own) + draw.normal(0, spread, number))) for own in truth]

    return launched


def searched(draw: np.random.Generator, truth: Floats, spread: float) -> list[list[float]]:
    """Each config once, the first of them (what runs now) three times, and the leader until it has three."""

    def launch(place: int) -> float:
        return float(truth[place] * np.exp(draw.normal(0, spread)))

    found = [[launch(place) for _ in range(1 if place else 3)] for place in range(len(truth))]
    for _ in range(6):
        order = np.argsort([-np.log(own).mean() for own in found])
        again, enough = (order[0], 3) if order[0] else (order[1], 2)
        if len(found[again]) >= enough:
            break
        found[again].append(launch(int(again)))
    return found


@dataclass
class Count:
    """What a judge counts over sweeps."""

    wrong: int = 0
    """Run said of a config that is no better than what runs now."""
    covered: list[bool] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    near: list[bool] = field(default_factory=list)
    """Of sweeps whose difference is above what they say they show: the config is within 2% of the best."""
    shown: list[bool] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, decision: Decision, truth: Floats) -> None:
        """Judge one decision."""
        self.outcomes[decision.outcome] = self.outcomes.get(decision.outcome, 0) + 1
        assert decision.config is not None
        own = truth[int(decision.config)]
        self.wrong += decision.outcome == "run" and own <= truth[0]
        if decision.gain is not None and decision.gain.low is not None and decision.gain.high is not None:
            gain = truth[int(decision.gain.config)] / truth[0]
            self.covered.append(decision.gain.low <= gain <= decision.gain.high)
        for each in decision.measured.standings:
            half = decision.measured.half_width(each.config)
            if half is not None:
                self.own.append(abs(np.log(each.mean / truth[int(each.config)])) <= half)
        if decision.distinguishable is not None and truth.max() / truth[0] - 1 >= decision.distinguishable:
            self.near.append(own >= 0.98 * truth.max())
            self.shown.append(decision.outcome == "run")

    @property
    def line(self) -> str:
        """The figures as a row."""
        shares = (self.covered, self.own, self.near, self.shown)
        figures = "  ".join(f"{np.mean(each):.3f} ({len(each)})" if each else "–" for each in shares)
        return f"wrong {self.wrong / SWEEPS:.3f}  gain, own, near, shown: {figures}  {self.outcomes}"


def counted(truth: Sequence[float], spread: float, how: Launches, seed: int) -> Count:
    """A thousand sweeps of configs with these true values, of which the first is what runs now."""
    draw, count, true = np.random.default_rng(seed), Count(), np.array(truth)
    for _ in range(SWEEPS):
        candidates = [
            Candidate(config=str(place), launches=own, changes=place, is_current=place == 0)
            for place, own in enumerate(how(draw, true, spread))
        ]
        count.add(decide(candidates), true)
    return count


@pytest.mark.parametrize("number", [1, 3])
def test_equal_configs(number: int) -> None:
    """Six configs alike: run is said in 5% at most, and never of one launch each."""
    count = counted([100.0] * 6, 0.02, launches_of(number), seed=number)
    print(f"equal, {number} launches: {count.line}")

    assert count.wrong <= (0 if number == 1 else 0.05 * SWEEPS)
    assert "none_holds" not in count.outcomes
    if number == 3:
        assert 0.93 <= np.mean(count.own) <= 0.97
        assert 0.93 <= np.mean(count.covered) <= 0.99


@pytest.mark.parametrize("how", [searched, launches_of(3)], ids=["search", "three"])
def test_one_better_config(how: Launches) -> None:
    """One of six is better: found where the sweep says that it shows such a difference, and bounded truly."""
    covered: list[bool] = []
    own: list[bool] = []
    for seed, (gain, spread) in enumerate(product((0.01, 0.03, 0.10), (0.01, 0.02, 0.05))):
        count = counted([100.0] * 5 + [100 * (1 + gain)], spread, how, seed)
        print(f"+{gain:.0%}, spread {spread:.0%}: {count.line}")
        covered += count.covered
        own += count.own

        assert count.wrong <= 0.05 * SWEEPS
        # A handful of sweeps, whose launches happened to be alike, says nothing of a share.
        if len(count.near) >= 50:
            assert np.mean(count.near) >= 0.95
            assert np.mean(count.shown) >= 0.93
    print(f"coverage of gains {np.mean(covered):.3f}, of configs {np.mean(own):.3f}")

    assert 0.93 <= np.mean(covered) <= 0.97
    assert 0.93 <= np.mean(own) <= 0.97


def confidence(within: int, sent: int, share: float) -> float:
    """That so many of all requests are within a limit: one minus the chance of as few beyond it if one less were."""
    return 1 - sum(
        comb(sent, beyond) * (1 - share) ** beyond * share ** (sent - beyond) for beyond in range(sent - within + 1)
    )


@pytest.mark.parametrize("requests", [100, 400])
def test_second_best_holds_the_slo(requests: int) -> None:
    """The best breaks its p95 in truth (90% within), the second best holds it: that one is run."""
    draw, truth, within = np.random.default_rng(requests), np.array([100.0] * 4 + [110.0, 120.0]), [0.99] * 5 + [0.90]
    wrong, right = 0, 0
    for _ in range(SWEEPS):
        candidates = []
        for place, own in enumerate(launches_of(3)(draw, truth, 0.02)):
            held = draw.binomial(requests, within[place], 3)
            is_met = bool((held >= 0.95 * requests).all())
            is_proven = is_met and confidence(int(held.sum()), 3 * requests, 0.95) >= 0.95
            candidates.append(
                Candidate(
                    config=str(place),
                    launches=own,
                    hold="held" if is_proven else "not_proven" if is_met else "broken",
                    changes=place,
                    is_current=place == 0,
                )
            )
        decision = decide(candidates)
        wrong += decision.outcome == "run" and decision.config != "4"
        right += decision.config == "4"
    print(f"SLO, {requests} requests: wrong {wrong / SWEEPS:.3f}, right {right / SWEEPS:.3f}")

    assert wrong <= 0.05 * SWEEPS
    assert right >= 0.95 * SWEEPS


@pytest.mark.parametrize("spread", [0.01, 0.02, 0.05])
def test_two_workloads_that_disagree(spread: float) -> None:
    """Four configs tie under the objective's load; under another, one alone gives twice as much: that one is run."""
    draw, second = np.random.default_rng(round(1000 * spread)), np.array([50.0, 100.0, 50.0, 50.0])
    right, opposite = 0, 0
    for _ in range(SWEEPS):
        own, other = (searched(draw, truth, spread) for truth in (np.full(4, 100.0), second))
        number = [len(launches) for launches in own]
        decision = decide(
            [
                Candidate(
                    config=str(place),
                    launches=own[place],
                    workloads={"other": (other[place] * 3)[: number[place]]},
                    changes=place,
                    is_current=place == 0,
                )
                for place in range(4)
            ]
        )
        right += (decision.outcome, decision.config) == ("run", "1")
        opposite += decision.outcome == "run" and decision.config != "1"
    print(f"two workloads, spread {spread:.0%}: right {right / SWEEPS:.3f}, another {opposite / SWEEPS:.3f}")

    assert opposite <= 0.05 * SWEEPS
    assert right >= 0.93 * SWEEPS


def test_a_class_is_one_config() -> None:
    """Mates that cannot differ are one candidate with the launches of all: none of them wins over what runs now."""
    draw, wrong, ahead = np.random.default_rng(5), 0, 0
    for _ in range(SWEEPS):
        mates = [100 * np.exp(draw.normal(0, 0.02, 5)).tolist()[0] for _ in range(5)]
        other = searched(draw, np.array([100.0, 60.0, 60.0]), 0.02)
        candidates = [Candidate(config="0", launches=[*other[0], *mates], is_current=True)]
        candidates += [Candidate(config=str(place), launches=other[place], changes=1) for place in (1, 2)]
        decision = decide(candidates)
        wrong += decision.outcome == "run"
        ahead += decision.outcome != "keep"

    assert (0, 0) == (wrong, ahead)


def test_precision_whose_answers_were_not_compared() -> None:
    """The faster config is never the one that is run, and always named as faster."""
    draw, truth = np.random.default_rng(6), np.array([100.0, 100.0, 100.0, 110.0, 140.0])
    right = 0
    for _ in range(SWEEPS):
        decision = decide(
            [
                Candidate(
                    config=str(place),
                    launches=own,
                    answers="not_compared" if place == 4 else "same",
                    changes=place,
                    is_current=place == 0,
                )
                for place, own in enumerate(launches_of(3)(draw, truth, 0.02))
            ]
        )
        assert decision.config != "4"
        assert [faster.config for faster in decision.faster] == ["4"]
        right += decision.config == "3"
    print(f"precision: right {right / SWEEPS:.3f}")

    assert right >= 0.95 * SWEEPS
