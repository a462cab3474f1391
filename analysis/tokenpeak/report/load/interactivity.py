"""Throughput against interactivity: a line over the load levels for each config that is picked.

Interactivity is the output speed of the median request, in tok/s per user. More users at once give more throughput and
less speed for each: the line of a config that is above another's and right of it is better at any load.
"""

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from tokenpeak.paths import slug
from tokenpeak.ranking.decision import Outcome
from tokenpeak.ranking.objective import pareto_front
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.block import Column, Figure, Part, Sentence, answer, code, strong
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.load.load_levels import level_means
from tokenpeak.report.overview.alternatives import alternatives
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView

WIDTH, HEIGHT = 500, 300
BEATEN = 400
"""Most points of configs that are not picked; of more, an even choice."""
ROLES: dict[Outcome, str] = {
    "run": "run",
    "ahead": "ahead",
    "keep": "keep",
    "none_holds": "nearest",
    "not_known": "not known",
}
"""What a legend calls the decision's config: it takes the width of a phone's figure."""
KEPT = "kept back"
"""What a legend calls the best config that may not be run."""
UNPROVEN = ("fail", "unknown")
"""Verdicts on a config's answers with which its speed is not proven to be worth anything."""


def roles(view: SweepView, ranked: Ranking) -> dict[str, str]:
    """Roles of configs by label: the decision's, launched baselines, the best that is kept back, the alternatives."""
    if ranked.chosen is None:
        return {}
    found = {str(ranked.chosen["label"]): ROLES[ranked.decision.outcome]}
    for name in view.spec.search.baseline:
        for label in ranked.frame.filter(pl.col("state") == "ok", pl.col("config_name") == name)["label"]:
            found.setdefault(label, name)
    labels = dict(ranked.frame.select("config_id", "label").iter_rows())
    for faster in ranked.decision.faster[:1]:
        found.setdefault(labels[faster.config], KEPT)
    for each in alternatives(view, ranked):
        found.setdefault(each.row["label"], "alternative")
    return found


def points(view: SweepView, ranked: Ranking) -> pl.DataFrame:
    """A row per config and load level of the objective's workload: series (label), level_label, x, y, front, proven, n.

    `x` is the speed of the median request (tok/s per user), `y` the throughput (tok/s) of a GPU that the config's
    engine uses, or of the node where it has none. `front`: no other is as good in both and better in one. `proven`:
    its quality was not measured, or passed.
    """
    workload, _ = view.spec.objective_run()
    means = level_means(view, ranked.hardware).filter(pl.col("workload_name") == workload)
    if means.is_empty():
        return means
    used = view.gpus_used(ranked.hardware)
    verdicts = dict(view.trials.select("config_id", "quality").drop_nulls().iter_rows())
    gpus = pl.col("config_id").replace_strict(used, default=1, return_dtype=pl.Int64).clip(lower_bound=1)
    found = (
        means.drop_nulls(["output_tok_per_s", "request_output_tok_per_s_p50"])
        .select(
            "level_label",
            "n",
            series="label",
            x=pl.col("request_output_tok_per_s_p50"),
            y=pl.col("output_tok_per_s") / gpus,
            proven=~pl.col("config_id").replace_strict(verdicts, default="", return_dtype=pl.String).is_in(UNPROVEN),
        )
        .sort("series", "y", maintain_order=True)
    )
    kept = pareto_front(dict(enumerate(found.select("x", "y").iter_rows())), ("higher", "higher"))
    return found.with_columns(pl.int_range(pl.len()).is_in(list(kept)).alias("front"))


def chart(frame: pl.DataFrame, names: Sequence[str], said: Mapping[str, str], of: str) -> alt.TopLevelMixin:
    """The points of `points`: pale where not picked, darker on the front, else a line with the levels' names."""
    # The level's name stands right of its point, of those on the right side left of it: within the plot.
    widest = float(frame["x"].max() or 1) * 1.18  # type: ignore[arg-type]
    room = alt.Scale(domain=[0, widest], nice=False)
    x = alt.X("x:Q", title="speed of the median request (tok/s per user)", scale=room)
    y = alt.Y("y:Q", title=f"output throughput (tok/s per {of})", scale=alt.Scale(zero=True, nice=True))
    place = {"config": "series:N", "load": "level_label:N"}
    tip = charts.tooltips(place | {f"tok/s per {of}": "y:Q", "tok/s per user": "x:Q", "launches": "n:Q"})
    short = frame.with_columns(pl.col("x", "y").round_sig_figs(6))
    thin = short.gather_every(max(1, -(-short.height // BEATEN)))
    key = charts.legend(said, columns=1)
    dot = alt.Chart(thin).transform_filter(f"{charts.SLOT} < 0").encode(x=x, y=y, tooltip=tip)
    pale = dot.mark_point(filled=True, color=theme.FAINT, size=40, opacity=1, cursor="pointer")
    front = alt.Chart(short.filter("front")).transform_filter(f"{charts.SLOT} < 0").encode(x=x, y=y, tooltip=tip)
    edge = front.mark_point(filled=True, color=theme.QUIET, size=55, opacity=1, cursor="pointer")
    picked = alt.Chart(short).transform_calculate(slot=charts.SLOT).transform_filter("datum.slot >= 0")
    base = picked.encode(x=x, y=y, color=charts.colour(key))
    line = base.mark_line(**charts.joined(frame["level_label"].n_unique())).encode(order="y:Q")
    full = base.transform_filter("datum.proven").mark_point(filled=True, size=80, opacity=1)
    named = picked.transform_filter("datum.slot === 0").encode(x=x, y=y, text="level_label:N")
    words = [
        *charts.haloed(
            named.transform_filter(f"datum.x <= {widest / 2:.6g}"), align="left", dx=9, dy=-7, color=theme.QUIET
        ),
        *charts.haloed(
            named.transform_filter(f"datum.x > {widest / 2:.6g}"), align="right", dx=-9, dy=-7, color=theme.QUIET
        ),
    ]
    layers = [pale, edge, line, *words, full.encode(shape=charts.shape(key), tooltip=tip)]
    if not frame["proven"].all():
        hollow = base.transform_filter("!datum.proven").mark_point(filled=False, size=80, fill=theme.PAPER)
        layers.append(hollow.encode(shape=charts.shape(key), tooltip=tip))
    return alt.layer(*layers, params=charts.parameters(names)[:1], width=WIDTH, height=HEIGHT)


def interactivity(view: SweepView, ranked: Ranking) -> Figure | None:
    """The figure; None where requests have no speed, or the decision's config has none."""
    frame, said = points(view, ranked), roles(view, ranked)
    if frame.is_empty() or not said or not (frame["series"] == next(iter(said))).any():
        return None
    of = "GPU" if view.gpus_of(ranked.hardware) else "node"
    titles: dict[str, str | Column] = {
        "series": "`Config`",
        "role": "Shown as",
        "level_label": "Load",
        "x": Column(key="x", title="Speed of the median request", unit="tok/s per user", kind="number"),
        "y": Column(key="y", title="Output throughput", unit=f"tok/s per {of}", kind="number"),
        "n": "Launches",
    }
    workload, _ = view.spec.objective_run()
    beaten = (~frame["series"].is_in(list(said)) & frame["front"]).any()
    front = " No point beats a dark grey one in both." if beaten else ""
    between = f" {charts.BETWEEN}" if frame["level_label"].n_unique() == 2 else ""
    kept = " Kept back: it may not be run; the ranking says why." if KEPT in said.values() else ""
    unproven = " Hollow points: quality not proven." if not frame["proven"].all() else ""
    return figure(
        chart(frame, list(said), said, of),
        frame.with_columns(role=pl.col("series").replace_strict(said, default=None, return_dtype=pl.String)),
        titles,
        name=f"interactivity-{slug(ranked.hardware)}",
        title=f"Throughput against a user's speed{view.where(ranked.hardware)}",
        caption=f"Each point is a config at a load level of {workload}: up and to the right is better."
        f"{kept}{front}{unproven}{between} {_interval_words(view, ranked)}",
        span="half",
        scope=slug(ranked.hardware),
    )


def _interval_words(view: SweepView, ranked: Ranking) -> str:
    if ranked.replicated:
        return "Means over launches."
    return f"{view.lone_words('One launch each').capitalize()}, so points have no interval."


def extremes(speeds: pl.DataFrame, hardware: str) -> dict[str, str]:
    """Roles of the configs that `fastest_users` names, by label, of the same `speeds`."""
    own = speeds.filter(hardware=hardware)
    roles = {"user": "most per user", "whole": "most tok/s"}
    ordered = {key: own.sort(key, descending=True, maintain_order=True)["label"].head(1) for key in roles}
    return {label: roles[key] for key, labels in ordered.items() for label in labels}


def fastest_users(speeds: pl.DataFrame) -> Sentence:
    """Where each kind of hardware's throughput is highest and how fast its requests then are, and the fastest one.

    `speeds` has a row per config and load level: hardware, workload_name, level_label, label, user and whole (tok/s of
    the median request and of all).
    """
    parts: list[Part] = []
    for (hardware,), own in speeds.group_by("hardware", maintain_order=True):
        several = own["workload_name"].n_unique() > 1
        place = pl.concat_str("workload_name", pl.lit(", "), "level_label") if several else pl.col("level_label")
        own = own.with_columns(place=place)
        most = own.sort("whole", descending=True, maintain_order=True).row(0, named=True)
        fastest = own.sort("user", descending=True, maintain_order=True).row(0, named=True)
        parts += [
            f"On {hardware}, throughput is highest with ",
            code(most["label"]),
            f" at {most['place']}: ",
            strong(f"{number(most['whole'])} tok/s"),
            f", {number(most['user'])} tok/s for the median request. ",
        ]
        if (most["label"], most["place"]) != (fastest["label"], fastest["place"]):
            parts += [
                "The median request is fastest with ",
                code(fastest["label"]),
                f" at {fastest['place']}: ",
                strong(f"{number(fastest['user'])} tok/s"),
                ". ",
            ]
    if not parts:
        return answer("No run that may be ranked has both a throughput and the speed of its requests.")
    return answer(*parts)


def most_input(view: SweepView) -> Sentence:
    """Of a pooling model: where each kind of hardware reads most, and how long the median request then takes."""
    parts: list[Part] = []
    for hardware in view.hardware:
        known = level_means(view, hardware).drop_nulls(["input_tok_per_s", "latency_s_p50"])
        for most in known.sort("input_tok_per_s", descending=True, maintain_order=True).head(1).iter_rows(named=True):
            of = f"{most['workload_name']}, " if len(view.spec.workloads) > 1 else ""
            parts += [
                f"On {hardware}, input throughput is highest with ",
                code(most["label"]),
                f" at {of}{most['level_label']}: ",
                strong(f"{number(most['input_tok_per_s'])} tok/s"),
                f"; the median request takes {number(most['latency_s_p50'] * 1000)} ms. ",
            ]
    return answer(*parts) if parts else answer("No run that may be ranked has an input throughput.")
