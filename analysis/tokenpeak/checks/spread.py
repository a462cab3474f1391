"""Effects smaller than the run-to-run spread, plateaus, rates at a boundary, and changes that were stated."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from tokenpeak.checks.evidence import CheckOutcome, Evidence, Finding, figure, looks, percent, settled, undecided, value


def plateau(evidence: Evidence, *, ranks: int, stated_share: float, resolution: float) -> CheckOutcome:
    """Whether the first ranks lie within a share of the best."""
    values = _ranked(evidence)
    if len(values) < ranks:
        return undecided(f"Only {len(values)} rows are published.")
    first, last = values[0], values[ranks - 1]
    spread = 1 - last / first
    lines = (
        f"Rank 1: {figure(first)}; rank {ranks}: {figure(last)}; 1 − {figure(last)} ÷ {figure(first)} = {spread:.2%}.",
        f"One step of the published digits is {resolution / first:.2%}, so the ranks differ by "
        f"{(first - last) / resolution:.0f} step.",
    )
    return settled(lines, holds=spread < stated_share, corrected=f"{spread:.2%}")


def _ranked(evidence: Evidence) -> list[float]:
    runs = evidence.objective_runs()
    values = runs[evidence.objective].drop_nulls().sort(descending=True)
    return [float(item) for item in values]


def best_against_worst(
    evidence: Evidence,
    *,
    stated_share: float,
    power_w: float,
    stated_worst: float | None = None,
    tokens_per_day: float | None = None,
) -> CheckOutcome:
    """Whether the worst config costs the stated share more than the best, at equal power; per day, if tokens are."""
    values = _ranked(evidence)
    if len(values) < 2:
        return undecided("Fewer than two rows are published.")
    best, worst = values[0], values[-1]
    more, less = best / worst - 1, 1 - worst / best
    joule = power_w / best, power_w / worst
    lines = [
        f"Best {figure(best)}, worst {figure(worst)} tok/s: {figure(power_w)} W ÷ tok/s = {figure(joule[0])} and "
        f"{figure(joule[1])} J/token.",
        f"{figure(joule[1])} ÷ {figure(joule[0])} − 1 = {percent(more)}; stated {percent(stated_share)}.",
    ]
    if stated_worst is not None:
        lines.append(f"Stated for the worst: {figure(stated_worst)}, which is {figure(power_w / stated_worst)} tok/s.")
    if tokens_per_day is not None:
        lines.append(
            f"{figure(tokens_per_day)} tokens a day × {stated_share:.1%} = "
            f"{figure(tokens_per_day * stated_share)} as stated; "
            f"with {less:.1%} saved: {figure(tokens_per_day * less)}."
        )
        lines.append("Both rest on rated power at every speed: nothing was measured, so only throughput is compared.")
    corrected = f"{figure(joule[1])} J/token, {percent(more)}"
    if tokens_per_day is not None:
        corrected = f"{less:.1%}, worth {figure(tokens_per_day * less)} tokens a day"
    holds = min(abs(stated_share - more), abs(stated_share - less)) <= 0.005
    return settled(lines, holds=holds, corrected=corrected)


def shared_pattern(evidence: Evidence, *, worst: int, patterns: Sequence[Mapping[str, object]]) -> CheckOutcome:
    """Whether each of the worst configs has one of the patterns of settings, and how many of the others have one."""
    column = evidence.objective
    launches = evidence.objective_runs().filter(pl.col(column) > 0)
    means = pl.col(column).log().mean().exp()
    runs = launches.group_by("config_name", maintain_order=True).agg(pl.exclude(column, "config_name").first(), means)
    runs = runs.sort(column)
    if runs.height <= worst:
        return undecided(f"Only {runs.height} configs have a result.")

    def having(frame: pl.DataFrame) -> set[str]:
        return {name for pattern in patterns for name in evidence.select(pattern, frame)["config_name"]}

    last, others = runs.head(worst), runs.tail(-worst)
    found, also = having(last), having(others)
    lines = [
        f"{figure(value)}: {name} has {'one' if name in found else 'none'} of the patterns."
        for name, value in last.select("config_name", column).iter_rows()
    ]
    lines.append(f"Of the {others.height} better configs, {len(also)} have one.")
    corrected = f"{len(found)} of the worst {worst} and {len(also)} of the {others.height} others have one"
    return settled(lines, holds=len(found) == worst and not also, corrected=corrected)


def highest_rate(evidence: Evidence, *, baseline: str) -> CheckOutcome:
    """Whether no config held the SLO at a higher rate than the baseline's best launch."""
    rates = _rates(evidence)
    own = [rate for name, rate in rates if name == baseline]
    others = [(name, rate) for name, rate in rates if name != baseline]
    if not own or not others:
        return undecided("Baseline or other configs have no rate.")
    best = max(rate for _, rate in others)
    broken = evidence.runs.filter(pl.col("slo_met").not_())["rate_per_s"]
    above = broken.filter(broken > max(own)).min()
    lines = [
        f"{baseline}: {', '.join(figure(rate) for rate in own)} req/s.",
        f"Others: {', '.join(f'{name} {figure(rate)}' for name, rate in others)} req/s.",
    ]
    if isinstance(above, float):
        lines.append(
            f"The next rate tried is {figure(above)}: a gain below {percent(above / max(own) - 1)} would not show."
        )
    return settled(lines, holds=best <= max(own), corrected=f"{figure(best)} req/s held")


def _rates(evidence: Evidence) -> list[tuple[str, float]]:
    trials = evidence.trials.filter(pl.col("objective").is_not_null())
    return [(str(name), float(rate)) for name, rate in trials.select("config_name", "objective").iter_rows()]


def boundary_spread(evidence: Evidence, *, baseline: str) -> CheckOutcome:
    """Whether launches of the baseline differ as much as any config differs from them."""
    rates = _rates(evidence)
    own = [rate for name, rate in rates if name == baseline]
    others = [rate for name, rate in rates if name != baseline]
    if len(own) < 2 or not others:
        return undecided("The baseline was launched once.")
    spread = max(own) - min(own)
    effect = max(abs(rate - max(own)) for rate in others)
    from_mean = max(abs(rate - sum(own) / len(own)) for rate in others)
    lines = (
        f"Launches of {baseline}: {', '.join(figure(rate) for rate in own)}: "
        f"a spread of {figure(spread)} req/s (n={len(own)}).",
        f"Configs against its better launch: at most {figure(effect)}; "
        f"against its mean: at most {figure(from_mean)} req/s.",
    )
    return settled(lines, holds=spread >= max(effect, from_mean), corrected=f"an effect of {figure(effect)} req/s")


def stated_changes(
    evidence: Evidence,
    *,
    before: Mapping[str, object],
    after: Mapping[str, object],
    changes: Mapping[str, float],
    factors: Sequence[str] = (),
) -> CheckOutcome:
    """Whether metrics changed by the stated shares (or factors, for those listed) from one run to another."""
    first, second = evidence.one(before), evidence.one(after)
    if first is None or second is None:
        lacking = [_condition(each) for each, row in ((before, first), (after, second)) if row is None]
        return undecided(
            f"The archive lacks a run of {' and of '.join(lacking)}.", corrected="no such run is published"
        )
    lines: list[str] = []
    wrong: list[str] = []
    for name, stated in changes.items():
        old, new = value(first, name), value(second, name)
        if old is None or new is None:
            lines.append(f"{name}: {figure(old)} with {_condition(before)}, {figure(new)} with {_condition(after)}.")
            return undecided(*lines, corrected=f"{name} is not published for both")
        is_factor = name in factors
        computed = new / old if is_factor else new / old - 1
        allowed = 0.05 if is_factor else 0.005
        shown, stated_words = (f"{figure(each)} times" if is_factor else percent(each) for each in (computed, stated))
        lines.append(f"{name}: {figure(old)} to {figure(new)}, {shown}; stated {stated_words}.")
        if abs(computed - stated) > allowed + 1e-9:
            wrong.append(f"{name} {shown}")
    lines.append("One launch each: how much of it is run-to-run spread the two figures do not show.")
    return settled(lines, holds=not wrong, corrected="; ".join(wrong))


def stated_ranges(evidence: Evidence, *, groups: Sequence[Mapping[str, Mapping[str, Any]]]) -> CheckOutcome:
    """Whether the runs of each group lie where the source says: `where` picks them, `within` has a range of metrics."""
    lines: list[str] = []
    missing: list[str] = []
    outside: list[str] = []
    for group in groups:
        runs = evidence.select(group["where"])
        for name, (low, high) in group["within"].items():
            figures = [] if name not in runs.columns else [float(item) for item in runs[name].drop_nulls()]
            shown = ", ".join(figure(item) for item in figures) or "not published"
            lines.append(f"{name} with {_condition(group['where'])}: {shown}; stated {figure(low)} to {figure(high)}.")
            if not figures:
                missing.append(name)
            elif min(figures) < low or max(figures) > high:
                outside.append(f"{name} {shown}")
    if missing and not outside:
        return undecided(*lines, corrected=f"{', '.join(dict.fromkeys(missing))} is not published there")
    return settled(lines, holds=not outside, corrected="; ".join(outside))


def _condition(where: Mapping[str, object]) -> str:
    """Which runs are meant, in words."""
    return ", ".join(
        f"{column} {' or '.join(map(str, wanted)) if isinstance(wanted, list) else wanted}"
        for column, wanted in where.items()
    )


@looks
def guard(evidence: Evidence) -> Iterator[Finding | None]:
    """Launches of one config on one node agree to a fifth; a wider spread hides what settings do."""
    trials = evidence.trials.filter(pl.col("objective") > 0, ~pl.col("holdout"))
    for (hardware,), group in trials.group_by("hardware", maintain_order=True):
        logs = [own["objective"].log() for _, own in group.group_by("config_id", maintain_order=True)]
        freedom = sum(len(own) - 1 for own in logs)
        if not freedom or len(logs) < 2:
            continue
        means = [float(own.mean()) for own in logs]  # type: ignore[arg-type]
        squares = sum(float(((own - mean) ** 2).sum()) for own, mean in zip(logs, means, strict=True))
        noise, effect = math.sqrt(squares / freedom), max(means) - min(means)
        text = (
            f"best and worst config differ by {percent(math.expm1(effect))}, launches of one config by "
            f"{percent(math.expm1(noise))} (one standard deviation): the ranking shows nothing"
        )
        yield Finding(where=str(hardware), text=text) if effect < 2 * noise else None


def best_of_both(
    evidence: Evidence, *, config: str, quality: Mapping[str, float], quality_unit: str = ""
) -> CheckOutcome:
    """Whether a config leads in throughput and in quality; `quality` is the source's, higher is better."""
    runs = evidence.runs.filter(pl.col("output_tok_per_s").is_not_null())
    speeds = {str(name): float(speed) for name, speed in runs.select("config_name", "output_tok_per_s").iter_rows()}
    if config not in speeds or config not in quality:
        return undecided(f"Speed or quality of {config} is not known.")
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
        return settled(lines, holds=False, corrected=f"{', '.join(better)} lead in both")
    words = ", ".join(
        f"against {name} {speeds[config] / speeds[name] - 1:+.0%} speed for {quality[config] - quality[name]:+.0f}"
        f"{quality_unit} quality"
        for name in traded
    )
    return settled(lines, holds=not traded, corrected=f"a trade: {words}", otherwise="not_supported")
