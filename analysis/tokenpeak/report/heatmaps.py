"""Heatmaps: for each pair of axes the mean of the configs that have both values, against the baseline."""

import math
from collections.abc import Mapping

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks import charts
from tokenpeak.report.blocks.block import Column, Figure, Sentence, note
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number, percent
from tokenpeak.report.interactions import pairs, varied
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView, short_names

STEPS = 9
MIXED = "*"
"""Stands behind n in a cell whose mean is over other settings of the other axes than another cell's."""
THIRD, HALF = 3, 5
"""Most columns of cells of a heatmap that takes a third, or half, of a wide window."""


def widest_gain(view: SweepView) -> float:
    """The largest difference from the baseline on any hardware, as a share; the scale that all heatmaps use.

    At least a tenth: what is hardly more than noise is not to stand out.
    """
    found = 0.0
    for hardware in view.hardware:
        gains = rank(view, hardware).frame["gain"].drop_nulls().abs()
        found = max(found, float(gains.max() or 0.0)) if gains.len() else found  # type: ignore[arg-type]
    return max(found, 0.1)


def cells(view: SweepView, across: str, down: str, widest: float) -> pl.DataFrame:
    """The cells of one pair on each hardware: the geometric mean over the other axes, against the hardware's baseline.

    Columns: hardware, across, down, state (value, untried or failed), value, gain, n (configs), best, step, words,
    under, why, mixed (its mean is over other settings of the other axes than that of another cell: a star behind n).
    """
    rows = []
    others = [f"axis_{axis}" for axis in varied(view) if axis not in (across, down)]
    for hardware in view.hardware:
        ranking = rank(view, hardware)
        ok = ranking.frame.filter(pl.col("state") == "ok")
        every = set(ok.drop_nulls([f"axis_{across}", f"axis_{down}"]).select(others).rows())
        for a in view.axes[across]:
            for d in view.axes[down]:
                is_here = (pl.col(f"axis_{across}") == a) & (pl.col(f"axis_{down}") == d)
                own = ok.filter(is_here).select(others).rows()
                is_mixed = bool(others and own) and set(own) != every
                baseline = ranking.baseline.value if ranking.baseline else None
                here, alike = ranking.frame.filter(is_here), ""
                if here.is_empty():
                    here, alike = _of_class(view, ranking.frame, hardware, {across: a, down: d})
                cell = _cell(here, baseline, widest)
                cell |= {"why": f"cannot differ from {alike}, which ran"} if alike else {}
                star = {"under": f"{cell['under']}{MIXED}"} if is_mixed else {}
                rows.append({"hardware": hardware, "across": a, "down": d, **cell, **star, "mixed": is_mixed})
    return pl.DataFrame(rows, infer_schema_length=None)


def _of_class(
    view: SweepView, ranked: pl.DataFrame, hardware: str, chosen: Mapping[str, str]
) -> tuple[pl.DataFrame, str]:
    """What was launched of the class of a config with these alternatives, by its row and its name; else no rows."""
    feasible = [each for plan in view.record.plans if plan.hardware == hardware for each in plan.feasible]
    own = {each.config_class for each in feasible if chosen.items() <= each.config.choices.items()}
    same = [each.config for each in feasible if each.config_class in own]
    found = ranked.filter(pl.col("config_id").is_in([config.config_id for config in same])).head(1)
    ids = found["config_id"].to_list()
    return found, next((config.name for config in same if config.config_id in ids), "")


def _cell(here: pl.DataFrame, baseline: float | None, widest: float) -> dict[str, object]:
    ok = here.filter(pl.col("state") == "ok")
    empty = {"value": None, "gain": None, "n": 0, "best": None, "step": None, "under": ""}
    if ok.is_empty():
        if here.is_empty():
            return {**empty, "state": "untried", "words": "not tried", "why": "not tried"}
        why = str(here["why"].drop_nulls().first() or "no result")
        return {**empty, "state": "failed", "words": why.split(":")[0][:16], "why": why}
    value = math.exp(float(ok["objective"].log().mean()))  # type: ignore[arg-type]
    gain = value / baseline - 1 if baseline else 0.0
    step = round((gain / widest + 1) / 2 * (STEPS - 1))
    lost = here.height - ok.height
    return {
        "state": "value",
        "value": value,
        "gain": gain,
        "n": ok.height,
        # The frame is best first.
        "best": float(ok["objective"][0]),
        "step": max(0, min(STEPS - 1, step)),
        "words": number(value),
        "under": f"{percent(gain, int(widest <= 0.1))}\nn={ok.height}{f' of {here.height}' if lost else ''}",
        "why": f"{lost} more without a result" if lost else "",
    }


def heatmap(view: SweepView, across: str, down: str, widest: float) -> Figure:
    """Two axes against each other on each kind of hardware."""
    grid = cells(view, across, down, widest)
    others = [axis for axis, choices in view.axes.items() if axis not in (across, down) and len(choices) > 1]
    counts: list[int] = grid.filter(state="value")["n"].to_list()
    least, most = min(counts, default=0), max(counts, default=0)
    over = f"{least} to {most} configs" if least != most else f"{most} config{'' if most == 1 else 's'}"
    caption = f"Geometric means over {', '.join(others)}; {over} a cell." if others else "A cell is a config."
    names = {axis: short_names(view.axes[axis]) for axis in (across, down)}
    chart = charts.heatmap(
        grid.with_columns(
            pl.col("step").cast(pl.String),
            pl.col("across").replace(names[across]),
            pl.col("down").replace(names[down]),
        ),
        across=across,
        down=down,
        across_order=list(names[across].values()),
        down_order=list(names[down].values()),
    )
    unit, columns = view.metric.unit, len(view.axes[across]) * len(view.hardware)
    return figure(
        chart,
        grid.with_columns(gain=pl.col("gain") * 100),
        {
            "hardware": "Hardware",
            "across": Column(key="across", title=across, kind="code"),
            "down": Column(key="down", title=down, kind="code"),
            "value": Column(key="value", title="Mean over configs", unit=unit, kind="number"),
            "best": Column(key="best", title="Best", unit=unit, kind="number"),
            "gain": Column(key="gain", title="Difference", unit="%", kind="number", digits=1, signed=True),
            "n": "Configs",
            "why": "Remark",
        },
        name=f"heatmap-{slug(across)}-{slug(down)}",
        title=f"{across} × {down}",
        caption=caption,
        span="third" if columns <= THIRD else "half" if columns <= HALF else "full",
    )


def heatmap_legend(view: SweepView, widest: float) -> Sentence:
    """Legend of all heatmaps: a cell, and each sign that occurs in one."""
    grid = pl.concat([cells(view, *pair, widest) for pair in pairs(view)], how="diagonal_relaxed")
    signs = {
        " n=a of b: the other configs of the b have no result.": pl.col("why").str.contains("more without"),
        " *: other cells differ from this one in more than the two axes.": pl.col("mixed"),
        " Hatched: not tried.": pl.col("state") == "untried",
        " Outlined: no result.": pl.col("state") == "failed",
    }
    lower = "" if view.higher_is_better else "; lower is better"
    return note(
        f"A cell: the geometric mean in {view.metric.unit} {view.objective_at}, its difference from "
        f"{_baseline_words(view)}, and how many configs (n){lower}. Blue is better; colours end at ±{widest:.0%}.",
        *(words for words, where in signs.items() if grid.filter(where).height),
    )


def _baseline_words(view: SweepView) -> str:
    baselines = [baseline.phrase for hardware in view.hardware if (baseline := rank(view, hardware).baseline)]
    return " or, on other hardware, ".join(dict.fromkeys(baselines)) or "nothing (no baseline)"
