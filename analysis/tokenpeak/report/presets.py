"""Presets of hardware side by side for each model and context: what is highest, and what failed."""

from collections import Counter
from dataclasses import dataclass

import polars as pl

from tokenpeak.report.blocks.block import Column, Sentence, Table, answer, strong, table
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
    failed: str
    """Nodes with failed requests and their number, most first; empty: none failed."""


def has_presets(view: SweepView) -> bool:
    """The archive is a publication that compares several nodes over models and contexts."""
    return view.record.imported is not None and {MODEL, CONTEXT} <= view.axes.keys() and len(view.record.nodes) > 1


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
        failed=", ".join(f"{node} ({count})" for node, count in failed.select("node", "requests_failed").iter_rows()),
    )


def pairs(view: SweepView) -> list[tuple[str, str]]:
    """Models and contexts that were measured."""
    every = [(model, context) for context in view.axes[CONTEXT] for model in view.axes[MODEL]]
    return [pair for pair in every if rows(view, *pair).height]


def answer_presets(view: SweepView) -> Sentence:
    """Which preset leads how often, over all pairs of model and context."""
    leaders = Counter(observations(view, *pair).output_node for pair in pairs(view)).most_common()
    return answer(
        "No config is to be recommended: models differ, and each is compared over presets of hardware. Of "
        f"{len(pairs(view))} pairs of model and context, the highest output throughput is that of ",
        strong(", ".join(f"{node} in {count}" for node, count in leaders)),
        ".",
    )


def highest(view: SweepView) -> Table:
    """The preset with the highest throughputs for each model and context, and where requests failed."""
    rows_found = []
    for model, context in pairs(view):
        seen = observations(view, model, context)
        rows_found.append(
            {
                "model": model,
                "context": int(context),
                "output_node": seen.output_node,
                "output": seen.output_tok_per_s,
                "prompt_node": seen.prompt_node,
                "prompt": seen.prompt_tok_per_s,
                "failed": seen.failed or None,
            }
        )
    return table(
        pl.DataFrame(rows_found),
        [
            Column(key="model", title="Model", kind="code"),
            Column(key="context", title="Context", unit="tokens", kind="number"),
            Column(key="output_node", title="Highest output", kind="code"),
            Column(key="output", title="Output", unit="tok/s", kind="number", digits=2),
            Column(key="prompt_node", title="Highest prompt", kind="code"),
            Column(key="prompt", title="Prompt", unit="tok/s", kind="number", digits=2),
            Column(key="failed", title="Requests failed on"),
        ],
        name="highest",
        title="The highest throughputs of each model and context",
        note=f"{view.lone_words('One launch each').capitalize()}, over the presets on which it was measured.",
    )


def every(view: SweepView) -> Table:
    """All results, those of one model and context together with the highest output first."""
    order = {name: index for index, name in enumerate(view.axes[MODEL])}
    frame = (
        view.objective_runs()
        .with_columns(
            pl.col(f"axis_{CONTEXT}").cast(pl.Int64),
            href=pl.concat_str(pl.lit("trials/"), "trial_id", pl.lit(".html")),
            order=pl.col(f"axis_{MODEL}").replace_strict(order, return_dtype=pl.Int64),
        )
        .sort(f"axis_{CONTEXT}", "order", "output_tok_per_s", descending=[False, False, True], nulls_last=True)
    )
    return table(
        frame,
        [
            Column(key="node", title="Preset", kind="code"),
            Column(key=f"axis_{MODEL}", title="Model", kind="code"),
            Column(key=f"axis_{CONTEXT}", title="Context", unit="tokens", kind="number"),
            Column(key=f"axis_{PARALLELISM}", title="Parallelism", kind="code"),
            Column(key="output_tok_per_s", title="Output", unit="tok/s", kind="number", digits=2),
            Column(key="input_tok_per_s", title="Prompt", unit="tok/s", kind="number", digits=2),
            Column(key="latency_s_mean", title="Mean latency", unit="s", kind="number", digits=2),
            Column(key="requests_failed", title="Requests failed", kind="number"),
            Column(key="hardware", title="Hardware"),
        ],
        name="presets",
        title="Every result, by context and model",
        hrefs={"node": "href"},
        note="In order of output throughput within a context and model; different models do not rank.",
    )
