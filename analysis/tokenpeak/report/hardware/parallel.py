"""What parallelism changes: tensor, pipeline, data and expert parallel against each other, all else equal."""

from collections.abc import Sequence

import polars as pl

from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, Table, note, strong, table
from tokenpeak.report.blocks.digits import percent
from tokenpeak.report.hardware.presets import CONTEXT, MODEL, PARALLELISM
from tokenpeak.report.view import SweepView

PARALLEL = {
    "tensor_parallel_size": "TP",
    "pipeline_parallel_size": "PP",
    "data_parallel_size": "DP",
    "enable_expert_parallel": "EP",
}
"""Axes of parallelism and how an arrangement abbreviates them."""


def arrangement(choices: Sequence[tuple[str, str | None]]) -> str:
    """An arrangement in a word, such as `TP2 × PP4`; what is one or off is left out."""
    parts = [
        PARALLEL[axis] if value == "true" else f"{PARALLEL[axis]}{value}"
        for axis, value in choices
        if value not in (None, "1", "false")
    ]
    return " × ".join(parts) or "one GPU"


def arrangements(view: SweepView) -> list[Block]:
    """Each arrangement against the others, by the runs that are equal in all else; nothing where there is but one."""
    axes = [axis for axis in PARALLEL if len(view.axes.get(axis, ())) > 1]
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
    words = [arrangement([(axis, row[f"axis_{axis}"]) for axis in axes]) for row in runs.iter_rows(named=True)]
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
