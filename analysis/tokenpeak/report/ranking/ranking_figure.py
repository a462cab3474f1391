"""Figure of the ranking, and the sentence that says how all configs stand."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Figure, Part, Sentence, answer, strong
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import counted, number
from tokenpeak.report.blocks.metric_columns import COMPLETED
from tokenpeak.report.ranking.standings import FEW, NOT_RUN, Ranking
from tokenpeak.report.view import SweepView

SINGLE = "{once}: no interval, and differences below {margin:.0%} are not distinguished."

VAGUE = "Launches are too few or too unlike for an interval: differences below {margin:.0%} are not distinguished."

REPLICATED = "Bars: 95% intervals of means over launches, by a spread that is pooled over all configs."


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
    return figure(
        picture,
        frame,
        {
            "label": "`Config`",
            **{
                key: Column(key=key, title=title, unit=unit, kind="number")
                for key, title in (("value", view.metric_title), ("low", "Low"), ("high", "High"))
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
        words += f", {counts['failed']} did not start or broke off"
    if counts.get("interrupted"):
        words += f", {counts['interrupted']} {'was' if counts['interrupted'] == 1 else 'were'} interrupted"
    return answer(f"{words}. ", *(part for each in ranked[:FEW] for part in _span_words(view, each, len(ranked))))


def _span_words(view: SweepView, ranked: Ranking, kinds: int) -> list[Part]:
    """From worst to best, and how many are as good as the best."""
    values = ranked.frame["objective"].drop_nulls()
    if values.len() < 2:
        return []
    ends = sorted((float(values.min()), float(values.max())), reverse=not view.higher_is_better)  # type: ignore[arg-type]
    where = f" on {ranked.hardware}" if kinds > 1 else ""
    spread = strong(f"{number(ends[0])} to {number(ends[1])} {view.metric.unit}")
    ties = ranked.ties.height
    close = "tied with the best" if ranked.replicated else f"within {view.spec.search.margin:.0%} of the best"
    tied = f"{counted(ties, 'other is', 'others are') if ties else 'none is'} {close}"
    return ["From worst to best they span ", spread, f"{where}; {tied}. "]
