"""Heatmaps of pairs of axes, and the table of what pairs do beyond their parts."""

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks import charts
from tokenpeak.report.blocks.block import Column, Figure, Sentence, Span, Table, note, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.interactions import axis_effects
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView, short_names

EFFECT_BARS = "Bars: 95% intervals (t) from what main effects leave unexplained."
NOT_ESTIMABLE = 8
"""How many alternatives without an estimate are named below the figure; its data hold all."""
EFFECT_COLUMNS = (
    Column(key="effect", title="Effect", unit="%", kind="number", digits=1, signed=True),
    Column(key="low", title="Low", unit="%", kind="number", digits=1, signed=True),
    Column(key="high", title="High", unit="%", kind="number", digits=1, signed=True),
    Column(key="n", title="Launches", kind="number"),
    Column(key="remark", title="Remark"),
)


def heatmap(view: SweepView, across: str, down: str, widest: float) -> Figure:
    """Two axes against each other on each kind of hardware."""
    cells = axis_effects.cells(view, across, down, widest)
    others = [axis for axis, choices in view.axes.items() if axis not in (across, down) and len(choices) > 1]
    counts: list[int] = cells.filter(state="value")["n"].to_list()
    least, most = min(counts, default=0), max(counts, default=0)
    over = f"{least} to {most} configs" if least != most else f"{most} config{'' if most == 1 else 's'}"
    caption = f"Means over {', '.join(others)}; {over} a cell." if others else "A cell is a config."
    names = {axis: short_names(view.axes[axis]) for axis in (across, down)}
    chart = charts.heatmap(
        cells.with_columns(
            pl.col("step").cast(pl.String),
            pl.col("across").replace(names[across]),
            pl.col("down").replace(names[down]),
        ),
        across=across,
        down=down,
        across_order=list(names[across].values()),
        down_order=list(names[down].values()),
    )
    unit = view.metric.unit
    return figure(
        chart,
        cells.with_columns(gain=pl.col("gain") * 100),
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
        span=_heatmap_span(len(view.axes[across]) * len(view.hardware)),
    )


def heatmap_legend(view: SweepView, widest: float) -> Sentence:
    """What the cells of all heatmaps show, and each sign that occurs in one."""
    cells = pl.concat(
        [axis_effects.cells(view, *pair, widest) for pair in axis_effects.pairs(view)], how="diagonal_relaxed"
    )
    signs = {
        " n=a of b: the other configs of the b have no result.": pl.col("why").str.contains("more without"),
        " *: other cells differ from this one in more than the two axes.": pl.col("mixed"),
        " Hatched: not tried.": pl.col("state") == "untried",
        " Outlined: no result.": pl.col("state") == "failed",
    }
    lower = "" if view.higher_is_better else "; lower is better"
    return note(
        f"A cell: the mean in {view.metric.unit} {view.objective_at}, its difference from {_baseline_words(view)}, and "
        f"how many configs (n){lower}. Blue is better; colours end at ±{widest:.0%}.",
        *(words for words, where in signs.items() if cells.filter(where).height),
    )


def _heatmap_span(columns: int) -> Span:
    """What a heatmap with so many columns of cells takes of a wide window."""
    return "third" if columns <= THIRD else "half" if columns <= HALF else "full"


THIRD, HALF = 3, 5
"""Most columns of cells of a heatmap that takes a third, or half, of a wide window."""


def _baseline_words(view: SweepView) -> str:
    baselines = [baseline.phrase for hardware in view.hardware if (baseline := rank(view, hardware).baseline)]
    return " or, on other hardware, ".join(dict.fromkeys(baselines)) or "nothing (no baseline)"


def not_estimable(effects: pl.DataFrame) -> str:
    """The alternatives (`choice`) without an effect, of which `NOT_ESTIMABLE` are named; empty where each has one."""
    missing = effects.filter(pl.col("effect").is_null())["choice"].unique(maintain_order=True).to_list()
    more = f" and {len(missing) - NOT_ESTIMABLE} more" if len(missing) > NOT_ESTIMABLE else ""
    words = f" Not estimable, and in no mean: {', '.join(missing[:NOT_ESTIMABLE])}{more}."
    return words if missing else ""


def pair_effects(view: SweepView) -> Table:
    """What each pair of axes does beyond its parts, by its strongest cell."""
    return table(
        axis_effects.beyond(view).with_columns(pl.col("effect", "low", "high") * 100),
        [
            *([Column(key="hardware", title="Hardware")] if len(view.hardware) > 1 else []),
            Column(key="pair", title="Pair", kind="code"),
            Column(key="cell", title="Strongest cell"),
            *EFFECT_COLUMNS,
            Column(
                key="p_value",
                title="p",
                kind="number",
                digits=3,
                least=0.001,
                help="Chance of as much, if it did nothing.",
            ),
        ],
        name="pairs",
        title="What pairs of axes do beyond their parts",
        note=(
            "Effect: the pair's strongest cell over what its two values do by themselves. p: F test of the whole pair; "
            f"one in twenty is below {axis_effects.CHANCE} by chance."
        ),
    )
