"""The figures of the pages: a chart with its title, its caption and its data.

A caption says what to see, how many measurements stand behind it, under which SLO, and what its interval is.
"""

import hashlib

import altair as alt
import polars as pl

from tokenpeak.report import charts, interactions, theme
from tokenpeak.report.blocks import Column, Figure, Sentence, Span, Table, note, table
from tokenpeak.report.ranking import NOT_RUN, Ranking
from tokenpeak.report.standing_words import COMPLETED
from tokenpeak.report.view import SweepView, short_names

SINGLE = "{once}: no interval, and differences below {margin:.0%} are not distinguished."
VAGUE = "Launches are too few or too unlike for an interval: differences below {margin:.0%} are not distinguished."
REPLICATED = "Bars: 95% intervals of means over launches, by a spread that is pooled over all configs."


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
    once = view.lone_words("Each was launched once").capitalize()
    return (VAGUE if ranked.vague else SINGLE).format(once=once, margin=view.spec.search.margin)


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
        .then(pl.lit(COMPLETED))
        .when((pl.col("remark") == NOT_RUN) | (pl.col("state") == "interrupted"))
        .then("remark")
        .otherwise(pl.concat_str("state", pl.lit(": "), "remark"))
    )


def ranking_caption(view: SweepView, ranked: Ranking, drawn: int = charts.CHARTED) -> str:
    """What a figure of the first `drawn` of `standings` shows, over how many configs, and what its intervals are."""
    configs = ranked.frame.height
    ok = int((ranked.frame["state"] == "ok").sum())
    words = [f"{view.metric_title} {view.objective_at} of {ok} of {configs} configs; {_axes_words(view)}."]
    if ranked.ties.height:
        words.append("Blue band: where those tied with the best lie. Diamond: recommended.")
    if ranked.baseline:
        words.append(f"Dashed: {ranked.baseline.phrase}.")
    words.append(interval_words(view, ranked))
    if configs > drawn:
        words.append(f"The {drawn} best are drawn; the table has all {configs}.")
    return " ".join(words)


def ranking(
    view: SweepView, ranked: Ranking, chart: alt.TopLevelMixin | None = None, *, drawn: int = charts.CHARTED
) -> Figure:
    """All configs of one kind of hardware, failed ones with their cause, on one axis.

    Or as `chart` has them, which draws the first `drawn` of them.
    """
    unit = view.metric.unit
    frame = standings(ranked)
    picture = chart or charts.dots(frame, title=unit, reference=ranked.reference, width=theme.HALF)
    return Figure(
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"{view.metric_title} on {ranked.hardware}",
        caption=ranking_caption(view, ranked, drawn),
        spec=charts.spec_of(picture),
        span="narrow",
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
    return Figure(
        name=f"heatmap-{slug(across)}-{slug(down)}",
        title=f"{across} × {down}",
        caption=caption,
        spec=charts.spec_of(chart),
        span=_heatmap_span(len(view.axes[across]) * len(view.hardware)),
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


def heatmap_legend(view: SweepView, widest: float) -> Sentence:
    """What the cells of all heatmaps show, and each sign that occurs in one."""
    cells = pl.concat(
        [interactions.cells(view, *pair, widest) for pair in interactions.pairs(view)], how="diagonal_relaxed"
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
        f"how many configs (n){lower}.",
        *(words for words, where in signs.items() if cells.filter(where).height),
    )


def _heatmap_span(columns: int) -> Span:
    """What a heatmap with so many columns of cells takes of a wide window."""
    return "third" if columns <= THIRD else "half" if columns <= HALF else "full"


THIRD, HALF = 3, 5
"""Most columns of cells of a heatmap that takes a third, or half, of a wide window."""


def pair_matrix(view: SweepView, hardware: str, widest: float) -> Figure | None:
    """Every pair of axes at a glance on one kind of hardware; None where there are not three axes to pair."""
    axes = [axis for axis in view.axes if any(axis in pair for pair in interactions.pairs(view))]
    if len(axes) < 3:
        return None
    names = {axis: short_names(view.axes[axis]) for axis in axes}
    frames = {
        (across, down): interactions.cells(view, across, down, widest)
        .filter(hardware=hardware)
        .with_columns(pl.col("across").replace(names[across]), pl.col("down").replace(names[down]))
        for place, down in enumerate(axes)
        for across in axes[:place]
    }
    data = pl.concat(
        [
            frame.with_columns(pair=pl.lit(f"{across} × {down}"), gain=pl.col("gain") * 100)
            for (across, down), frame in frames.items()
        ],
        how="diagonal_relaxed",
    )
    return Figure(
        name=f"matrix-{slug(hardware)}",
        title=f"Every pair of axes{view.where(hardware)}",
        caption=(
            "Each cell: the mean over the other axes, of the configs that have a result, against "
            f"{_baseline_words(view)}; blue is better, colours end at ±{widest:.0%}. Hatched: not tried. "
            "Rows that change colour differently mean that the settings interact."
        ),
        spec=charts.spec_of(charts.matrix(frames, {axis: list(names[axis].values()) for axis in axes})),
        span="half",
        scope=f"matrix-{slug(hardware)}",
        data=table(
            data,
            [
                Column(key="pair", title="Pair", kind="code"),
                Column(key="across", title="First", kind="code"),
                Column(key="down", title="Second", kind="code"),
                Column(key="value", title="Mean over configs", unit=view.metric.unit, kind="number"),
                Column(key="gain", title="Difference", unit="%", kind="number", digits=1, signed=True),
                Column(key="n", title="Configs", kind="number"),
                Column(key="why", title="Remark"),
            ],
            name="data",
            title=f"Data of the figure: every pair of axes on {hardware}",
        ),
    )


def _baseline_words(view: SweepView) -> str:
    from tokenpeak.report.ranking import rank

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
        interactions.beyond(view).with_columns(pl.col("effect", "low", "high") * 100),
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
            f"one in twenty is below {interactions.CHANCE} by chance."
        ),
    )
