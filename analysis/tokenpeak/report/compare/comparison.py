"""Comparison page: each config's result with the environment that it was measured in, and the charts over several.

The page itself has the sweeps. The results of a sweep's configs are a script in its folder, which is loaded when the
sweep is chosen: a page opened from a disk may load scripts, and no other files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from tokenpeak.ranking.objective import column_of
from tokenpeak.report.blocks import charts, theme
from tokenpeak.report.blocks.metric_columns import metric_column
from tokenpeak.report.load.load_levels import level_means
from tokenpeak.report.ranking.standings import choices, rank
from tokenpeak.report.site.render import script_json
from tokenpeak.report.view import SweepView

COMPARED = (
    "output_tok_per_s",
    "output_tok_per_s_per_gpu",
    "ttft_s_p95",
    "ttft_s_p99",
    "tpot_s_p95",
    "tpot_s_p99",
    "latency_s_p95",
    "energy_j_per_output_tok",
    "cost_per_1m_output_tok",
)
"""What the comparison page sets side by side, beside the objective."""
SCRIPT = "compare.js"
"""Of a sweep, where the results of its configs are."""
MUST_MATCH = ("Simulated", "Model", "Workload", "Load level", "Objective")
"""What two results must share to be ranked."""


def comparison(sides: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the comparison page needs: sides without their configs, rows to compare, charts without data."""
    rows = [{"key": key, **_measure(key)} for key in COMPARED]
    charts_of = {"results": charts.spec_of(results_chart()), "speeds": charts.spec_of(speeds_chart())}
    return {"sides": sides, "rows": rows, "must_match": MUST_MATCH, "most": charts.MOST, "charts": charts_of}


def sides(view: SweepView) -> list[dict[str, Any]]:
    """Environment of the sweep's results, for each kind of hardware."""
    return [_side(view, hardware) for hardware in view.hardware]


def script(view: SweepView) -> str:
    """The script that holds the results of the sweep's configs, by the keys of its sides."""
    lines = [
        f"window.tokenpeak.compared[{script_json(_key(view, hardware))}] = {script_json(_results(view, hardware))};\n"
        for hardware in view.hardware
    ]
    return "".join(["window.tokenpeak.compared ??= {};\n", *lines])


def _key(view: SweepView, hardware: str) -> str:
    return f"{view.sweep_id}|{hardware}"


def _side(view: SweepView, hardware: str) -> dict[str, Any]:
    workload, level = view.spec.objective_run()
    asked = next(plan for plan in view.spec.workloads if plan.workload.name == workload)
    nodes = view.nodes_of(hardware)
    node = nodes[0] if nodes else None
    made = view.record.provenance
    environment = {
        "Sweep": view.sweep_id,
        "Date": view.date_words,
        "Simulated": "yes" if view.record.simulated else "no",
        "Hardware": hardware,
        "Driver": ", ".join(sorted({gpu.driver for gpu in node.gpus if gpu.driver}) if node else ()) or "–",
        "Engine": view.engines(hardware),
        "Model": view.model_name,
        "Workload": _workload_words(asked.workload.model_dump(exclude_defaults=True)),
        "Load level": level,
        "SLO": view.slo_words or "–",
        "Objective": view.metric_title,
        "TokenPeak": f"{made.tokenpeak_version} ({(made.git_revision or 'no revision')[:12]})",
    }
    return {
        "key": _key(view, hardware),
        "script": f"{view.sweep_id}/{SCRIPT}",
        "title": f"{view.sweep_id} · {hardware}{' (simulated)' if view.record.simulated else ''}",
        "environment": environment,
        "objective": view.metric_title,
        "unit": view.metric.unit,
        "higher": view.higher_is_better,
        "margin": view.spec.search.margin,
    }


def _results(view: SweepView, hardware: str) -> list[dict[str, Any]]:
    """Each config's result on a kind of hardware, as the ranking has them."""
    workload, _ = view.spec.objective_run()
    means = level_means(view, hardware).filter(pl.col("workload_name") == workload)
    known = means.drop_nulls(["output_tok_per_s", "request_output_tok_per_s_p50"]) if means.height else means
    levels: dict[str, list[list[Any]]] = {}
    for config_id, label, user, whole in (
        known.select("config_id", "level_label", "request_output_tok_per_s_p50", "output_tok_per_s").iter_rows()
        if known.height
        else ()
    ):
        levels.setdefault(config_id, []).append([label, float(f"{user:.5g}"), float(f"{whole:.5g}")])
    return [_result(view, row, levels) for row in rank(view, hardware).frame.iter_rows(named=True)]


def _workload_words(given: Mapping[str, Any]) -> str:
    """All that defines a workload beside its defaults, so that two are alike where their words are."""
    return f"{given['name']}: " + ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in as_written(given).items() if key != "name"
    )


def as_written(given: Mapping[str, Any]) -> dict[str, Any]:
    """A workload's settings as somebody would write them: a whole number has no point."""
    return {key: f"{value:.10g}" if isinstance(value, float) else value for key, value in given.items()}


def _measure(key: str) -> dict[str, Any]:
    """A compared quantity's title, unit and the factor to it."""
    column = metric_column(key)
    return {"title": column.title, "unit": column.unit, "scale": 1000 if column.unit == "ms" else 1}


def _result(view: SweepView, row: dict[str, Any], levels: Mapping[str, list[list[Any]]]) -> dict[str, Any]:
    # One figure for the objective everywhere: as the ranking shows it.
    values = {**row, column_of(view.spec.objective.metric): row["shown"]}
    return {
        "id": row["config_id"],
        "label": choices(view, row),
        "short": row["label"],
        "href": f"{view.sweep_id}/trials/{row['trial_id']}.html",
        "values": {name: values.get(name) for name in ("objective", *COMPARED)},
        "levels": levels.get(row["config_id"], []),
        **{name: row[name] for name in ("state", "why", "n", "low", "high", "group", "kept_back")},
    }


def results_chart() -> alt.TopLevelMixin:
    """The objective of each picked config with its interval, over data `rows` (series, value, low, high)."""
    rows = alt.NamedData(name="rows")
    base = alt.Chart(rows).encode(y=alt.Y("series:N", sort=None, title=None, axis=alt.Axis(labelLimit=330, grid=True)))
    colour, shape = charts.colour(None), charts.shape(None)
    bar = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2)
    dot = base.mark_point(filled=True, size=110, opacity=1)
    scale = alt.Scale(zero=True, nice=True)
    return (
        alt.layer(
            bar.encode(x=alt.X("low:Q", title=None), x2="high:Q", color=colour),
            dot.encode(
                x=alt.X("value:Q", scale=scale, axis=alt.Axis(orient="top")),
                color=colour,
                shape=shape,
                tooltip=charts.tooltips(
                    {"config": "series:N", "value": "value:Q", "low": "low:Q", "high": "high:Q", "launches": "n:Q"}
                ),
            ),
        )
        .add_params(alt.param(name="picked", value=[]))
        .properties(width=theme.HALF, height=alt.Step(26))
    )


def speeds_chart() -> alt.TopLevelMixin:
    """Throughput against a user's speed of each picked config, over data `rows` (series, level, x, y)."""
    base = alt.Chart(alt.NamedData(name="rows")).encode(
        x=alt.X("x:Q", title="speed of the median request (tok/s per user)", scale=alt.Scale(zero=True, nice=True)),
        y=alt.Y("y:Q", title="output throughput (tok/s)", scale=alt.Scale(zero=True, nice=True)),
        color=charts.colour(None),
    )
    tip = charts.tooltips({"config": "series:N", "load": "level:N", "tok/s": "y:Q", "tok/s per user": "x:Q"})
    line = base.mark_line(**charts.joined(3)).encode(order="y:Q")
    dot = base.mark_point(filled=True, size=80, opacity=1).encode(shape=charts.shape(None), tooltip=tip)
    return alt.layer(line, dot).add_params(alt.param(name="picked", value=[])).properties(width=theme.HALF, height=280)
