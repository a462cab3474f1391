"""Output lengths that differ between the arms of a comparison, and gains that are said to be steady."""

from collections.abc import Iterator, Mapping

import polars as pl

from tokenpeak.checks.evidence import Evidence
from tokenpeak.checks.outcome import CheckOutcome, Finding, figure, looks, settled, undecided
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
        return undecided(f"Fewer than two runs along {axis}.")
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
        return settled(lines, holds=False, corrected=f"not steady: worse in {'; '.join(broken)}")
    corrected = "different output lengths; not comparable"
    return settled(lines, holds=not unlike, corrected=corrected, otherwise="not_supported")


@looks
def guard(evidence: Evidence) -> Iterator[Finding | None]:
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
