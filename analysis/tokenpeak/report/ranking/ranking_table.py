"""Table of all configs of one kind of hardware, and of those that no other beats in all objectives."""

from dataclasses import replace

import polars as pl

from tokenpeak.metrics import PER_GPU
from tokenpeak.paths import slug
from tokenpeak.ranking.objective import column_of
from tokenpeak.report.blocks.block import Column, Table, table
from tokenpeak.report.blocks.metric_columns import (
    BEHIND,
    MILLI,
    RANK,
    RESULT,
    SLO,
    confidence_column,
    confidence_percent,
    in_milliseconds,
    metric_column,
    slo_word,
    trial_href,
)
from tokenpeak.report.ranking.standings import MEASURED, NOT_RUN, Ranking
from tokenpeak.report.view import SweepView

HOLDOUT = "One more launch of the search's choice, on fresh requests, which selected nothing"


def ranking(view: SweepView, ranked: Ranking) -> Table:
    """Every config of one kind of hardware, failed and invalid ones with their reason."""
    title = view.metric_title
    objective = view.spec.objective.metric
    recommended = [ranked.choice.config.config_id] if ranked.choice is not None and ranked.choice.group > 1 else []
    frame = in_milliseconds(ranked.frame).with_columns(
        href=trial_href(pl.col("trial_id")),
        gain=pl.col("gain") * 100,
        sure=confidence_percent(pl.col("slo_sure")),
        tone=pl.when(pl.col("state") != "ok")
        .then(pl.lit("pale"))
        .when(ranked.is_recommended)
        .then(pl.lit("best"))
        .otherwise(pl.col("group").replace("best", "tie")),
        slo=slo_word(pl.col("slo_met"), pl.col("slo_sure")),
        result=pl.when(pl.col("config_id").is_in(recommended))
        .then(pl.lit("recommended"))
        .when(pl.col("group") == "best")
        .then(pl.lit("best"))
        .when(pl.col("group") == "tie")
        .then(pl.lit("tied"))
        .when(pl.col("state") == "ok")
        .then(pl.lit(BEHIND))
        .when(pl.col("why") == NOT_RUN)
        .then(None)
        .otherwise(pl.col("state")),
    )
    measured = [
        name for name in MEASURED if name in frame.columns and name != objective and frame[name].is_not_null().any()
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
    unit = "ms" if scale != 1.0 else view.metric.unit
    rests_on = "Launches with a result" if view.launches_known else "Published figures; launches are not known"
    against = f"Against {ranked.baseline.words if ranked.baseline and ranked.baseline.config_id else 'median'}"
    return table(
        frame,
        [
            Column(key="label", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="rank", title="Rank", kind="number", help=RANK),
            *axes,
            Column(key="result", title="Result", kind="state", help=RESULT),
            Column(key="objective", title=title, unit=unit, kind="number"),
            *_quality_columns(frame, unit),
            Column(key="low", title="95% low", unit=unit, kind="number", hidden=not ranked.replicated),
            Column(key="high", title="95% high", unit=unit, kind="number", hidden=not ranked.replicated),
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
            *([Column(key="why", title="Why not")] if frame["why"].is_not_null().any() else []),
            Column(key="details", title="Why not, in full", hidden=True),
            Column(key="config_id", title="Config id", kind="code", hidden=True),
        ],
        name=f"ranking-{slug(ranked.hardware)}",
        title=f"All configs on {ranked.hardware}",
        tone="tone",
        hrefs={"label": "href"},
        note="A config's link leads to its first trial. Ranks go by means before rounding, so equal figures may differ "
        "in rank; configs that are tied are not distinguished.",
        span="wide",
    )


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
