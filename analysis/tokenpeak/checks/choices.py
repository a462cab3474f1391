"""Whether a choice is best in several respects, or a trade between them."""

from collections.abc import Mapping

import polars as pl

from tokenpeak.checks.evidence import Evidence
from tokenpeak.checks.outcome import CheckOutcome, figure


def best_of_both(
    evidence: Evidence, *, config: str, quality: Mapping[str, float], quality_unit: str = ""
) -> CheckOutcome:
    """Whether a config leads in throughput and in quality; `quality` is the source's, higher is better."""
    runs = evidence.runs.filter(pl.col("output_tok_per_s").is_not_null())
    speeds = {str(name): float(speed) for name, speed in runs.select("config_name", "output_tok_per_s").iter_rows()}
    if config not in speeds or config not in quality:
        return CheckOutcome(verdict="undecided", computation=(f"Speed or quality of {config} is not known.",))
    lines = [
        f"{name}: {figure(speed)} tok/s, quality {quality[name]:+.0f}{quality_unit}."
        for name, speed in speeds.items()
        if name in quality
    ]
    others = [name for name in speeds if name != config and name in quality]
    better = [
        name
        for name in others
        if speeds[name] >= speeds[config] and quality[name] >= quality[config]
        and (speeds[name], quality[name]) != (speeds[config], quality[config])
    ]  # fmt: skip
    beaten = [name for name in others if speeds[name] <= speeds[config] and quality[name] <= quality[config]]
    traded = [name for name in others if name not in better and name not in beaten]
    lines.append(f"Ahead in both of {', '.join(beaten) or 'none'}; behind in both: {', '.join(better) or 'none'}.")
    if better:
        return CheckOutcome(
            verdict="contradicted", computation=tuple(lines), corrected=f"{', '.join(better)} lead in both"
        )
    if not traded:
        return CheckOutcome(verdict="supported", computation=tuple(lines))
    words = ", ".join(
        f"against {name} {speeds[config] / speeds[name] - 1:+.0%} speed for {quality[config] - quality[name]:+.0f}"
        f"{quality_unit} quality"
        for name in traded
    )
    return CheckOutcome(verdict="not_supported", computation=tuple(lines), corrected=f"a trade: {words}")
