"""Hardware side by side: what kinds of hardware, parallelism, presets and number formats change, all else equal."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from tokenpeak.metrics import inner
from tokenpeak.paths import slug
from tokenpeak.plan.matrix import own_models
from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, Table, answer, code, note, strong, table
from tokenpeak.report.blocks.digits import counted, number, percent
from tokenpeak.report.presets import (
    CONTEXT,
    MODEL,
    PARALLEL,
    PARALLELISM,
    arrangement,
    arrangements_of,
    parallel_axes,
)
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.view import SweepView, latency_words

PRESETS = ("performance_mode", "preset", "optimization_level")
FORMATS = ("quantization", "dtype", "kv_cache_dtype")
MODELS = ("model", "checkpoint")
OF_NODE = ("tok/s", "req/s")
"""Units of what an engine's GPUs give together; a latency, or the speed of one request, is no sum over them."""


def answer_hardware(view: SweepView) -> Sentence:
    """How the kinds of hardware compare, each by its decision's config."""
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
        f"With its chosen config, {first['hardware']} gives ",
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
    """Speedup of the best preset, number format or model over the first of its axis, by configs equal in all else."""
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
        f" the {inner(view.metric_title) if view.higher_is_better else 'speed'} of ",
        code(view.axes[axis][0]),
        f", over {counted(row['n'], 'matched pair')}.",
    )


def _bests(view: SweepView) -> list[dict[str, Any]]:
    rows = []
    for hardware in view.hardware:
        ranked = rank(view, hardware)
        best = ranked.chosen
        if best is None:
            continue
        value = float(best["shown"])
        gpus = view.gpus_used(hardware)[str(best["config_id"])]
        rows.append(
            {
                "hardware": hardware,
                "label": best["label"],
                "decision": ranked.mark,
                "value": value,
                "gpus": gpus,
                "per_gpu": value / max(1, gpus) if view.metric.unit in OF_NODE else value,
                **{name: _milli(best.get(name)) for name in view.latency_columns},
                "joule": best.get("energy_j_per_output_tok"),
                "cost": best.get("cost_per_1m_output_tok"),
                "nodes": len(view.nodes_of(hardware)),
            }
        )
    return rows


def _milli(value: object) -> float | None:
    return float(value) * 1000 if isinstance(value, int | float) else None


def side_by_side(view: SweepView) -> list[Block]:
    """The decision's config of each kind of hardware in one table; nothing where there is one kind."""
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
                Column(key="label", title="Config", kind="code"),
                Column(key="decision", title="Decision", kind="state"),
                Column(key="value", title=view.metric_title, unit=unit, kind="number"),
                *(shared if (frame["per_gpu"] != frame["value"]).any() else []),
                *(
                    Column(key=name, title=latency_words(name), unit="ms", kind="number")
                    for name in view.latency_columns
                ),
                Column(key="joule", title="Energy", unit="J/token", kind="number"),
                *(
                    [Column(key="cost", title="Cost", unit=f"{view.spec.energy.currency}/1M tokens", kind="number")]
                    if frame["cost"].is_not_null().any()
                    else []
                ),
                Column(key="nodes", title="Nodes", kind="number"),
            ],
            name="side-by-side",
            title="Recommended config for each kind of hardware",
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
    return table(
        pl.DataFrame(rows, infer_schema_length=None),
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


def arrangements(view: SweepView) -> list[Block]:
    """Each arrangement against the others, by the runs that are equal in all else; nothing where there is but one."""
    axes = parallel_axes(view)
    if not axes:
        return []
    frame = _compared(view, axes)
    if frame.is_empty():
        return [note("No two runs differ in their parallelism alone, so nothing can be said of it.")]
    return [_arrangement_answer(frame), _arrangement_table(frame)]


def _compared(view: SweepView, axes: Sequence[str]) -> pl.DataFrame:
    """For each setting that several arrangements share: their mean figures and the speedup over the slowest.

    A config outside the grid has no arrangement that is known here; means are geometric, as in the ranking.
    """
    runs = view.same_requests().filter(pl.any_horizontal(pl.col(f"axis_{axis}").is_not_null() for axis in view.axes))
    named, arranged = [axis for axis in axes if axis in PARALLEL], arrangements_of(view)
    words = [
        arranged.get(row["config_id"]) or arrangement([(axis, row[f"axis_{axis}"]) for axis in named])
        for row in runs.iter_rows(named=True)
    ]
    others = [f"axis_{axis}" for axis in view.axes if axis not in axes]
    same = ["hardware", "workload_name", "level_label", *others]
    found = (
        runs.with_columns(arrangement=pl.Series(words, dtype=pl.String))
        .filter(pl.col("verdict") != "invalid", pl.col("output_tok_per_s") > 0)
        .group_by(*same, "arrangement", maintain_order=True)
        .agg(pl.col("output_tok_per_s", "ttft_s_mean", "tpot_s_mean").log().mean().exp(), n=pl.len())
        .with_columns(slowest=pl.col("output_tok_per_s").min().over(same), count=pl.len().over(same))
        .filter(pl.col("count") > 1)
        .with_columns(
            speedup=pl.col("output_tok_per_s") / pl.col("slowest"),
            setting=pl.concat_str("workload_name", "level_label", *others, separator=" / ", ignore_nulls=True),
        )
    )
    return found.sort("hardware", "setting", "output_tok_per_s", descending=[False, False, True])


def _arrangement_answer(frame: pl.DataFrame) -> Sentence:
    parts: list[Part] = []
    for (hardware, setting), group in frame.group_by("hardware", "setting", maintain_order=True):
        best, worst = group.row(0, named=True), group.row(-1, named=True)
        parts += [f"On {hardware}, {setting}: ", strong(best["arrangement"]), f" gives {best['speedup']:.2f} times "]
        parts.append(f"the output of {worst['arrangement']}. ")
    return note(*parts[:24])


def _arrangement_table(frame: pl.DataFrame) -> Table:
    return table(
        frame.with_columns(pl.col("ttft_s_mean", "tpot_s_mean") * 1000),
        [
            Column(key="arrangement", title="Parallelism", kind="code"),
            Column(key="hardware", title="Hardware"),
            Column(key="setting", title="Equal in", kind="code"),
            Column(key="output_tok_per_s", title="Output throughput", unit="tok/s", kind="number"),
            Column(key="speedup", title="Speedup", unit="× the slowest", kind="number", digits=2),
            Column(key="ttft_s_mean", title="TTFT mean", unit="ms", kind="number"),
            Column(key="tpot_s_mean", title="TPOT mean", unit="ms", kind="number"),
            Column(key="n", title="Runs", kind="number"),
        ],
        name="parallelism",
        title="Parallelism, all else equal",
        note="Arrangements are compared only where workload, load and every other axis are the same.",
    )


def of_presets(view: SweepView) -> list[Block]:
    """Tensor against pipeline parallel on each preset of hardware, where the sweep has both."""
    if view.record.imported is None:
        return arrangements(view)
    if PARALLELISM not in view.axes:
        return []
    return [_preset_answer(view), _preset_table(view)]


def parallel_speedups(view: SweepView) -> pl.DataFrame:
    """Tensor over pipeline parallel on each node: the last launch of each, equal in all else.

    Columns: node, gpus, then prompt and output throughput of both and the speedups as shares.
    """
    runs = view.objective_runs()
    pipeline = runs.filter(pl.col(f"axis_{PARALLELISM}") == "pipeline")
    tensor = (
        runs.filter(pl.col(f"axis_{PARALLELISM}") == "tensor")
        .sort("replicate")
        .group_by("node", f"axis_{MODEL}", f"axis_{CONTEXT}", maintain_order=True)
        .last()
    )
    both = pipeline.join(tensor, on=["node", f"axis_{MODEL}", f"axis_{CONTEXT}"], suffix="_tensor")
    gpus = {node.node: len(node.gpus) for node in view.record.nodes}
    return both.select(
        "node",
        pl.col("node").replace_strict(gpus, return_dtype=pl.Int64).alias("gpus"),
        pl.col("input_tok_per_s").alias("pipeline_prompt"),
        pl.col("input_tok_per_s_tensor").alias("tensor_prompt"),
        pl.col("output_tok_per_s").alias("pipeline_output"),
        pl.col("output_tok_per_s_tensor").alias("tensor_output"),
        (pl.col("input_tok_per_s_tensor") / pl.col("input_tok_per_s") - 1).alias("prompt_speedup"),
        (pl.col("output_tok_per_s_tensor") / pl.col("output_tok_per_s") - 1).alias("output_speedup"),
    )


def _preset_answer(view: SweepView) -> Sentence:
    frame = parallel_speedups(view)
    several = frame.filter(pl.col("gpus") > 1)["output_speedup"].to_list()
    single = frame.filter(pl.col("gpus") == 1)["output_speedup"].to_list()
    parts: list[Part] = [
        "On several GPUs, tensor parallel gives ",
        strong(f"{percent(min(several))} to {percent(max(several))}"),
        f" output over pipeline parallel ({len(several)} presets, {view.lone_words('one launch each')})",
    ]
    if single:
        parts.append(f"; on one GPU, where both are the same engine, {percent(min(single))} to {percent(max(single))},")
        parts.append(" which is how runs vary")
    return note(*parts, ".")


def _preset_table(view: SweepView) -> Table:
    frame = parallel_speedups(view).with_columns(pl.col("prompt_speedup", "output_speedup") * 100)
    return table(
        frame,
        [
            Column(key="node", title="Preset", kind="code"),
            Column(key="gpus", title="GPUs", kind="number"),
            Column(key="pipeline_prompt", title="Pipeline, prompt", unit="tok/s", kind="number", digits=2),
            Column(key="tensor_prompt", title="Tensor, prompt", unit="tok/s", kind="number", digits=2),
            Column(key="pipeline_output", title="Pipeline, output", unit="tok/s", kind="number", digits=2),
            Column(key="tensor_output", title="Tensor, output", unit="tok/s", kind="number", digits=2),
            Column(key="prompt_speedup", title="Prompt speedup", unit="%", kind="number", digits=1, signed=True),
            Column(key="output_speedup", title="Output speedup", unit="%", kind="number", digits=1, signed=True),
        ],
        name="pipeline-against-tensor",
        title="Tensor and pipeline parallel, preset by preset",
        note=f"{view.lone_words('One launch each').capitalize()}.",
    )
