"""Presets of hardware side by side for each model and context: bars, what is highest, what failed, and parallelism."""

from dataclasses import dataclass

import altair as alt
import polars as pl

from tokenpeak.report import charts, theme
from tokenpeak.report.answers import percent
from tokenpeak.report.blocks import Block, Column, Figure, Sentence, Table, code, note, number, strong, table
from tokenpeak.report.view import SweepView

PARALLELISM = "parallelism"
MODEL, CONTEXT = "model", "max_model_len"


@dataclass(frozen=True, kw_only=True)
class Observations:
    """What the rows of one model and context say."""

    prompt_node: str
    prompt_tok_per_s: float
    output_node: str
    output_tok_per_s: float
    errors: tuple[tuple[str, int], ...]
    """Nodes with failed requests, most first."""


def has_presets(view: SweepView) -> bool:
    """The sweep compares several nodes over models and contexts."""
    return {MODEL, CONTEXT} <= view.axes.keys() and len(view.record.nodes) > 1


def rows(view: SweepView, model: str, context: str) -> pl.DataFrame:
    """The first launch on each node under the objective's load; pipeline-parallel arms are left out."""
    runs = view.objective_runs().filter(
        pl.col(f"axis_{MODEL}") == model, pl.col(f"axis_{CONTEXT}") == context, pl.col("replicate") == 0
    )
    if PARALLELISM in view.axes:
        runs = runs.filter(pl.col(f"axis_{PARALLELISM}") != "pipeline")
    return runs.sort("output_tok_per_s", descending=True, nulls_last=True)


def observations(view: SweepView, model: str, context: str) -> Observations:
    """Highest throughputs and failed requests of one model and context."""
    found = rows(view, model, context)
    prompt = found.filter(pl.col("input_tok_per_s") == pl.col("input_tok_per_s").max()).row(0, named=True)
    output = found.row(0, named=True)
    failed = found.filter(pl.col("requests_failed") > 0).sort("requests_failed", descending=True)
    return Observations(
        prompt_node=prompt["node"],
        prompt_tok_per_s=prompt["input_tok_per_s"],
        output_node=output["node"],
        output_tok_per_s=output["output_tok_per_s"],
        errors=tuple(failed.select("node", "requests_failed").iter_rows()),
    )


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


def blocks(view: SweepView) -> list[Block]:
    """For each context and model: the observations and the bars of all presets; then parallelism."""
    found: list[Block] = []
    if not has_presets(view):
        return found
    for context in view.axes[CONTEXT]:
        for model in view.axes[MODEL]:
            if rows(view, model, context).height:
                found += [_sentence(view, model, context), _bars(view, model, context)]
    if PARALLELISM in view.axes:
        found.append(_parallel_table(view))
    return found


def _sentence(view: SweepView, model: str, context: str) -> Sentence:
    seen = observations(view, model, context)
    errors = ", ".join(f"{node} ({count})" for node, count in seen.errors)
    return note(
        code(model),
        " at a context of ",
        code(context),
        ": highest prompt throughput on ",
        strong(seen.prompt_node),
        f" ({number(seen.prompt_tok_per_s, 2)} tok/s), highest output throughput on ",
        strong(seen.output_node),
        f" ({number(seen.output_tok_per_s, 2)} tok/s); ",
        f"requests failed on {errors}." if errors else "no request failed.",
    )


def _bars(view: SweepView, model: str, context: str) -> Figure:
    frame = rows(view, model, context).select(
        "node", "output_tok_per_s", "input_tok_per_s", "latency_s_mean", "request_output_tok_per_s_mean",
        "requests_failed", "requests_sent",
    )  # fmt: skip
    failed = (pl.col("requests_failed").fill_null(0) > 0).alias("failed")
    chart = (
        alt.Chart(frame.with_columns(failed))
        .mark_bar(color=theme.ACCENT)
        .encode(
            x=alt.X("output_tok_per_s:Q", title="output tok/s of the node"),
            y=alt.Y("node:N", title=None, sort=None),
            opacity=alt.condition("datum.failed", alt.value(0.45), alt.value(1)),
            tooltip=[
                alt.Tooltip("node:N"),
                alt.Tooltip("output_tok_per_s:Q"),
                alt.Tooltip("input_tok_per_s:Q"),
                alt.Tooltip("requests_failed:Q"),
            ],
        )
        .properties(width=theme.WIDTH - 140, height=alt.Step(18))
    )
    return Figure(
        name=f"presets-{model}-{context}".replace(".", "-"),
        title=f"{model} at a context of {context}",
        caption="Output throughput of each preset, one launch each; paler where requests failed.",
        spec=charts.spec_of(chart),
        data=table(
            frame,
            [
                Column(key="node", title="Preset", kind="code"),
                Column(key="input_tok_per_s", title="Prompt", unit="tok/s", kind="number", digits=2),
                Column(key="output_tok_per_s", title="Output", unit="tok/s", kind="number", digits=2),
                Column(key="latency_s_mean", title="Mean latency", unit="s", kind="number", digits=2),
                Column(key="request_output_tok_per_s_mean", title="A request's output", unit="tok/s", kind="number"),
                Column(key="requests_failed", title="Failed", kind="number"),
                Column(key="requests_sent", title="of", kind="number"),
            ],
            name="data",
            title="Data of the figure",
        ),
    )


def _parallel_table(view: SweepView) -> Table:
    frame = parallel_speedups(view).with_columns(pl.col("prompt_speedup", "output_speedup") * 100)
    single = frame.filter(pl.col("gpus") == 1)["output_speedup"]
    spread = f" On one GPU both are the same engine: the difference there, up to {percent(_most(single) / 100, 1)}, is "
    return table(
        frame,
        [
            Column(key="node", title="Preset", kind="code"),
            Column(key="gpus", title="GPUs", kind="number"),
            Column(key="pipeline_prompt", title="Pipeline, prompt", unit="tok/s", kind="number", digits=2),
            Column(key="tensor_prompt", title="Tensor, prompt", unit="tok/s", kind="number", digits=2),
            Column(key="pipeline_output", title="Pipeline, output", unit="tok/s", kind="number", digits=2),
            Column(key="tensor_output", title="Tensor, output", unit="tok/s", kind="number", digits=2),
            Column(key="prompt_speedup", title="Prompt speedup", unit="%", kind="number", digits=1),
            Column(key="output_speedup", title="Output speedup", unit="%", kind="number", digits=1),
        ],
        name="pipeline-against-tensor",
        title="Tensor against pipeline parallel",
        note=f"One launch each.{spread}how runs vary." if single.len() else "One launch each.",
    )


def _most(values: pl.Series) -> float:
    return max((abs(float(value)) for value in values), default=0.0)
