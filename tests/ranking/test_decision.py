"""Decision: each outcome and what decides in a group, on small exact cases."""

from collections.abc import Sequence
from typing import Any

import pytest

from tokenpeak.ranking.comparisons import Candidate
from tokenpeak.ranking.decision import Decision, decide
from tokenpeak.ranking.decision_words import faster_words, headline, plain, reasons

NOW, FAST, SLOW = (100.0, 101.0, 99.0), (120.0, 121.0, 119.0), (80.0, 81.0, 79.0)
NAMES = {name: name.upper() for name in ("now", "fast", "slow", "near", "eight")}


def candidate(config: str, launches: Sequence[float], **how: Any) -> Candidate:
    """A candidate; `now` is what runs."""
    return Candidate(
        config=config, launches=launches, **{"is_current": config == "now", "changes": config != "now", **how}
    )


def decided(*candidates: Candidate, **how: Any) -> Decision:
    """The decision among them and what runs now."""
    return decide(candidates, **how)


def said(decision: Decision) -> str:
    """Headline and reasons as one text."""
    words = [headline(decision, "production"), *reasons(decision, "production", higher_is_better=True, launch_s=300.0)]
    words += faster_words(decision.faster, higher_is_better=True)
    return ". ".join(plain(each, NAMES) for each in words)


def test_a_config_that_is_shown_ahead_is_run() -> None:
    """Beyond margin and noise, with its gain and bounds."""
    found = decided(candidate("now", NOW), candidate("fast", FAST), candidate("slow", SLOW))

    assert ("run", "fast", "alone") == (found.outcome, found.config, found.merit)
    assert found.gain is not None
    assert found.gain.ratio == pytest.approx(1.2, abs=0.002)
    assert found.gain.low is not None
    assert 1.15 < found.gain.low < 1.2
    assert said(found).startswith("Run FAST. +20.0% (")


def test_what_runs_stays_unless_another_is_shown() -> None:
    """A lead within what launches vary by is named, and no reason to change."""
    found = decided(candidate("now", (100.0, 103.0, 97.0)), candidate("near", (103.0,)), candidate("slow", SLOW))

    assert ("keep", "now") == (found.outcome, found.config)
    assert found.gain is not None
    assert "near" == found.gain.config
    assert "NEAR measured +3.0% (" in said(found)
    assert "which is not proven" in said(found)


def test_a_lead_that_two_alone_would_show_is_ahead() -> None:
    """Of two it would be shown; of seven it may be the best of many alike. Some launches more would settle it."""
    rest = [candidate(f"c{number}", (100.0 + number,)) for number in range(5)]
    found = decided(candidate("now", (100.0, 102.5, 97.5)), candidate("fast", (106.5, 109.0, 104.0)), *rest)
    names = {f"c{number}": f"C{number}" for number in range(5)} | NAMES

    assert ("ahead", "fast") == (found.outcome, found.config)
    assert found.further_launches is not None
    words = [plain(each, names) for each in reasons(found, "production", higher_is_better=True, launch_s=300.0)]
    assert any("would show it" in each and " min" in each for each in words)


@pytest.mark.parametrize(("fast", "outcome"), [((120.0,), "ahead"), ((101.0,), "keep")])
def test_single_launches_show_nothing(fast: tuple[float, ...], outcome: str) -> None:
    """With one launch each nothing is run; a lead beyond the margin is ahead."""
    found = decided(candidate("now", (100.0,)), candidate("fast", fast))

    assert outcome == found.outcome
    assert found.distinguishable is None
    assert "No config was launched again" in said(found)


def test_a_config_that_breaks_the_slo_is_not_run_however_fast() -> None:
    """The fastest that holds is; the other is named with what keeps it back."""
    found = decided(
        candidate("now", NOW, hold="held"),
        candidate("near", FAST, hold="held"),
        candidate("fast", (130.0, 131.0, 129.0), hold="broken", excess=1.9),
    )

    assert ("run", "near") == (found.outcome, found.config)
    assert ["fast"] == [each.config for each in found.faster]
    assert "FAST measured 8.3% higher; it breaks the SLO" in said(found)


def test_where_nothing_holds_the_nearest_is_named() -> None:
    """By its worst latency over its limit."""
    found = decided(
        candidate("now", NOW, hold="broken", excess=2.0), candidate("slow", SLOW, hold="broken", excess=1.1)
    )

    assert ("none_holds", "slow", 1.1) == (found.outcome, found.config, found.excess)
    assert said(found).startswith(
        "Nothing holds the SLO; SLOW comes nearest. Its worst latency is 1.10 times its limit"
    )


def test_too_few_requests_for_the_slo_are_no_recommendation() -> None:
    """Figures alone hold it: ahead, and the reason."""
    found = decided(candidate("now", NOW, hold="not_proven"), candidate("fast", FAST, hold="not_proven"))

    assert ("ahead", "fast", False) == (found.outcome, found.config, found.is_hold_proven)
    assert "FAST leads, but is not proven to hold the SLO." in said(found)
    assert "its requests do not show that with 95% confidence" in said(found)


def test_one_that_holds_with_confidence_goes_before_one_that_may() -> None:
    """However much faster the other measured."""
    found = decided(
        candidate("now", NOW, hold="held"),
        candidate("fast", FAST, hold="not_proven"),
        candidate("slow", SLOW, hold="held"),
    )

    assert ("keep", "now") == (found.outcome, found.config)
    assert "too few requests show that it holds the SLO" in said(found)


def test_where_what_runs_breaks_the_slo_another_is_run() -> None:
    """Slower, and it holds."""
    found = decided(candidate("now", NOW, hold="broken"), candidate("slow", SLOW, hold="held"))

    assert ("run", "slow") == (found.outcome, found.config)
    assert found.gain is None
    assert "Production breaks the SLO" in said(found)


def test_answers_that_were_not_compared_are_not_run() -> None:
    """Faster by 20%, and a line of its own; where they passed it is run."""
    unknown = decided(candidate("now", NOW), candidate("fast", FAST, answers="not_compared"))
    passed = decided(candidate("now", NOW), candidate("fast", FAST, answers="passed"))

    assert ("keep", ["fast"]) == (unknown.outcome, [each.config for each in unknown.faster])
    assert "its answers were not compared" in said(unknown)
    assert ("run", "fast") == (passed.outcome, passed.config)


def test_launches_of_all_show_the_noise() -> None:
    """Also those of configs that may not be run."""
    found = decided(candidate("now", (100.0,)), candidate("near", (100.5,)), candidate("fast", FAST, hold="broken"))

    assert found.verdicts.noise is not None
    assert "keep" == found.outcome


def test_other_loads_decide_in_a_tie() -> None:
    """Twice as much under another load is run over what runs now, though the objective ties."""
    found = decided(
        candidate("now", NOW, workloads={"other": NOW}),
        candidate("near", NOW, workloads={"other": (200.0, 202.0, 198.0)}),
        candidate("slow", SLOW, workloads={"other": NOW}),
    )

    assert ("run", "near", "workloads") == (found.outcome, found.config, found.merit)


def test_latency_decides_after_other_loads() -> None:
    """Half the latency, shown by three launches each."""
    found = decided(
        candidate("now", NOW, latency={"ttft_s_p99": (0.2, 0.21, 0.19)}),
        candidate("near", NOW, latency={"ttft_s_p99": (0.1, 0.105, 0.095)}),
    )

    assert ("run", "near", "latency") == (found.outcome, found.config, found.merit)


def test_settings_decide_last() -> None:
    """Of two that are shown ahead and tie, the one that changes fewer settings, if within the margin of the higher."""
    found = decided(
        candidate("now", NOW), candidate("fast", FAST, changes=3), candidate("near", (119.0, 120.0, 118.0), changes=1)
    )

    assert ("run", "near", "settings") == (found.outcome, found.config, found.merit)


def test_without_what_runs_now_the_tie_is_not_known() -> None:
    """All alike and no baseline: nothing to run or to keep. One that leaves others behind is run."""
    tie = decided(candidate("near", NOW), candidate("eight", NOW))
    ahead = decided(candidate("near", NOW), candidate("fast", FAST))

    assert "not_known" == tie.outcome
    assert ("run", "fast", None) == (ahead.outcome, ahead.config, ahead.gain)


@pytest.mark.parametrize("candidates", [(), (candidate("fast", NOW),), (candidate("now", (0.0, 0.0)),)])
def test_nothing_to_compare_is_not_known(candidates: tuple[Candidate, ...]) -> None:
    """No candidate, a single one, or one that achieved nothing."""
    assert "not_known" == decide(candidates).outcome


def test_a_latency_is_better_low() -> None:
    """Directions follow the objective."""
    found = decided(candidate("now", NOW), candidate("slow", SLOW), higher_is_better=False)

    assert ("run", "slow") == (found.outcome, found.config)
    assert found.gain is not None
    assert found.gain.ratio == pytest.approx(0.8, abs=0.002)


def test_what_runs_now_that_achieved_nothing_is_no_rival() -> None:
    """A launch of 0 has no rank: what is left is compared without it."""
    found = decided(candidate("now", (0.0, 0.0)), candidate("fast", FAST), candidate("slow", SLOW))

    assert ("run", "fast", "now") == (found.outcome, found.config, found.current)
