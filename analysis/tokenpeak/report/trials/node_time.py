"""Trials: the answer of their page, and a strip of each node's time with what each launch did of it."""

import json
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.report.blocks import picks, theme
from tokenpeak.report.blocks.block import Column, Figure, Sentence, answer, strong
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.view import SweepView

KINDS = {
    "engine_start_s": "engine start",
    "load_s": "load",
    "production_start_s": "production start",
    "orchestration_s": "TokenPeak's own",
}
COLOURS = {
    "engine_start_s": "var(--phase-engine)",
    "load_s": "var(--phase-load)",
    "production_start_s": "var(--phase-production)",
    "orchestration_s": "var(--phase-own)",
}
DRAWN = 80
"""Most trials of which the strips show the parts; of more, each trial is one bar."""
WHOLE = "trial"
GAP_MIN = 0.25 / 60


def timed(view: SweepView) -> bool:
    """It is known where the time of trials went; an import's source does not say."""
    return bool(view.trials["duration_s"].is_not_null().any())


def answer_trials(view: SweepView) -> Sentence:
    """How many trials there were, what they took, and how much of it was measuring."""
    trials = view.trials
    if trials.is_empty():
        return answer("No trial has ended yet.")
    if not timed(view):
        return answer(
            strong(f"{number(trials.height)} {'launches' if view.launches_known else 'configs'}"),
            " have published figures; when each was made and how long it took is not known.",
        )
    total = float(trials["duration_s"].sum())
    load = float(trials["load_s"].sum())
    own = float(trials["orchestration_s"].median() or 0.0)  # type: ignore[arg-type]
    failed = trials.filter(pl.col("status") != "ok").height
    words = "all gave a result" if not failed else f"{number(trials.height - failed)} gave a result"
    return answer(
        strong(f"{number(trials.height)} launches"),
        f", of which {words}; they took {number(total / 60, 1)} minutes on their nodes, ",
        strong(f"{load / total:.0%}" if total else "–"),
        f" of it under load. TokenPeak's own part was {number(own, 1)} s in the median trial.",
    )


def strips(view: SweepView) -> pl.DataFrame:
    """A row per part of a trial's time on its node: node, trial_id, label, status, cause, kind, x and end (minutes).

    Minutes are after the sweep's start. Of more than DRAWN trials each is one part, a whole trial.
    """
    begin = view.record.started_at
    rows: list[dict[str, Any]] = []
    whole = view.trials.height > DRAWN
    names = {key.removesuffix("_s"): kind for key, kind in KINDS.items()}
    for row in view.trials.filter(pl.col("duration_s") > 0).iter_rows(named=True):
        at_s = (row["started_at"] - begin).total_seconds()
        phases = [
            (names[phase["kind"]], phase["started_s"], phase["duration_s"]) for phase in json.loads(row["phases"])
        ]
        for kind, from_s, length_s in [(WHOLE, 0.0, row["duration_s"])] if whole or not phases else phases:
            begun_min, ended_min = (at_s + from_s) / 60, (at_s + from_s + length_s) / 60
            if rows and _goes_on(rows[-1], row["trial_id"], kind, begun_min):
                rows[-1]["end"] = ended_min
                continue
            rows.append(
                {
                    "node": row["node"],
                    "trial_id": row["trial_id"],
                    "label": row["label"],
                    "status": row["status"],
                    "cause": (row["failure_cause"] or "").replace("_", " "),
                    "kind": kind,
                    "x": begun_min,
                    "end": ended_min,
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _goes_on(last: dict[str, Any], trial_id: str, kind: str, begun_min: float) -> bool:
    """Whether a part of a trial goes on with the one before it: the same kind, but for a quarter of a second."""
    return (last["trial_id"], last["kind"]) == (trial_id, kind) and abs(last["end"] - begun_min) < GAP_MIN


def strip_chart(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """A strip per node: the parts of its trials over time, failed ones with a mark."""
    kinds = [kind for kind in (*KINDS.values(), WHOLE) if (frame["kind"] == kind).any()]
    colours = {kind: COLOURS[key] for key, kind in KINDS.items()} | {WHOLE: COLOURS["load_s"]}
    short = frame.with_columns(pl.col("x", "end").round(3))
    base = alt.Chart(short).transform_filter(picks.IN_ZOOM)
    y = alt.Y("node:N", title=None, sort=None, axis=alt.Axis(labelColor=theme.INK, labelLimit=160))
    axis = alt.Axis(tickCount=8, labelOverlap="greedy", labelSeparation=6)
    x = alt.X("x:Q", title="minutes after the sweep began", scale=alt.Scale(nice=False, zero=False), axis=axis)
    fields = {"trial": "trial_id:N", "config": "label:N", "part": "kind:N", "from (min)": "x:Q", "to (min)": "end:Q"}
    cause = {"cause": "cause:N"} if (frame["cause"] != "").any() else {}
    tip = picks.tooltips({**fields, "status": "status:N", **cause})
    bars = base.mark_bar(height=18, stroke=theme.PAPER, strokeWidth=0.5).encode(
        x=x,
        x2="end:Q",
        y=y,
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=[colours[kind] for kind in kinds]),
            legend=alt.Legend(title=None),
        ),
        tooltip=tip,
    )
    lost = short.filter(pl.col("status") != "ok").unique("trial_id", keep="first", maintain_order=True)
    marks = (
        alt.Chart(lost)
        .transform_filter(picks.IN_ZOOM)
        .mark_point(shape="triangle-down", filled=True, size=70, color=theme.BAD, opacity=1, yOffset=-15)
    )
    layers = [bars, *([marks.encode(x=x, y=y, tooltip=tip)] if lost.height else [])]
    return (
        alt.layer(*layers)
        .add_params(alt.param(name="zoom", value=None))
        .properties(width=theme.WIDTH, height=alt.Step(44))
    )


def node_strips(view: SweepView) -> Figure | None:
    """A strip per node over the sweep's time; None where it is not known when trials ran."""
    frame = strips(view) if timed(view) and not view.record.imported else pl.DataFrame()
    if frame.is_empty():
        return None
    nodes = frame["node"].n_unique()
    lost = frame.filter(pl.col("status") != "ok")["trial_id"].n_unique()
    marked = f" A red mark: {lost} without a result." if lost else ""
    return figure(
        strip_chart(frame),
        frame.with_columns(seconds=(pl.col("end") - pl.col("x")) * 60),
        {
            "node": "Node",
            "trial_id": "`Trial`",
            "label": "`Config`",
            "kind": "Part",
            "x": Column(key="x", title="From", unit="min", kind="number", digits=2),
            "end": Column(key="end", title="To", unit="min", kind="number", digits=2),
            "seconds": Column(key="seconds", title="Took", unit="s", kind="number", digits=1),
            "status": "Status",
        },
        name="nodes",
        title="What each node did" if nodes > 1 else "What the node did",
        caption=f"{view.trials.height} trials on {nodes} node{'s' if nodes > 1 else ''}.{marked} Where a strip is "
        "empty, the node served production or waited.",
        scope="nodes",
    )
