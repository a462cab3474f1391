"""Hardware side by side, and what parallelism, presets and number formats change, config by config."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tokenpeak.metrics import inner
from tokenpeak.paths import slug
from tokenpeak.plan.matrix import own_models
from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, Table, answer, code, strong, table
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView

PRESETS = ("performance_mode", "preset", "optimization_level")
FORMATS = ("quantization", "dtype", "kv_cache_dtype")
MODELS = ("model", "checkpoint")
OF_NODE = ("tok/s", "req/s")
"""Units of what an engine's GPUs give together; a latency, or the speed of one request, is no sum over them."""


def answer_hardware(view: SweepView) -> Sentence:
    """How the kinds of hardware compare by their best configs."""
    rows = _bests(view)
    if not rows:
        return answer("No config gave a result that may be ranked.")
    if len(rows) == 1:
        return _of_formats(view, rows[0]["hardware"])
    if len(own_models(view.spec, view.record.nodes)) > 1:
        return answer("Each kind of hardware serves a model of its own: what they give is no comparison of hardware.")
    ordered = sorted(rows, key=lambda row: row["per_gpu"], reverse=view.higher_is_better)
    first, last = ordered[0], ordered[-1]
    parts: list[Part] = [
        f"By its best config, {first['hardware']} gives ",
        strong(f"{number(first['per_gpu'])} {view.metric.unit}"),
    ]
    of = (
        "GPU" if all(row["gpus"] for row in rows) else "GPU or CPU node" if any(row["gpus"] for row in rows) else "node"
    )
    whose = f" per {of}" if view.metric.unit in OF_NODE else f" ({inner(view.metric_title)})"
    ratio = number(first["per_gpu"] / last["per_gpu"], 2)
    parts.append(f"{whose}, {ratio} times {last['hardware']}{', the last of these' if len(rows) > 2 else ''}.")
    if first["joule"] and last["joule"]:
        share = first["joule"] / last["joule"] - 1
        how = ", by estimate" if "energy estimated" in view.marks() else ""
        parts.append(f" Per output token it needs {abs(share):.0%} {'less' if share < 0 else 'more'} energy{how}.")
    return answer(*parts)


def _of_formats(view: SweepView, hardware: str) -> Sentence:
    """What the best preset, number format or model gives over the first of its axis, by configs equal in all else."""
    found = [
        (row["ratio"], axis, row)
        for axis in view.axes
        if axis in (*PRESETS, *FORMATS, *MODELS)
        for row in _against_first(view, hardware, axis, view.axes[axis])[1:]
        if row["ratio"] is not None
    ]
    if not found:
        return answer(f"On {hardware}, no two configs differ in a preset, a number format or a model alone.")
    ratio, axis, row = max(found, key=lambda each: each[0])
    return answer(
        f"On {hardware}, ",
        code(f"{axis}={row['alternative']}"),
        " gives ",
        strong(f"{number(ratio, 2)} times"),
        f" {view.axes[axis][0]}, over {row['n']} matched pair{'s' if row['n'] != 1 else ''}.",
    )


def _bests(view: SweepView) -> list[dict[str, Any]]:
    rows = []
    for hardware in view.hardware:
        best = rank(view, hardware).best
        if best is None:
            continue
        value = float(str(best["objective"]))
        gpus = view.gpus_used(hardware)[str(best["config_id"])]
        rows.append(
            {
                "hardware": hardware,
                "label": best["label"],
                "value": value,
                "gpus": gpus,
                "per_gpu": value / max(1, gpus) if view.metric.unit in OF_NODE else value,
                "ttft": _milli(best.get("ttft_s_p95")),
                "tpot": _milli(best.get("tpot_s_p95")),
                "joule": best.get("energy_j_per_output_tok"),
                "cost": best.get("cost_per_1m_output_tok"),
                "nodes": len(view.nodes_of(hardware)),
            }
        )
    return rows


def _milli(value: object) -> float | None:
    return float(value) * 1000 if isinstance(value, int | float) else None


def side_by_side(view: SweepView) -> list[Block]:
    """The best config of each kind of hardware in one table; nothing where there is one kind."""
    rows = _bests(view)
    if len(rows) < 2:
        return []
    unit = view.metric.unit
    frame = pl.DataFrame(rows, infer_schema_length=None)
    shared = [
        Column(key="gpus", title="GPUs", kind="number", help="That the config's engine takes"),
        Column(key="per_gpu", title="Per GPU", unit=unit, kind="number"),
    ]
    return [
        table(
            frame,
            [
                Column(key="hardware", title="Hardware"),
                Column(key="label", title="Best config", kind="code"),
                Column(key="value", title=view.metric_title, unit=unit, kind="number"),
                *(shared if (frame["per_gpu"] != frame["value"]).any() else []),
                Column(key="ttft", title="TTFT p95", unit="ms", kind="number"),
                Column(key="tpot", title="TPOT p95", unit="ms", kind="number"),
                Column(key="joule", title="Energy", unit="J/token", kind="number"),
                *(
                    [Column(key="cost", title="Cost", unit=f"{view.spec.energy.currency}/1M tokens", kind="number")]
                    if frame["cost"].is_not_null().any()
                    else []
                ),
                Column(key="nodes", title="Nodes", kind="number"),
            ],
            name="side-by-side",
            title="The best config of each kind of hardware",
        )
    ]


def speedups(view: SweepView) -> list[Block]:
    """For each axis of presets, number formats or models: each alternative against the first, all else equal."""
    found: list[Block] = []
    for title, names in (("Presets", PRESETS), ("Number formats", FORMATS), ("Models", MODELS)):
        axes = [axis for axis in view.axes if axis in names and len(view.axes[axis]) > 1]
        if axes:
            found += [_speedup_table(view, axis, title) for axis in axes]
    return found


def _speedup_table(view: SweepView, axis: str, title: str) -> Table:
    rows = []
    for hardware in view.hardware:
        rows += _against_first(view, hardware, axis, view.axes[axis])
    schema = {
        "hardware": pl.String,
        "alternative": pl.String,
        "ratio": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "n": pl.Int64,
        "lost": pl.Int64,
    }
    return table(
        pl.DataFrame(rows, schema=schema),
        [
            Column(key="hardware", title="Hardware"),
            Column(key="alternative", title=axis, kind="code"),
            Column(key="ratio", title="Speedup, mean", unit=f"× {view.axes[axis][0]}", kind="number", digits=2),
            Column(key="low", title="Least", unit="×", kind="number", digits=2),
            Column(key="high", title="Most", unit="×", kind="number", digits=2),
            Column(key="n", title="Matched pairs", kind="number"),
            Column(key="lost", title="Without a result", kind="number"),
        ],
        name=f"speedup-{slug(axis)}",
        title=f"{title}: {axis}",
        note="Each pair of configs is equal in every other axis; the mean is geometric.",
    )


def _against_first(view: SweepView, hardware: str, axis: str, choices: Sequence[str]) -> list[dict[str, Any]]:
    frame = rank(view, hardware).frame
    column = f"axis_{axis}"
    others = [f"axis_{name}" for name in view.axes if name != axis and f"axis_{name}" in frame.columns]
    ok = frame.filter(pl.col("state") == "ok")
    first = ok.filter(pl.col(column) == choices[0]).select(*others, pl.col("objective").alias("reference"))
    rows: list[dict[str, Any]] = []
    for choice in choices:
        own = ok.filter(pl.col(column) == choice)
        ratio = (
            pl.col("objective") / pl.col("reference")
            if view.higher_is_better
            else pl.col("reference") / pl.col("objective")
        )
        joined = own.join(first, on=others, nulls_equal=True) if others else own.join(first, how="cross")
        ratios = joined.select(ratio.alias("ratio"))["ratio"]
        lost = frame.filter(pl.col(column) == choice, pl.col("state") != "ok").height
        mean = float(ratios.log().mean()) if ratios.len() else None  # type: ignore[arg-type]
        rows.append(
            {
                "hardware": hardware,
                "alternative": choice,
                "ratio": pl.Series([mean]).exp()[0] if mean is not None else None,
                "low": ratios.min(),
                "high": ratios.max(),
                # The first is what others are paired with.
                "n": None if choice == choices[0] else ratios.len(),
                "lost": lost,
            }
        )
    return rows
