"""The figures of the pages: a chart with its title, its caption and its data.

A caption says what to see, how many measurements stand behind it, under which SLO, and what its interval is.
"""

import hashlib

import polars as pl

from tokenpeak.metrics import BY_NAME, inner
from tokenpeak.report import charts, energy, interactions
from tokenpeak.report.blocks import Column, Figure, Table, shared_digits, table
from tokenpeak.report.ranking import NOT_RUN, Ranking
from tokenpeak.report.view import SweepView, short_names
from tokenpeak.stats.pareto import pareto_front

SINGLE = (
    "Each config was launched once, so there is no interval: "
    "configs that differ by less than {margin:.0%} are not told apart."
)
VAGUE = (
    "Launches of one config are too few, or differ too much, for an interval: "
    "configs that differ by less than {margin:.0%} are not told apart."
)
REPLICATED = (
    "Bars are 95% intervals of the geometric mean over launches; their spread is pooled over all configs "
    "that were launched again, and holds for those launched once too."
)


EFFECT_BARS = (
    "Bars are 95% intervals (t), from what main effects do not explain: noise, and how much axes act together."
)
NOT_ESTIMABLE = 8
"""How many alternatives that the trials cannot tell are named below the figure; its data hold all."""
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


def ranking(view: SweepView, ranked: Ranking) -> Figure:
    """All configs of one kind of hardware on one axis, failed ones with their cause."""
    unit = view.metric.unit
    frame = ranked.frame.select(
        "label",
        "low",
        "high",
        "group",
        "n",
        "config_name",
        pl.col("objective").alias("value"),
        ranked.is_taken.alias("marked"),
        pl.col("state"),
        pl.col("why").fill_null("").alias("remark"),
    ).with_columns(
        remark=pl.when(pl.col("state") == "ok")
        .then("state")
        .when((pl.col("remark") == NOT_RUN) | (pl.col("state") == "interrupted"))
        .then("remark")
        .otherwise(pl.concat_str("state", pl.lit(": "), "remark"))
    )
    ok = int((frame["state"] == "ok").sum())
    reference = (
        (ranked.baseline.value, "median" if ranked.baseline.config_id is None else ranked.baseline.words)
        if ranked.baseline
        else None
    )
    more = (
        f" The {charts.CHARTED} best are drawn; the table has all {frame.height}."
        if frame.height > charts.CHARTED
        else ""
    )
    tied = bool((frame["group"] == "tie").any())
    band = (
        " The band holds the configs that cannot be told from the best; the diamond is the one to take." if tied else ""
    )
    dashed = f" The dashed line is {ranked.baseline.words}." if ranked.baseline else ""
    return Figure(
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"{view.metric_title} on {ranked.hardware}",
        caption=(
            f"{view.metric_title} {view.objective_at} for {ok} of {frame.height} configs; "
            f"{_axes_words(view)}.{band}{dashed} {interval_words(view, ranked)}{more}"
        ),
        spec=charts.spec_of(
            charts.dots(
                frame,
                title=unit,
                reference=reference,
                tooltips=["value:Q", "low:Q", "high:Q", "n:Q"],
                digits=f",.{shared_digits(frame['value'])}f",
            )
        ),
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


def main_effects(view: SweepView) -> Figure:
    """What each alternative does by itself."""
    short = {name: word for names in view.axes.values() for name, word in short_names(names).items()}
    effects = interactions.effects(view).with_columns(
        choice=pl.concat_str("axis", pl.lit(" = "), pl.col("alternative").replace(short))
    )
    told = effects.drop_nulls("effect")
    bars = EFFECT_BARS if told["low"].is_not_null().any() else "Too few launches for an interval."
    untold = effects.filter(pl.col("effect").is_null())["choice"].unique(maintain_order=True).to_list()
    somewhere = "" if len(view.hardware) == 1 else " on some hardware"
    more = f" and {len(untold) - NOT_ESTIMABLE} more" if len(untold) > NOT_ESTIMABLE else ""
    left = f" Not estimable{somewhere}: {', '.join(untold[:NOT_ESTIMABLE])}{more}." if untold else ""
    return Figure(
        name="effects",
        title="What each alternative does by itself",
        caption=(
            f"Difference in {inner(view.metric_title)} from the mean of its axis, other axes being equal: "
            f"least squares over configs, each by the mean of its launches. {bars}{left}"
        ),
        spec=charts.spec_of(charts.effects(told.drop("told", "remark"), title="from the axis's mean")),
        data=table(
            effects.with_columns(pl.col("effect", "low", "high") * 100),
            [
                Column(key="hardware", title="Hardware"),
                Column(key="axis", title="Axis", kind="code"),
                Column(key="alternative", title="Alternative", kind="code"),
                *EFFECT_COLUMNS,
            ],
            name="data",
            title="Data of the figure: main effects",
        ),
    )


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
            f"themselves. p: an F test of the whole pair; of many pairs, one in twenty is below {interactions.CHANCE} "
            "by chance."
        ),
    )


def energy_dots(view: SweepView, hardware: str, taken: str | None) -> Figure:
    """Energy per output token of each config; `taken` is the id of the config to take."""
    frame = energy.per_config(view, hardware)
    is_taken = pl.col("config_id").eq_missing(pl.lit(taken))
    shown = frame.with_columns(
        value=pl.col("energy_j_per_output_tok"),
        remark=pl.lit(""),
        group=pl.when(is_taken).then(pl.lit("best")).otherwise(pl.lit("")),
        marked=is_taken,
    )
    sources = " and ".join(sorted(set(frame["source"].to_list())))
    boundary = " and ".join(sorted(set(frame["boundary"].to_list())))
    several = bool(frame["low"].is_not_null().any())
    tried = view.trials.filter(pl.col("hardware") == hardware)["config_id"].n_unique()
    return Figure(
        name=f"energy-{slug(hardware)}",
        title=f"Energy per output token on {hardware}",
        caption=(
            f"J per output token at {view.objective_place} for {frame.height} of {tried} configs; {sources}; "
            f"boundary: {boundary}, before PUE. "
            + ("Bars span the launches." if several else "One launch each: no interval.")
            + (" The diamond is the config to take." if shown["marked"].any() else "")
        ),
        spec=charts.spec_of(
            charts.dots(
                shown,
                title="J per output token",
                reference=None,
                tooltips=["value:Q", "n:Q"],
                digits=f",.{shared_digits(shown['value'])}f",
                zero=True,
            )
        ),
        data=table(
            shown,
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="value", title=BY_NAME["energy_j_per_output_tok"].title, unit="J/token", kind="number"),
                Column(key="low", title="Low", unit="J/token", kind="number"),
                Column(key="high", title="High", unit="J/token", kind="number"),
                Column(key="n", title="Launches", kind="number"),
                Column(key="source", title="Source"),
            ],
            name="data",
            title=f"Data of the figure: energy on {hardware}",
        ),
    )


def front(points: pl.DataFrame) -> pl.Series:
    """Which points nothing beats in both x and y (higher is better)."""
    kept = pareto_front(dict(enumerate(points.select("x", "y").iter_rows())), ("higher", "higher"))
    return pl.int_range(points.height, eager=True).is_in(kept).alias("front")


def speeds(view: SweepView, hardware: str) -> pl.DataFrame:
    """What each config gave at each load level: geometric means over its n launches, as in the ranking.

    Columns: workload_name, label, level_label, user (tok/s of the median request), whole (tok/s of all), gpus (that the
    config's engine takes), n.
    """
    runs = view.same_requests().filter(
        pl.col("hardware") == hardware,
        pl.col("verdict") != "invalid",
        pl.col("output_tok_per_s") > 0,
        pl.col("request_output_tok_per_s_p50") > 0,
    )
    return runs.group_by("workload_name", "label", "level_label", maintain_order=True).agg(
        user=pl.col("request_output_tok_per_s_p50").log().mean().exp(),
        whole=pl.col("output_tok_per_s").log().mean().exp(),
        gpus=pl.col("config_id").first().replace_strict(view.gpus_taken(hardware), return_dtype=pl.Int64),
        n=pl.len(),
    )


def tradeoffs(view: SweepView, hardware: str, taken: str | None) -> list[Figure]:
    """Speed of one user against throughput of one GPU, over all configs and load levels, for each workload.

    GPUs of the node that a config's engine does not take are not counted; where there is none, the throughput is the
    node's. `taken` is the label of the config to take; None where none is recommended.
    """
    made = (_tradeoff(view, hardware, plan.workload.name, taken) for plan in view.spec.workloads)
    return [figure for figure in made if figure.data.rows]


def _names(points: pl.DataFrame) -> pl.Series:
    """What stands at each point of the front, and at the config to take; nothing where it would stand on another's."""
    wide = float(points["x"].max() or 1) - float(points["x"].min() or 0) or 1.0  # type: ignore[arg-type]
    high = float(points["y"].max() or 1) - float(points["y"].min() or 0) or 1.0  # type: ignore[arg-type]
    taken: list[tuple[float, float]] = []
    names = [""] * points.height
    shown = points.with_row_index("i").filter(pl.col("front") | pl.col("taken"))
    for row in shown.sort("taken", "y", descending=True).iter_rows(named=True):
        place = (row["x"] / wide, row["y"] / high)
        if all(abs(place[0] - x) > 0.25 or abs(place[1] - y) > 0.05 for x, y in taken):
            taken.append(place)
            names[row["i"]] = f"{row['label']} at {row['level']}"
    return pl.Series("named", names, dtype=pl.String)


def _tradeoff(view: SweepView, hardware: str, workload: str, taken: str | None) -> Figure:
    own = speeds(view, hardware).filter(pl.col("workload_name") == workload)
    of = "GPU" if view.gpus_of(hardware) else "node"
    whole = pl.col("whole") / pl.max_horizontal("gpus", 1)
    points = own.select("label", pl.col("level_label").alias("level"), x="user", y=whole, n="n")
    points = points.with_columns(front(points), taken=pl.col("label").eq_missing(pl.lit(taken)))
    points = points.with_columns(named=_names(points))
    kept = pl.col("front") | pl.col("taken")
    beaten = points.filter(~kept)
    step = max(1, -(-beaten.height // BEATEN))
    drawn = pl.concat([points.filter(kept), beaten.gather_every(step)])
    chosen = f", of which an even choice of {beaten.height // step} is drawn" if step > 1 else ""
    diamonds = "The diamond is" if points["taken"].sum() == 1 else "Diamonds are"
    marked = f" {diamonds} the config to take, {taken}." if points["taken"].any() else ""
    line = "the line joins those that no other beats in both. " if points["front"].sum() > 1 else ""
    under = f", {workload}" if len(view.spec.workloads) > 1 else ""
    counted = " A GPU that a config's engine does not take is not counted." if own["gpus"].n_unique() > 1 else ""
    return Figure(
        name=f"tradeoff-{slug(hardware)}-{slug(workload)}",
        title=f"A user's speed against a {of}'s throughput on {hardware}{under}",
        caption=(
            f"Each point is a config at a load level of {workload} (n={points.height}, launches averaged); {line}"
            f"{'Up' if line else 'up'} and to the right is better. Pale points are beaten{chosen}.{marked}{counted}"
        ),
        spec=charts.spec_of(
            charts.tradeoff(
                drawn,
                x_title="median output speed of a request (tok/s per user)",
                y_title=f"output throughput (tok/s per {of})",
            )
        ),
        data=table(
            points.sort("front", "x", descending=True),
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="level", title="Load"),
                Column(key="x", title="Speed of a request p50", unit="tok/s per user", kind="number"),
                Column(key="y", title="Output throughput", unit=f"tok/s per {of}", kind="number"),
                Column(key="front", title="On the front"),
                *([Column(key="taken", title="To take")] if marked else []),
                Column(key="n", title="Runs", kind="number"),
            ],
            name="data",
            title=f"Data of the figure: trade-off on {hardware}",
        ),
    )
