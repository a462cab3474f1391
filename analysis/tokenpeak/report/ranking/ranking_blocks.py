"""Figure and table of the ranking of one kind of hardware, and the sentence that says how all configs stand."""

from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import polars as pl

from tokenpeak.metrics import PER_GPU
from tokenpeak.paths import slug
from tokenpeak.predict.hardware import GIB
from tokenpeak.ranking.objective import column_of
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Figure, Part, Sentence, Table, answer, strong, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import counted, number
from tokenpeak.report.blocks.metric_columns import (
    BEHIND,
    COMPLETED,
    MILLI,
    RANK,
    RESULT,
    SLO,
    UNPROVEN,
    confidence_column,
    confidence_percent,
    in_milliseconds,
    metric_column,
    slo_word,
    trial_href,
)
from tokenpeak.report.ranking.standings import FEW, NOT_RUN, Ranking, measured_columns
from tokenpeak.report.view import SweepView

SINGLE = "{once}: no interval, and differences below {margin:.0%} are not distinguished."
VAGUE = "Launches are too few or too unlike for an interval."
REPLICATED = "Bars are comparison intervals: one that overlaps the best's is tied with it."
TIED = " Tied configs are not distinguished. The 95% columns are intervals of means; the figure's bars compare configs."
HOLDOUT = "One more launch of the search's choice, on fresh requests, which selected nothing"


def interval_words(view: SweepView, ranked: Ranking) -> str:
    """Meaning of a figure's intervals, or why it has none."""
    if ranked.replicated:
        is_without = ranked.frame.select((pl.col("state") == "ok") & pl.col("bar_low").is_null()).to_series().any()
        kept = " Configs that may not be run have none." if is_without else ""
        return f"{REPLICATED} Bars narrower than a mark are hidden by it.{kept}"
    if ranked.vague:
        return VAGUE
    return SINGLE.format(once=view.lone_words("Each was launched once").capitalize(), margin=view.spec.search.margin)


def distinguishable_words(ranked: Ranking) -> str:
    """Which differences the sweep shows, after a blank; empty where that is not known."""
    least = ranked.decision.distinguishable
    return "" if least is None else f" This sweep shows differences above {least:.0%}."


def standings(ranked: Ranking) -> pl.DataFrame:
    """The ranking's rows as `charts.dots` draws them, best first.

    Columns: label, low and high (of the comparison interval), group, n, config_name, value (the objective as shown),
    marked (the decision's config, where it is known what to run), state, remark (ok, or why there is no value). Without
    intervals no config has a group.
    """
    return ranked.frame.select(
        "label",
        pl.col("bar_low").alias("low"),
        pl.col("bar_high").alias("high"),
        pl.col("group") if ranked.replicated else pl.lit("").alias("group"),
        "n",
        "config_name",
        pl.col("shown").alias("value"),
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
    """Caption of a figure of the first `drawn` of `standings`: over how many configs, and what its intervals are."""
    configs = ranked.frame.height
    ok = int((ranked.frame["state"] == "ok").sum())
    words = [f"{view.metric_title} {view.objective_at} of {ok} of {configs} configs; {_axes_words(view)}."]
    if ranked.replicated and ranked.ties.height:
        words.append("Blue: tied with the best that may be run.")
    if ranked.is_known:
        words.append(f"Diamond: {ranked.mark}.")
    if ranked.baseline:
        words.append(f"Dashed: {ranked.baseline.phrase}.")
    words.append(interval_words(view, ranked))
    if configs > drawn:
        words.append(f"The {drawn} best are drawn; the table has all {configs}.")
    return " ".join(words)


def ranking_figure(
    view: SweepView, ranked: Ranking, chart: alt.TopLevelMixin | None = None, *, drawn: int = charts.CHARTED
) -> Figure:
    """All configs of one kind of hardware, failed ones with their cause, on one axis.

    Or as `chart` has them, which draws the first `drawn` of them.
    """
    unit = view.metric.unit
    frame = standings(ranked)
    picture = chart or charts.dots(frame, title=unit, reference=ranked.reference, width=theme.HALF)
    return figure(
        picture,
        frame,
        {
            "label": "`Config`",
            **{
                key: Column(key=key, title=title, unit=unit, kind="number")
                for key, title in (("value", view.metric_title), ("low", "Bar from"), ("high", "Bar to"))
            },
            "n": "Launches",
            "group": "Group",
            "remark": "Result",
        },
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"{view.metric_title} on {ranked.hardware}",
        caption=ranking_caption(view, ranked, drawn),
        span="narrow",
    )


def _axes_words(view: SweepView) -> str:
    return "labels give " + " / ".join(view.axes) if view.axes else "labels give the config's name"


def standing(view: SweepView, ranked: Sequence[Ranking]) -> Sentence:
    """How many configs were tried on how much hardware, and what became of them."""
    state = pl.when(pl.col("why") == NOT_RUN).then(pl.lit("not run")).otherwise("state").alias("state")
    states = pl.concat([each.frame.select(state) for each in ranked]).group_by("state").len() if ranked else None
    counts = dict(states.iter_rows()) if states is not None else {}
    kinds = counted(len(ranked), "kind of hardware", "kinds of hardware")
    ok = counts.get("ok", 0)
    words = f"{counted(ok, 'config', 'configs') if ok else 'No config'} gave a result on {kinds}"
    if counts.get("invalid"):
        words += f", {counts['invalid']} gave one that may not be ranked"
    if counts.get("not run"):
        words += f", {counts['not run']} {'was' if counts['not run'] == 1 else 'were'} not run under its load"
    if counts.get("failed"):
        words += f", {counts['failed']} failed"
    if counts.get("interrupted"):
        words += f", {counts['interrupted']} {'was' if counts['interrupted'] == 1 else 'were'} interrupted"
    return answer(f"{words}. ", *(part for each in ranked[:FEW] for part in _span_words(view, each, len(ranked))))


def _span_words(view: SweepView, ranked: Ranking, kinds: int) -> list[Part]:
    """From worst to best, and how many are as good as the best."""
    values = ranked.frame["shown"].drop_nulls()
    if values.len() < 2:
        return []
    ends = sorted((float(values.min()), float(values.max())), reverse=not view.higher_is_better)  # type: ignore[arg-type]
    where = f" on {ranked.hardware}" if kinds > 1 else ""
    spread = strong(f"{number(ends[0])} to {number(ends[1])} {view.metric.unit}")
    ties = ranked.ties.height
    kept = ranked.frame["kept_back"].is_not_null().sum()
    of = "of those that may be run, " if kept else ""
    close = "tied with the best" if ranked.replicated else f"within {view.spec.search.margin:.0%} of the best"
    tied = f"{of}{counted(ties, 'other is', 'others are') if ties else 'no other is'} {close}"
    if ranked.decision.outcome == "none_holds":
        tied = "none holds the SLO"
    return ["From worst to best they span ", spread, f"{where}; {tied}.{distinguishable_words(ranked)} "]


def ranking_table(view: SweepView, ranked: Ranking) -> Table:
    """Every config of one kind of hardware, failed and invalid ones with their reason."""
    title = view.metric_title
    objective = view.spec.objective.metric
    frame = in_milliseconds(ranked.frame).with_columns(
        objective="shown",
        href=trial_href(pl.col("trial_id")),
        gain=pl.col("gain") * 100,
        confidence=confidence_percent(pl.col("slo_confidence")),
        tone=pl.when(pl.col("state") != "ok")
        .then(pl.lit("pale"))
        .when(ranked.is_recommended)
        .then(pl.lit("best"))
        .otherwise(pl.col("group").replace("best", "tie") if ranked.replicated else pl.lit("")),
        slo=slo_word(pl.col("slo_met"), pl.col("slo_confidence")),
        also=pl.when(pl.col("alike").list.len() > 0).then(
            pl.format("also {}: cannot differ", pl.col("alike").list.join(", "))
        ),
        result=pl.when(ranked.is_chosen & (ranked.decision.outcome != "not_known"))
        .then(pl.lit(ranked.mark))
        .when(pl.col("kept_back").is_not_null())
        .then("kept_back")
        .when(pl.col("group") == "best")
        .then(pl.lit(_top(view, ranked)))
        .when(pl.col("group") == "tie")
        .then(pl.lit("tied" if ranked.replicated else UNPROVEN))
        .when(pl.col("state") == "ok")
        .then(pl.lit(BEHIND if ranked.replicated else UNPROVEN))
        .when(pl.col("why") == NOT_RUN)
        .then(None)
        .otherwise(pl.col("state")),
    )
    measured = [
        name
        for name in measured_columns(view)
        if name in frame.columns and name != objective and frame[name].is_not_null().any()
    ]
    # Of engines on one GPU each, a GPU gives what the engine gives.
    for whole, per_gpu in PER_GPU.items():
        if whole in frame.columns and per_gpu in measured and frame[whole].equals(frame[per_gpu]):
            measured.remove(per_gpu)
    shown = {
        *view.latency_columns,
        *(each for pair in PER_GPU.items() for each in pair if view.differ_in_gpus(ranked.hardware)),
    }
    axes = [Column(key=f"axis_{axis}", title=axis, kind="code", hidden=True) for axis in view.axes]
    scale = 1000.0 if view.metric.name in MILLI else 1.0
    frame = frame.with_columns(pl.col("objective", "low", "high", "objective_holdout", "objective_unproven") * scale)
    frame = frame.with_columns(kv_cache_gib=pl.col("kv_cache_bytes") / GIB, weights_gib=pl.col("weights_bytes") / GIB)
    unit = "ms" if scale != 1.0 else view.metric.unit
    rests_on = "Launches with a result" if view.launches_known else "Published figures; launches are not known"
    against = f"Against {ranked.baseline.words if ranked.baseline and ranked.baseline.config_id else 'median'}"
    if view.spec.objective.is_rate and (frame["each_launch"] != "").any():
        # The column beside it has the lowest launch.
        against += ", means"
    return table(
        frame,
        [
            Column(key="label", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="rank", title="Rank", kind="number", help=RANK),
            *axes,
            Column(key="objective", title=title, unit=unit, kind="number"),
            *(
                [Column(key="each_launch", title="Each launch", unit=unit)]
                if (frame["each_launch"] != "").any()
                else []
            ),
            *_quality_columns(frame, unit),
            Column(key="low", title="95% low", unit=unit, kind="number", hidden=not ranked.replicated),
            Column(key="high", title="95% high", unit=unit, kind="number", hidden=not ranked.replicated),
            Column(key="result", title="Result", kind="state", help=RESULT),
            Column(key="gain", title=against, unit="%", kind="number", digits=1, signed=True),
            Column(key="n", title="n", kind="number", help=rests_on),
            *(
                [Column(key="objective_holdout", title="Holdout run", unit=unit, kind="number", help=HOLDOUT)]
                if frame["objective_holdout"].is_not_null().any()
                else []
            ),
            *([Column(key="slo", title="SLO", kind="state", help=SLO)] if frame["slo"].is_not_null().any() else []),
            *(replace(column, hidden=True) for column in confidence_column(frame)),
            *[metric_column(name, currency=view.spec.energy.currency, hidden=name not in shown) for name in measured],
            *_room_columns(frame, hidden=view.record.imported is None),
            *(
                [Column(key="stated_quality", title="Quality, as stated")]
                if frame["stated_quality"].is_not_null().any()
                else []
            ),
            *([Column(key="also", title="Stands for")] if frame["also"].is_not_null().any() else []),
            *([Column(key="why", title="Why not")] if frame["why"].is_not_null().any() else []),
            Column(key="details", title="Why not, in full", hidden=True),
            Column(key="config_id", title="Config id", kind="code", hidden=True),
        ],
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"All configs on {ranked.hardware}",
        tone="tone",
        hrefs={"label": "href"},
        note="A config's link leads to its first trial. Ranks go by means before rounding, so equal figures may differ "
        "in rank." + (TIED if ranked.replicated else ""),
        span="wide",
    )


def _room_columns(frame: pl.DataFrame, *, hidden: bool) -> list[Column]:
    """Weights and KV cache of each config, as far as engines' logs or a publication state them."""
    columns = [
        Column(key="weights_gib", title="Weights of one GPU", unit="GiB", kind="number", digits=2, hidden=hidden),
        Column(key="kv_cache_gib", title="KV cache of one GPU", unit="GiB", kind="number", digits=2, hidden=True),
        Column(key="kv_cache_tokens", title="KV cache", unit="tokens", kind="number", hidden=True),
        Column(
            key="max_concurrency",
            title="Requests that fit",
            kind="number",
            digits=1,
            hidden=True,
            help="Requests of the full context that fit the KV cache, from the engine's log",
        ),
    ]
    return [column for column in columns if frame[column.key].is_not_null().any()]


def _top(view: SweepView, ranked: Ranking) -> str:
    """What the table calls the best of those that may be run."""
    if ranked.replicated and ranked.ties.height:
        return "tied"
    return "best" if ranked.replicated and ranked.is_known else f"{_end(view)}, {UNPROVEN}"


def _end(view: SweepView) -> str:
    return "highest" if view.higher_is_better else "lowest"


def _quality_columns(frame: pl.DataFrame, unit: str) -> list[Column]:
    """Whether answers are the reference's, and the speed of those that are not; nothing where none were compared."""
    if frame["quality"].is_null().all():
        return []
    speed = Column(
        key="objective_unproven",
        title="If its answers were right",
        unit=unit,
        kind="number",
        help="What was measured of a config whose answers failed or are not proven; it is not ranked",
    )
    return [
        Column(key="quality", title="Quality", kind="state", help="Whether its answers agree with the reference's"),
        *([speed] if frame["objective_unproven"].is_not_null().any() else []),
        Column(key="quality_reason", title="Quality, why", hidden=True),
    ]


def trade_offs(view: SweepView, ranked: Ranking) -> Table | None:
    """The configs that no other beats in all objectives; None where the spec names but one."""
    columns = [column_of(name) for name in (view.spec.objective.metric, *view.spec.objective.also)]
    if not ranked.trade_offs:
        return None
    rows = [
        {"config_id": config_id} | dict(zip(columns, means, strict=True))
        for config_id, means in ranked.trade_offs.items()
    ]
    known = ranked.frame.select("config_id", "label", "rank", href=trial_href(pl.col("trial_id")))
    return table(
        in_milliseconds(pl.DataFrame(rows)).join(known, on="config_id", how="left").sort("rank"),
        [
            Column(key="label", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="rank", title="Rank", kind="number"),
            *(metric_column(name, currency=view.spec.energy.currency) for name in columns),
        ],
        name=f"trade-offs-{slug(ranked.hardware)}",
        title=f"Not beaten in every objective on {ranked.hardware}",
        hrefs={"label": "href"},
        note="Every other config is at most as good in all of these and worse in one, by means over launches; "
        "neighbours may differ by less than launches can separate.",
    )
