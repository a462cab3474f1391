"""Tokens that are not what they are taken for: events of a stream carry several, and arms write different numbers."""

from collections.abc import Iterator, Mapping

import polars as pl

from tokenpeak.checks.evidence import (
    CheckOutcome,
    Evidence,
    Finding,
    agrees,
    figure,
    looks,
    percent,
    place,
    settled,
    undecided,
    value,
)
from tokenpeak.metrics import metric_of
from tokenpeak.spec.sweep import MARGIN

SEVERAL = 1.5
"""Tokens an event from which on its gaps say nothing of tokens."""
TWICE = 2.0
"""Tokens an event from which on a run's ITL needs the remark; a busy client merges a few events by itself."""
TOLERANCE = 0.05
"""Mean lengths that differ by less are the same."""


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
def guard_events(evidence: Evidence) -> Iterator[Finding | None]:
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


def steady_gain(
    evidence: Evidence, *, axis: str, metrics: list[str], where: Mapping[str, object], highest_is_best: bool = False
) -> CheckOutcome:
    """Whether each metric gets better with every step of a numeric axis, and whether the arms did the same work.

    `highest_is_best` asks for less and for more: the last step alone, and that it beats each other by the margin.
    """
    runs = evidence.select(where).filter(pl.col(f"axis_{axis}").is_not_null())
    runs = runs.with_columns(pl.col(f"axis_{axis}").cast(pl.Float64).alias("step")).sort("step")
    if runs.height < 2:
        return undecided(f"Fewer than two runs along {axis}.")
    steps = [figure(step) for step in runs["step"]]
    lines: list[str] = []
    broken: list[str] = []
    for metric in metrics:
        values = [float(value) for value in runs[metric]]
        match = metric_of(metric)
        sign = -1 if match and match[0].direction == "lower" else 1
        lines.append(f"{metric} at {', '.join(steps)}: {', '.join(figure(value) for value in values)}.")
        last = len(values) - 1
        pairs = [(i, last) for i in range(last)] if highest_is_best else [(i, i + 1) for i in range(last)]
        least = MARGIN if highest_is_best else -MARGIN
        broken += [
            f"{metric} from {steps[i]} to {steps[j]}" for i, j in pairs if sign * (values[j] / values[i] - 1) < least
        ]
    tokens = (runs["output_tokens"] / runs["requests_ok"]).to_list()
    unlike = None not in tokens and max(tokens) / min(tokens) - 1 > TOLERANCE
    if unlike:
        lines.append(
            f"Output tokens a request: {', '.join(figure(value) for value in tokens)}: the arms did different work."
        )
    if broken and highest_is_best:
        lines.append(f"Not better by {MARGIN:.0%}: {'; '.join(broken)}.")
        return settled(lines, holds=False, corrected=f"no better in {'; '.join(broken)}")
    if broken:
        lines.append(f"Worse by more than {MARGIN:.0%}: {'; '.join(broken)}.")
        return settled(lines, holds=False, corrected=f"not steady: worse in {'; '.join(broken)}")
    corrected = "different output lengths; not comparable"
    return settled(lines, holds=not unlike, corrected=corrected, otherwise="not_supported")


def cause_in_prefill(
    evidence: Evidence, *, axis: str, slow: str, fast: str, prompt_tokens: float, where: Mapping[str, object]
) -> CheckOutcome:
    """Whether what makes a setting slower is prefill, as a cause in the batching of prompts would: TTFT more than TPOT.

    `axis` is the most tokens of a step, `prompt_tokens` the length of a prompt.
    """
    runs = [evidence.one({**where, axis: step}) for step in (fast, slow)]
    figures = [[value(run or {}, name) for name in ("ttft_s_mean", "tpot_s_mean")] for run in runs]
    (fast_ttft, fast_tpot), (slow_ttft, slow_tpot) = figures
    if not fast_ttft or not fast_tpot or not slow_ttft or not slow_tpot:
        return undecided(f"TTFT or TPOT at {axis} {slow} or {fast} is not known.", corrected="not published")
    first, token = slow_ttft / fast_ttft - 1, slow_tpot / fast_tpot - 1
    prompts = [max(1, int(float(step) // prompt_tokens)) for step in (slow, fast)]
    lines = [
        f"Whole prompts of {figure(prompt_tokens)} tokens in a step: {prompts[0]} at {slow}, {prompts[1]} at {fast}.",
        f"TTFT, mean: {figure(fast_ttft)} s at {fast}, {figure(slow_ttft)} s at {slow}, {percent(first)}.",
        f"TPOT, mean: {figure(fast_tpot * 1000)} ms at {fast}, {figure(slow_tpot * 1000)} ms at {slow}, "
        f"{percent(token)}.",
    ]
    last, whole = (value(runs[1] or {}, name) for name in ("ttft_s_p99", "duration_s"))
    if last and whole:
        lines.append(f"At {slow} nearly all prompts were done after {figure(last)} of {figure(whole)} s.")
    corrected = f"TTFT {percent(first)}, TPOT {percent(token)}: decode is slower, where no prompt waits"
    return settled(lines, holds=first >= token > 0, corrected=corrected, otherwise="not_supported")


@looks
def guard_lengths(evidence: Evidence) -> Iterator[Finding | None]:
    """Configs compared under one workload and load wrote answers of the same mean length."""
    runs = evidence.counted().filter(pl.col("output_tokens").is_not_null(), pl.col("requests_ok") > 0)
    runs = runs.with_columns((pl.col("output_tokens") / pl.col("requests_ok")).alias("length"))
    keys = ("hardware", "workload_name", "level_label")
    for (hardware, workload, level), group in runs.group_by(*keys, maintain_order=True):
        if group.height < 2:
            continue
        low, high = group.sort("length").row(0, named=True), group.sort("length").row(-1, named=True)
        text = (
            f"answers had {figure(low['length'])} tokens with {low['config_name']} and "
            f"{figure(high['length'])} with {high['config_name']}: throughput and latency compare different work"
        )
        differ = low["length"] > 0 and high["length"] / low["length"] - 1 > TOLERANCE
        yield Finding(where=f"{workload} at {level} on {hardware}", text=text) if differ else None
