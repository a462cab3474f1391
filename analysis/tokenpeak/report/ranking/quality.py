"""Quality on a page: speed against quality of the configs that were compared, and the answers that differ most."""

import json

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.ranking.objective import pareto_front
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Figure, Sentence, Table, code, table, warning
from tokenpeak.report.blocks.captioned import columns, figure
from tokenpeak.report.blocks.charts import haloed
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.overview.headline import gain_by_precision
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView

_SMALLEST_NATS = 1e-5
"""Where the axis begins: a divergence that is nothing has no logarithm."""
_MARKS = {"pass": ("circle", theme.ACCENT), "fail": ("cross", theme.BAD), "unknown": ("triangle-up", theme.QUIET)}
_TITLES = {
    "label": "`Config`",
    "quality": "Quality",
    "kl": "Divergence (nats/token)",
    "kl_high": "99% high (nats/token)",
    "perplexity": "Perplexity",
    "value": "Speed",
    "front": "On the front",
}


def shown(view: SweepView, ranked: Ranking) -> list[Sentence | Figure | Table]:
    """Blocks about answers on a ranking page; nothing where none were compared and no precision was changed."""
    found = (
        gain_by_precision(view, ranked),
        faster_unproven(view, ranked),
        speed_against_quality(view, ranked),
        examples(view, ranked),
    )
    return [block for block in found if block is not None]


def faster_unproven(view: SweepView, ranked: Ranking) -> Sentence | None:
    """The fastest config that is not ranked for its answers, and why; None where it gives less than the best."""
    rows = ranked.frame.drop_nulls("objective_unproven")
    if not rows.height:
        return None
    first = rows.sort("objective_unproven", descending=view.higher_is_better).row(0, named=True)
    if ranked.chosen is not None:
        value, best = first["objective_unproven"], ranked.chosen["objective"]
        if (value <= best) if view.higher_is_better else (value >= best):
            return None
    words = "failed" if first["quality"] == "fail" else "is not proven"
    speed = f"{number(first['objective_unproven'])} {view.metric.unit}"
    return warning(code(first["label"]), f" gives {speed}, but its quality {words}. {first['quality_reason']}")


def compared(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """The best config of each group that answers alike: label, quality, kl, kl_high, perplexity, value, front.

    `value` is the objective, of a config whose answers did not pass what it would be. The front holds those that passed
    and that no other of them beats in both.
    """
    configs = _configs(view, ranked)
    known = configs.select(
        "config_id",
        "quality_is_reference",
        pl.concat_str("quality_reason", pl.col("quality_changes").list.join(" ")).alias("answers"),
        kl=pl.when("quality_is_reference").then(0.0).otherwise("quality_kl_nats").clip(lower_bound=_SMALLEST_NATS),
        kl_high=pl.col("quality_kl_high_nats").clip(lower_bound=_SMALLEST_NATS),
        perplexity="quality_perplexity_ratio",
    )
    rows = (
        ranked.frame.filter(pl.col("quality").is_not_null())
        .with_columns(value=pl.coalesce("objective", "objective_unproven"))
        .join(known, on="config_id", how="inner")
        .drop_nulls(["value", "kl"])
        .sort("value", descending=view.higher_is_better)
        .unique("answers", keep="first", maintain_order=True)
    )
    passed = rows.filter(pl.col("quality") == "pass").select("label", "kl", "value").iter_rows()
    points = {label: (kl, value) for label, kl, value in passed}
    kept = pareto_front(points, ("lower", "higher" if view.higher_is_better else "lower"))
    return rows.select(
        "label", "quality", "kl", "kl_high", "perplexity", "value", front=pl.col("label").is_in(list(kept))
    )


def speed_against_quality(view: SweepView, ranked: Ranking) -> Figure | None:
    """The figure; None where fewer than two groups of configs were compared."""
    rows = compared(view, ranked)
    if rows.height < 2:
        return None
    margin = _margin(view, ranked)
    titles = _TITLES | {"value": f"{view.metric_title} ({view.metric.unit})"}
    return figure(
        _chart(rows, margin, y_title=f"{view.metric_title} ({view.metric.unit})"),
        rows,
        titles,
        name=f"quality-{slug(ranked.hardware)}",
        title=f"Speed against quality on {ranked.hardware}",
        caption=(
            "Each mark is the fastest config of a group that answers alike, one launch measured; bars reach to the 99% "
            f"end. Left of the dashed line, {margin:g} nats a token, answers are the reference's. Crosses failed and "
            "triangles are not proven: they are not recommended, however fast. The line joins what passed and is not "
            "beaten in both."
        ),
    )


def examples(view: SweepView, ranked: Ranking) -> Table | None:
    """The questions whose answers differ most, of each config that was compared; None where none differ."""
    configs = _configs(view, ranked)
    labels = dict(ranked.frame.select("config_id", "label").iter_rows())
    rows = []
    seen = set()
    for config_id, text in (
        configs.filter(pl.col("quality").is_not_null()).select("config_id", "quality_examples").iter_rows()
    ):
        if config_id not in labels or text in seen:
            continue
        seen.add(text)
        rows += [{"label": labels[config_id], **each} for each in json.loads(text)]
    if not rows:
        return None
    frame = pl.DataFrame(rows).with_columns(
        question=pl.when(pl.col("question") == "").then(pl.lit("(over a long context)")).otherwise("question"),
        verdict=pl.when("right").then(pl.lit("right")).otherwise(pl.lit("wrong")),
    )
    titles = {
        "label": "`Config`",
        "kind": "Kind",
        "question": "`Question, its end`",
        "reference_answer": "`The reference's answer`",
        "answer": "`Its answer`",
        "verdict": "It is",
        "kl_nats": "Divergence (nats/token)",
    }
    return table(
        frame.sort("kl_nats", descending=True),
        columns(frame, titles),
        name=f"answers-{slug(ranked.hardware)}",
        title=f"Answers that differ most on {ranked.hardware}",
        note="Five of each config at most. An answer may differ and be right.",
    )


def _margin(view: SweepView, ranked: Ranking) -> float:
    return float(_configs(view, ranked)["quality_margin_nats"].drop_nulls()[0])


def _configs(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    return view.frames.configs.filter(pl.col("hardware") == ranked.hardware)


def _chart(rows: pl.DataFrame, margin: float, *, y_title: str) -> alt.TopLevelMixin:
    drawn = rows.with_columns(pl.col("kl_high").fill_null(pl.col("kl")), margin=pl.lit(margin))
    x = alt.X("kl:Q", title="Divergence from the reference (nats a token)", scale=alt.Scale(type="log", padding=20))
    y = alt.Y("value:Q", title=y_title, scale=alt.Scale(zero=False, nice=True, padding=20), axis=alt.Axis(tickCount=6))
    tip = charts.tooltips(
        {"config": "label:N", "quality": "quality:N", "kl": "kl:Q", "perplexity": "perplexity:Q", y_title: "value:Q"}
    )
    words = list(_MARKS)
    base = alt.Chart(drawn)
    limit = alt.Chart(drawn.head(1)).mark_rule(color=theme.INK, strokeDash=[4, 4]).encode(x="margin:Q")
    line = (
        base.transform_filter("datum.front")
        .mark_line(color=theme.ACCENT, strokeWidth=1.5)
        .encode(x=x, y=y, order="kl:Q")
    )
    bars = base.mark_rule(color=theme.FAINT).encode(x=x, x2="kl_high:Q", y=y)
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x,
        y=y,
        tooltip=tip,
        shape=alt.Shape("quality:N", scale=alt.Scale(domain=words, range=[shape for shape, _ in _MARKS.values()])),
        color=alt.Color("quality:N", scale=alt.Scale(domain=words, range=[colour for _, colour in _MARKS.values()])),
    )
    names = haloed(base.encode(x=x, y=y, text="label:N"), align="left", dx=9, dy=-8)
    return alt.layer(limit, bars, line, *names, points).properties(width=theme.WIDTH, height=320)
