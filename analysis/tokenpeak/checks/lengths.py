"""Output lengths that differ between the arms of a comparison, and gains that are said to be steady."""

from collections.abc import Mapping

import polars as pl

from tokenpeak.checks.evidence import Evidence
from tokenpeak.checks.outcome import CheckOutcome, Finding, Guarded, figure
from tokenpeak.metrics import metric_of
from tokenpeak.spec.search import MARGIN

TOLERANCE = 0.05
"""Mean lengths that differ by less are the same."""


def steady_gain(
    evidence: Evidence, *, axis: str, metrics: list[str], where: Mapping[str, object], margin: float = MARGIN
) -> CheckOutcome:
    """Whether each metric gets better with every step of a numeric axis, and whether the arms did the same work."""
    runs = evidence.select(where).filter(pl.col(f"axis_{axis}").is_not_null())
    runs = runs.with_columns(pl.col(f"axis_{axis}").cast(pl.Float64).alias("step")).sort("step")
    if runs.height < 2:
        return CheckOutcome(verdict="undecided", computation=(f"Fewer than two runs along {axis}.",))
    steps = [figure(step) for step in runs["step"]]
    lines: list[str] = []
    broken: list[str] = []
    for metric in metrics:
        values = [float(value) for value in runs[metric]]
        found = metric_of(metric)
        sign = -1 if found and found[0].direction == "lower" else 1
        lines.append(f"{metric} at {', '.join(steps)}: {', '.join(figure(value) for value in values)}.")
        broken += [
            f"{metric} from {steps[index - 1]} to {steps[index]}"
            for index in range(1, len(values))
            if sign * (values[index] / values[index - 1] - 1) < -margin
        ]
    tokens = (runs["output_tokens"] / runs["requests_ok"]).to_list()
    unlike = None not in tokens and max(tokens) / min(tokens) - 1 > TOLERANCE
    if unlike:
        lines.append(
            f"Output tokens a request: {', '.join(figure(value) for value in tokens)}: the arms did different work."
        )
    if broken:
        lines.append(f"Worse by more than {margin:.0%}: {'; '.join(broken)}.")
        return CheckOutcome(
            verdict="contradicted", computation=tuple(lines), corrected=f"not steady: worse in {'; '.join(broken)}"
        )
    if unlike:
        return CheckOutcome(
            verdict="not_supported", computation=tuple(lines), corrected="different output lengths; not comparable"
        )
    return CheckOutcome(verdict="supported", computation=tuple(lines))


def guard(evidence: Evidence) -> Guarded:
    """Configs compared under one workload and load wrote answers of the same mean length."""
    findings: list[Finding] = []
    looked_at = 0
    runs = evidence.counted().filter(pl.col("output_tokens").is_not_null(), pl.col("requests_ok") > 0)
    runs = runs.with_columns((pl.col("output_tokens") / pl.col("requests_ok")).alias("length"))
    for (hardware, workload, level), group in runs.group_by(
        "hardware", "workload_name", "level_label", maintain_order=True
    ):
        if group.height < 2:
            continue
        looked_at += 1
        low, high = group.sort("length").row(0, named=True), group.sort("length").row(-1, named=True)
        if low["length"] > 0 and high["length"] / low["length"] - 1 > TOLERANCE:
            findings.append(
                Finding(
                    check="lengths",
                    where=f"{workload} at {level} on {hardware}",
                    text=(
                        f"answers had {figure(low['length'])} tokens with {low['config_name']} and "
                        f"{figure(high['length'])} with {high['config_name']}: "
                        "throughput and latency compare different work"
                    ),
                    value=high["length"],
                    limit=low["length"],
                )
            )
    return Guarded(looked_at=looked_at, findings=tuple(findings))
