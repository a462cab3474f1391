"""Events mistaken for tokens: one event of a stream can carry several."""

from collections.abc import Iterator, Mapping

from tokenpeak.checks.evidence import Evidence, place, value
from tokenpeak.checks.outcome import CheckOutcome, Finding, agrees, figure, looks, settled, undecided

SEVERAL = 1.5
"""Tokens an event from which on its gaps say nothing of tokens."""
TWICE = 2.0
"""Tokens an event from which on a run's ITL needs the remark; a busy client merges a few events by itself."""


def gap_comparison(
    evidence: Evidence,
    *,
    slow: Mapping[str, object],
    fast: Mapping[str, object],
    stated_slow_ms: float,
    stated_fast_ms: float,
) -> CheckOutcome:
    """Whether two inter-token latencies are gaps between tokens, so that they may be compared."""
    rows = evidence.one(slow), evidence.one(fast)
    lines: list[str] = []
    perhaps: list[tuple[float, float]] = []
    for row, stated in zip(rows, (stated_slow_ms, stated_fast_ms), strict=True):
        gap = value(row, "itl_s_p50") if row else None
        gap = gap if gap is not None or row is None else value(row, "itl_s_mean")
        token = value(row, "tpot_s_mean") if row else None
        if row is None or gap is None or not token:
            return undecided("The archive lacks ITL or TPOT of a run.")
        lines.append(
            f"{row['config_name']}: gap between events {figure(gap * 1000)} ms (stated {figure(stated)}), "
            f"time per token {figure(token * 1000)} ms: {figure(gap / token)} tokens an event."
        )
        perhaps.append((gap, token))
    (slow_gap, slow_token), (fast_gap, fast_token) = perhaps
    lines.append(
        f"By events {figure(slow_gap / fast_gap)} times as slow; "
        f"by tokens {figure(slow_token)} ÷ {figure(fast_token)} s = "
        f"{figure(slow_token / fast_token)} times."
    )
    if all(gap / token < SEVERAL for gap, token in perhaps):
        right = agrees(stated_slow_ms / 1000, slow_gap, 0.01) and agrees(stated_fast_ms / 1000, fast_gap, 0.01)
        return settled(lines, holds=right, corrected="")
    corrected = f"{figure(slow_token * 1000)} ms against {figure(fast_token * 1000)} ms a token"
    return settled(lines, holds=False, corrected=f"{corrected}, {figure(slow_token / fast_token)} times")


@looks
def guard(evidence: Evidence) -> Iterator[Finding | None]:
    """Where ITL is given, events carry about one token, or the run says so by its TPOT."""
    for row in evidence.counted().iter_rows(named=True):
        gap, token = value(row, "itl_s_mean"), value(row, "tpot_s_mean")
        if not gap or not token:
            continue
        text = (
            f"ITL is {figure(gap * 1000)} ms and TPOT {figure(token * 1000)} ms: events carry "
            f"{figure(gap / token)} tokens each, so ITL is no time between tokens"
        )
        yield Finding(where=place(row), text=text) if gap / token >= TWICE else None
