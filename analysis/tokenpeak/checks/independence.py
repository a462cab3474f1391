"""Figures that cannot be independent measurements: equal digits where chance gives none."""

from collections.abc import Mapping
from itertools import combinations

import polars as pl

from tokenpeak.checks.evidence import CheckOutcome, Evidence, Finding, Guarded, Row, settled, undecided, value

TIMES = ("ttft_s", "tpot_s", "itl_s", "latency_s")
STATISTICS = ("mean", "p25", "p50", "p75", "p90", "p95", "p99")
ROUND_S = 0.5
"""Two times that differ by a whole multiple of this, to their last digit, share their digits."""
PER_PAIR = 2
"""Shared figures of a pair that chance would have to explain; one can be chance."""


def _columns(runs: pl.DataFrame) -> list[str]:
    return [name for metric in TIMES for s in STATISTICS if (name := f"{metric}_{s}") in runs.columns]


def _digit_s(runs: pl.DataFrame, columns: list[str]) -> float:
    """The last digit that the figures keep, in seconds: 10 µs for milliseconds printed with two digits, else finer."""
    values = [float(item) for name in columns for item in runs[name].drop_nulls()]
    coarse = all(abs(item * 1e5 - round(item * 1e5)) < 1e-4 for item in values)
    return 1e-5 if coarse else 1e-9


def shared(first: Row, second: Row, columns: list[str], digit_s: float) -> list[str]:
    """The figures of two runs that are equal, or differ by a round number, to the last digit."""
    shares = []
    for name in columns:
        one, other = value(first, name), value(second, name)
        if one is None or other is None or max(one, other) < 100 * digit_s:
            continue
        gap = abs(one - other)
        steps = round(gap / ROUND_S)
        if abs(gap - steps * ROUND_S) < digit_s / 2 and (steps > 0 or gap < digit_s / 2):
            words = "equal" if steps == 0 else f"differ by exactly {steps * ROUND_S:g} s"
            shares.append(f"{name} {one * 1000:.2f} and {other * 1000:.2f} ms {words}")
    return shares


def independent(evidence: Evidence, *, where: Mapping[str, object]) -> CheckOutcome:
    """Whether the runs' figures could come from separate measurements."""
    runs = evidence.select(where)
    columns = _columns(runs)
    if runs.height < 2:
        return undecided("Fewer than two runs.")
    digit = _digit_s(runs, columns)
    lines, worst = [], 0
    for first, second in combinations(runs.iter_rows(named=True), 2):
        same = shared(first, second, columns, digit)
        worst = max(worst, len(same))
        lines += [f"{first['config_name']} / {second['config_name']}: {words}." for words in same]
    lines.append(
        f"By chance two figures share their digits like this about once in {ROUND_S / digit:,.0f} comparisons."
    )
    corrected = "at least one of the runs was copied and edited; measure them again"
    return settled(lines, holds=worst < PER_PAIR, corrected=corrected)


def guard(evidence: Evidence) -> Guarded:
    """No two runs of a workload at one level share their latencies' digits."""
    findings: list[Finding] = []
    looked_at = 0
    columns = _columns(evidence.runs)
    digit = _digit_s(evidence.runs, columns)
    for (workload, level), group in evidence.runs.group_by("workload_name", "level_label", maintain_order=True):
        by_figure: dict[tuple[str, int], list[Row]] = {}
        suspects: set[tuple[str, str]] = set()
        rows = {f"{row['trial_id']}/{row['run_index']}": row for row in group.iter_rows(named=True)}
        for key, row in rows.items():
            looked_at += 1
            for name in columns:
                number = value(row, name)
                if number is not None and number >= 100 * digit:
                    # Runs that share digits have equal remainders, so that only those need to be compared.
                    mark = (name, round(number % ROUND_S / digit))
                    for other in by_figure.setdefault(mark, []):
                        suspects.add((f"{other['trial_id']}/{other['run_index']}", key))
                    by_figure[mark].append(row)
        for first, second in sorted(suspects):
            same = shared(rows[first], rows[second], columns, digit)
            if len(same) >= PER_PAIR:
                text = f"{len(same)} figures share their digits ({same[0]}): one of the runs is a copy"
                findings.append(Finding(where=f"{workload} at {level}: {first} and {second}", text=text))
    return Guarded(looked_at=looked_at, findings=tuple(findings))
