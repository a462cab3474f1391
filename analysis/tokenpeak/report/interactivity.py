"""Throughput against interactivity: a line over the load levels for each config that a reader asks for.

Interactivity is the output speed of the median request, in tok/s per user. More users at once give more throughput and
less speed for each: the line of a config that is above another's and right of it is better at any load.
"""

import altair as alt
import polars as pl

from tokenpeak.report import charts, theme
from tokenpeak.report.alternatives import alternatives
from tokenpeak.report.blocks import Column, Figure
from tokenpeak.report.captioned import figure
from tokenpeak.report.figures import slug
from tokenpeak.report.load_levels import level_means
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.view import SweepView

WIDTH, HEIGHT = 560, 330
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4])


def roles(view: SweepView, ranked: Ranking) -> dict[str, str]:
    """What a reader asks for, by config id: recommended, the baselines that were launched, the alternatives."""
    recommended = ranked.recommended
    if recommended is None:
        return {}
    found = {str(recommended["config_id"]): "recommended"}
    for name in view.spec.search.baseline:
        for config_id in ranked.frame.filter(pl.col("state") == "ok", pl.col("config_name") == name)["config_id"]:
            found.setdefault(config_id, name)
    for each in alternatives(view, ranked):
        found.setdefault(each.row["config_id"], f"alternative {each.row['label']}")
    return found


def points(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """A row per config and load level of the objective's workload, with user (tok/s of the median request) and gpu.

    `gpu` is the throughput (tok/s) of a GPU that the config's engine uses, or of the node where it has none. `role` is
    null for configs that have none.
    """
    workload, _ = view.spec.objective_run()
    means = level_means(view, ranked.hardware).filter(pl.col("workload_name") == workload)
    if means.is_empty():
        return means
    used = view.gpus_used(ranked.hardware)
    return (
        means.drop_nulls(["output_tok_per_s", "request_output_tok_per_s_p50"])
        .with_columns(
            role=pl.col("config_id").replace_strict(roles(view, ranked), default=None, return_dtype=pl.String),
            gpu=pl.col("output_tok_per_s")
            / pl.col("config_id").replace_strict(used, default=1, return_dtype=pl.Int64).clip(lower_bound=1),
            user=pl.col("request_output_tok_per_s_p50"),
        )
        .sort("config_id", "gpu", maintain_order=True)
    )


def chart(frame: pl.DataFrame, order: list[str], of: str) -> alt.TopLevelMixin:
    """The points of `points`: pale without a role, a line with shapes and the levels' names for each role."""
    # The level's name stands right of its point.
    room = alt.Scale(domain=[0, float(frame["user"].max() or 1) * 1.18], nice=False)  # type: ignore[arg-type]
    x = alt.X("user:Q", title="speed of the median request (tok/s per user)", scale=room)
    y = alt.Y("gpu:Q", title=f"output throughput (tok/s per {of})", scale=alt.Scale(zero=True, nice=True))
    tip = [
        alt.Tooltip("label:N", title="config"),
        alt.Tooltip("level_label:N", title="load"),
        alt.Tooltip("gpu:Q", format=",.4~r", title=f"tok/s per {of}"),
        alt.Tooltip("user:Q", format=",.4~r", title="tok/s per user"),
    ]
    pale = (
        alt.Chart(frame.filter(pl.col("role").is_null()))
        .mark_point(filled=True, color=theme.FAINT, size=40, opacity=1)
        .encode(x=x, y=y, tooltip=tip)
    )
    named = frame.filter(pl.col("role").is_not_null())
    legend = alt.Legend(title=None, columns=2, labelLimit=300)
    colour = alt.Color("role:N", legend=legend, scale=alt.Scale(domain=order, range=list(theme.SERIES[: len(order)])))
    shape = alt.Shape("role:N", legend=legend, scale=alt.Scale(domain=order, range=list(theme.SHAPES[: len(order)])))
    base = alt.Chart(named).encode(x=x, y=y, color=colour, tooltip=tip)
    dashes = [DASHES[index % len(DASHES)] for index in range(len(order))]
    line = base.mark_line(strokeWidth=2).encode(
        order="gpu:Q", strokeDash=alt.StrokeDash("role:N", legend=legend, scale=alt.Scale(domain=order, range=dashes))
    )
    dot = base.mark_point(filled=True, size=80, opacity=1).encode(shape=shape)
    first = alt.Chart(named.filter(pl.col("role") == order[0])).encode(x=x, y=y, text="level_label:N")
    words = charts.haloed(first, align="left", dx=9, dy=-7, color=theme.QUIET)
    return alt.layer(pale, line, *words, dot).properties(width=WIDTH, height=HEIGHT)


def interactivity(view: SweepView, ranked: Ranking) -> Figure | None:
    """The figure; None where requests have no speed, or the recommended config has none."""
    frame = points(view, ranked)
    if frame.is_empty() or not (frame["role"] == "recommended").any():
        return None
    present = set(frame["role"].drop_nulls())
    order = [role for role in dict.fromkeys(roles(view, ranked).values()) if role in present]
    of = "GPU" if view.gpus_of(ranked.hardware) else "node"
    titles: dict[str, str | Column] = {
        "label": "`Config`",
        "role": "Shown as",
        "level_label": "Load",
        "user": Column(key="user", title="Speed of the median request", unit="tok/s per user", kind="number"),
        "gpu": Column(key="gpu", title="Output throughput", unit=f"tok/s per {of}", kind="number"),
        "n": "Launches",
    }
    workload, _ = view.spec.objective_run()
    return figure(
        chart(frame, order, of),
        frame,
        titles,
        name=f"interactivity-{slug(ranked.hardware)}",
        title=f"Throughput against a user's speed{view.where(ranked.hardware)}",
        caption=f"A point is a config at a load level of {workload}; up and to the right is better. "
        f"Pale points are the other configs. {_interval_words(ranked)}",
    )


def _interval_words(ranked: Ranking) -> str:
    return "Means over launches." if ranked.replicated else "One launch each, so points have no interval."
