"""The figures of the pages: a chart with its title, its caption and its data.

A caption says what to see, how many measurements stand behind it, under which SLO, and what its interval is.
"""

import hashlib

import altair as alt
import polars as pl

from tokenpeak.metrics import inner
from tokenpeak.ranking.pareto import pareto_front
from tokenpeak.report import charts, interactions
from tokenpeak.report.blocks import Column, Figure, Table, table
from tokenpeak.report.ranking import NOT_RUN, Ranking
from tokenpeak.report.view import SweepView, short_names

SINGLE = (
    "Each config was launched once, so there is no interval: "
    "configs that differ by less than {margin:.0%} are not distinguished."
)
VAGUE = (
    "Launches of one config are too few, or differ too much, for an interval: "
    "configs that differ by less than {margin:.0%} are not distinguished."
)
REPLICATED = (
    "Bars are 95% intervals of the geometric mean over launches; their spread is pooled over all configs "
    "that were launched again, and holds for those launched once too."
)


EFFECT_BARS = (
    "Bars are 95% intervals (t), from what main effects do not explain: noise, and how much axes act together."
)
NOT_ESTIMABLE = 8
"""How many alternatives without an estimate are named below the figure; its data hold all."""
EFFECT_COLUMNS = (
    Column(key="effect", title="Effect", unit="%", kind="number", digits=1, signed=True),
    Column(key="low", title="Low", unit="%", kind="number", digits=1, signed=True),
    Column(key="high", title="High", unit="%", kind="number", digits=1, signed=True),
    Column(key="n", title="Launches", kind="number"),
    Column(key="remark", title="Remark"),
)
BEATEN = 400
"""Most beaten points that a trade-off draws."""


LONGEST_SLUG = 60
"""Three of them make a file's name, which has at most 255 bytes."""


def slug(text: str) -> str:
    """A name for addresses and files: lower case, digits and single dashes; a long one is cut and has a digest."""
    words = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in text.lower()).split("-")
    name = "-".join(word for word in words if word)
    if len(name) <= LONGEST_SLUG:
        return name
    return f"{name[: LONGEST_SLUG - 9]}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"


def interval_words(view: SweepView, ranked: Ranking) -> str:
    """What the intervals of a figure are, or why it has none."""
    if ranked.replicated:
        return REPLICATED
    return (VAGUE if ranked.vague else SINGLE).format(margin=view.spec.search.margin)


def standings(ranked: Ranking) -> pl.DataFrame:
    """The ranking's rows as `charts.dots` draws them, best first.

    Columns: label, low, high, group, n, config_name, value (the objective's mean), marked (the recommended config),
    state, remark (ok, or why there is no value).
    """
    return ranked.frame.select(
        "label",
        "low",
        "high",
        "group",
        "n",
        "config_name",
        pl.col("objective").alias("value"),
        ranked.is_recommended.alias("marked"),
        pl.col("state"),
        pl.col("why").fill_null("").alias("remark"),
    ).with_columns(
        remark=pl.when(pl.col("state") == "ok")
        .then("state")
        .when((pl.col("remark") == NOT_RUN) | (pl.col("state") == "interrupted"))
        .then("remark")
        .otherwise(pl.concat_str("state", pl.lit(": "), "remark"))
    )


def ranking_caption(view: SweepView, ranked: Ranking) -> str:
    """What a figure of `standings` shows, over how many configs, and what its intervals are."""
    configs = ranked.frame.height
    ok = int((ranked.frame["state"] == "ok").sum())
    more = f" The {charts.CHARTED} best are drawn; the table has all {configs}." if configs > charts.CHARTED else ""
    band = " The band holds the configs tied with the best; the diamond is the recommended config."
    dashed = f" The dashed line is {ranked.baseline.words}." if ranked.baseline else ""
    return (
        f"{view.metric_title} {view.objective_at} for {ok} of {configs} configs; "
        f"{_axes_words(view)}.{band if ranked.ties.height else ''}{dashed} {interval_words(view, ranked)}{more}"
    )


def ranking(view: SweepView, ranked: Ranking, chart: alt.TopLevelMixin | None = None) -> Figure:
    """All configs of one kind of hardware, failed ones with their cause, on one axis or as `chart` has them."""
    unit = view.metric.unit
    frame = standings(ranked)
    drawn = chart or charts.dots(frame, title=unit, reference=ranked.reference)
    return Figure(
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"{view.metric_title} on {ranked.hardware}",
        caption=ranking_caption(view, ranked),
        spec=charts.spec_of(drawn),
        data=table(
            frame,
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="value", title=view.metric_title, unit=unit, kind="number"),
                Column(key="low", title="Low", unit=unit, kind="number"),
                Column(key="high", title="High", unit=unit, kind="number"),
                Column(key="n", title="Launches", kind="number"),
                Column(key="group", title="Group"),
                Column(key="remark", title="Result"),
            ],
            name="data",
            title=f"Data of the figure: {ranked.hardware}",
        ),
    )


def _axes_words(view: SweepView) -> str:
    return "labels give " + " / ".join(view.axes) if view.axes else "labels give the config's name"


def heatmap(view: SweepView, across: str, down: str, widest: float) -> Figure:
    """Two axes against each other on each kind of hardware."""
    cells = interactions.cells(view, across, down, widest)
    others = [axis for axis, choices in view.axes.items() if axis not in (across, down) and len(choices) > 1]
    mean = f"the mean over {', '.join(others)} (n configs)" if others else "a config"
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
    legend = {
        " Where n is a of b, the others of the b configs have no result.": pl.col("why").str.contains("more without"),
        " Hatched: not tried.": pl.col("state") == "untried",
        " Outlined: no result.": pl.col("state") == "failed",
    }
    return Figure(
        name=f"heatmap-{slug(across)}-{slug(down)}",
        title=f"{across} × {down}",
        caption=(
            f"{view.metric_title} ({view.metric.unit}) {view.objective_at}; each cell is {mean}, "
            f"below it the difference from {_baseline_words(view)}"
            f"{'' if view.higher_is_better else ', where lower is better'}. "
            f"Colours end at ±{widest:.0%} in every figure."
            + "".join(words for words, where in legend.items() if cells.filter(where).height)
        ),
        spec=charts.spec_of(chart),
        data=table(
            cells.with_columns(gain=pl.col("gain") * 100),
            [
                Column(key="hardware", title="Hardware"),
                Column(key="across", title=across, kind="code"),
                Column(key="down", title=down, kind="code"),
                Column(key="value", title="Mean over configs", unit=view.metric.unit, kind="number"),
                Column(key="best", title="Best", unit=view.metric.unit, kind="number"),
                Column(key="gain", title="Difference", unit="%", kind="number", digits=1, signed=True),
                Column(key="n", title="Configs", kind="number"),
                Column(key="why", title="Remark"),
            ],
            name="data",
            title=f"Data of the figure: {across} × {down}",
        ),
    )


def _baseline_words(view: SweepView) -> str:
    from tokenpeak.report.ranking import rank

    baselines = [baseline.words for hardware in view.hardware if (baseline := rank(view, hardware).baseline)]
    return " or, on other hardware, ".join(dict.fromkeys(baselines)) or "nothing (no baseline)"


def not_estimable(view: SweepView, effects: pl.DataFrame) -> str:
    """The alternatives (`choice`) without an effect, of which `NOT_ESTIMABLE` are named; empty where each has one."""
    missing = effects.filter(pl.col("effect").is_null())["choice"].unique(maintain_order=True).to_list()
    somewhere = "" if len(view.hardware) == 1 else " on some hardware"
    more = f" and {len(missing) - NOT_ESTIMABLE} more" if len(missing) > NOT_ESTIMABLE else ""
    words = f" Not estimable{somewhere}, and in no mean: {', '.join(missing[:NOT_ESTIMABLE])}{more}."
    return words if missing else ""


def pair_effects(view: SweepView) -> Table:
    """What each pair of axes does beyond its parts, by its strongest cell."""
    return table(
        interactions.beyond(view).with_columns(pl.col("effect", "low", "high") * 100),
        [
            Column(key="hardware", title="Hardware"),
            Column(key="pair", title="Pair", kind="code"),
            Column(key="cell", title="Strongest cell"),
            *EFFECT_COLUMNS,
            Column(key="p_value", title="p", kind="number", digits=3, help="Chance of as much, if it did nothing."),
        ],
        name="pairs",
        title="What pairs of axes do beyond their parts",
        note=(
            f"Effect: {inner(view.metric_title)} at the pair's strongest cell over what its two values do by "
            f"themselves. p: an F test of the whole pair. One in twenty pairs is below {interactions.CHANCE} by chance."
        ),
    )


def front(points: pl.DataFrame) -> pl.Series:
    """Which points nothing beats in both x and y (higher is better)."""
    kept = pareto_front(dict(enumerate(points.select("x", "y").iter_rows())), ("higher", "higher"))
    return pl.int_range(points.height, eager=True).is_in(kept).alias("front")


def _named(points: pl.DataFrame) -> pl.Series:
    """The label of each point of the front and of the recommended config; nothing where it would stand on another's."""
    wide = float(points["x"].max() or 1) - float(points["x"].min() or 0) or 1.0  # type: ignore[arg-type]
    high = float(points["y"].max() or 1) - float(points["y"].min() or 0) or 1.0  # type: ignore[arg-type]
    placed: list[tuple[float, float]] = []
    names = [""] * points.height
    shown = points.with_row_index("i").filter(pl.col("front") | pl.col("taken"))
    for row in shown.sort("taken", "y", descending=True).iter_rows(named=True):
        place = (row["x"] / wide, row["y"] / high)
        if all(abs(place[0] - x) > 0.25 or abs(place[1] - y) > 0.05 for x, y in placed):
            placed.append(place)
            names[row["i"]] = f"{row['label']} at {row['level']}"
    return pl.Series("named", names, dtype=pl.String)


def front_points(points: pl.DataFrame, recommended: str | None) -> pl.DataFrame:
    """The points (label, level, x, y, n; more of x and y is better) as `charts.tradeoff` draws them.

    It adds front (no other beats it in both), "taken" (of the config with the label `recommended`) and named (the words
    at the point, or nothing).
    """
    marked = points.with_columns(front(points), pl.col("label").eq_missing(pl.lit(recommended)).alias("taken"))
    return marked.with_columns(named=_named(marked))


def thinned(points: pl.DataFrame) -> pl.DataFrame:
    """The points of the front and of the recommended config, and of the others an even choice, `BEATEN` at most."""
    kept = pl.col("front") | pl.col("taken")
    beaten = points.filter(~kept)
    return pl.concat([points.filter(kept), beaten.gather_every(max(1, -(-beaten.height // BEATEN)))])


def front_words(points: pl.DataFrame, drawn: pl.DataFrame) -> str:
    """How to read a trade-off of these points, of which those in `drawn` are drawn."""
    line = "the line joins those that no other beats in both. " if points["front"].sum() > 1 else ""
    beaten = drawn.filter(~pl.col("front"), ~pl.col("taken")).height
    chosen = f", of which an even choice of {beaten} is drawn" if drawn.height < points.height else ""
    marks = points.filter(pl.col("taken"))
    diamonds = "The diamond is" if marks.height == 1 else "Diamonds are"
    marked = f" {diamonds} the recommended config, {marks['label'][0]}." if marks.height else ""
    return f"{line}{'Up' if line else 'up'} and to the right is better. Pale points are beaten{chosen}.{marked}"
