"""How the axes of a sweep act together: a heatmap's cells for each pair, and what each alternative does by itself."""

from itertools import combinations

import polars as pl

from tokenpeak.report.blocks import number, percent
from tokenpeak.report.ranking import rank
from tokenpeak.report.view import SweepView

STEPS = 9


def pairs(view: SweepView) -> list[tuple[str, str]]:
    """Every pair of axes with at least two alternatives each; the one with more alternatives goes across."""
    varied = [axis for axis, choices in view.axes.items() if len(choices) > 1 and f"axis_{axis}" in view.trials.columns]
    return [
        (first, second) if len(view.axes[first]) >= len(view.axes[second]) else (second, first)
        for first, second in combinations(varied, 2)
    ]


def widest_gain(view: SweepView) -> float:
    """The largest difference from the baseline on any hardware, as a share; the scale that all heatmaps use."""
    found = 0.0
    for hardware in view.hardware:
        gains = rank(view, hardware).frame["gain"].drop_nulls().abs()
        found = max(found, float(gains.max() or 0.0)) if gains.len() else found  # type: ignore[arg-type]
    return max(found, 0.01)


def cells(view: SweepView, across: str, down: str, widest: float) -> pl.DataFrame:
    """The cells of one pair on each hardware: the mean over the other axes, against the hardware's baseline.

    Columns: hardware, across, down, state (value, untried or failed), value, gain, n (configs), best, step, words,
    under, why.
    """
    rows = []
    for hardware in view.hardware:
        ranking = rank(view, hardware)
        for a in view.axes[across]:
            for d in view.axes[down]:
                here = ranking.frame.filter(pl.col(f"axis_{across}") == a, pl.col(f"axis_{down}") == d)
                rows.append(
                    {
                        "hardware": hardware,
                        "across": a,
                        "down": d,
                        **_cell(here, ranking.baseline.value if ranking.baseline else None, widest),
                    }
                )
    return pl.DataFrame(rows, infer_schema_length=None)


def _cell(here: pl.DataFrame, baseline: float | None, widest: float) -> dict[str, object]:
    ok = here.filter(pl.col("state") == "ok")
    empty = {"value": None, "gain": None, "n": 0, "best": None, "step": None, "under": ""}
    if ok.is_empty():
        if here.is_empty():
            return {**empty, "state": "untried", "words": "not tried", "why": "not tried"}
        why = str(here["why"].drop_nulls().first() or "no result")
        return {**empty, "state": "failed", "words": why.split(":")[0][:16], "why": why}
    value = float(ok["objective"].mean())  # type: ignore[arg-type]
    gain = value / baseline - 1 if baseline else 0.0
    step = round((gain / widest + 1) / 2 * (STEPS - 1))
    lost = here.height - ok.height
    return {
        "state": "value",
        "value": value,
        "gain": gain,
        "n": ok.height,
        "best": float(ok["objective"].max()),  # type: ignore[arg-type]
        "step": max(0, min(STEPS - 1, step)),
        "words": number(value),
        "under": f"{percent(gain, int(widest < 0.1))}\nn={ok.height}{f' of {here.height}' if lost else ''}",
        "why": f"{lost} more without a result" if lost else "",
    }


def effects(view: SweepView) -> pl.DataFrame:
    """Each alternative's share over the mean of its axis, other axes averaged out, from configs with a result.

    Columns: hardware, axis, alternative, effect, low, high (95%, over the matched configs; null below three), n.
    Each config is compared with the mean of the configs that equal it in every other axis, so that an unbalanced
    matrix does not lend one axis the effect of another.
    """
    from scipy.special import stdtrit

    rows = []
    for hardware in view.hardware:
        ok = rank(view, hardware).frame.filter(pl.col("state") == "ok")
        for axis, choices in view.axes.items():
            column = f"axis_{axis}"
            if len(choices) < 2 or column not in ok.columns:
                continue
            others = [f"axis_{name}" for name in view.axes if name != axis and f"axis_{name}" in ok.columns]
            grid = ok.filter(pl.col(column).is_not_null())
            matched = grid.with_columns(
                share=pl.col("objective").log()
                - (pl.col("objective").log().mean().over(others) if others else pl.col("objective").log().mean()),
                peers=pl.len().over(others) if others else pl.len(),
            ).filter(pl.col("peers") > 1)
            for choice in choices:
                shares = matched.filter(pl.col(column) == choice)["share"]
                n = shares.len()
                if n == 0:
                    continue
                mean = float(shares.mean())  # type: ignore[arg-type]
                half = float(stdtrit(n - 1, 0.975)) * float(shares.std() or 0.0) / n**0.5 if n > 2 else None  # type: ignore[arg-type]
                ratio = (
                    pl.Series(
                        [mean, mean - half if half is not None else None, mean + half if half is not None else None],
                        dtype=pl.Float64,
                    ).exp()
                    - 1
                )
                rows.append(
                    {
                        "hardware": hardware,
                        "axis": axis,
                        "alternative": choice,
                        "effect": ratio[0],
                        "low": ratio[1],
                        "high": ratio[2],
                        "n": n,
                    }
                )
    schema = {
        "hardware": pl.String,
        "axis": pl.String,
        "alternative": pl.String,
        "effect": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "n": pl.Int64,
    }
    return pl.DataFrame(rows, schema=schema)


def importance(view: SweepView, effect: pl.DataFrame) -> pl.DataFrame:
    """Axes by what their best alternative gives over their worst on each hardware, the largest first.

    Columns: hardware, axis, gain (share, negative where lower is better), best, worst, told (an alternative's interval
    leaves the axis's mean out).
    """
    order = pl.col("effect") * (1 if view.higher_is_better else -1)
    return (
        effect.group_by("hardware", "axis", maintain_order=True)
        .agg(
            gain=(1 + pl.col("effect").sort_by(order).last()) / (1 + pl.col("effect").sort_by(order).first()) - 1,
            best=pl.col("alternative").sort_by(order).last(),
            worst=pl.col("alternative").sort_by(order).first(),
            told=((pl.col("low") > 0) | (pl.col("high") < 0)).fill_null(value=False).any(),
        )
        .sort("hardware", "told", pl.col("gain").abs(), descending=[False, True, True], maintain_order=True)
    )
