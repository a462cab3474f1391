"""Presets of hardware side by side for each model and context: what is highest, and what failed."""

from collections import Counter
from itertools import product

import polars as pl

from tokenpeak.report.blocks.block import Column, Sentence, Table, answer, strong, table
from tokenpeak.report.blocks.metric_columns import trial_href
from tokenpeak.report.view import SweepView

PARALLELISM = "parallelism"
MODEL, CONTEXT = "model", "max_model_len"


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


def leaders(view: SweepView) -> list[dict[str, object]]:
    """Of each model and context that was measured: the presets of the highest throughputs, and what failed."""
    found = []
    for context, model in product(view.axes[CONTEXT], view.axes[MODEL]):
        tried = rows(view, model, context)
        if tried.is_empty():
            continue
        output = tried.row(0, named=True)
        prompt = tried.sort("input_tok_per_s", descending=True, nulls_last=True, maintain_order=True).row(0, named=True)
        failed = tried.filter(pl.col("requests_failed") > 0).sort("requests_failed", descending=True)
        counts = [f"{node} ({count})" for node, count in failed.select("node", "requests_failed").iter_rows()]
        found.append(
            {
                "model": model,
                "context": int(context),
                "output_node": output["node"],
                "output": output["output_tok_per_s"],
                "prompt_node": prompt["node"],
                "prompt": prompt["input_tok_per_s"],
                "failed": ", ".join(counts) or None,
            }
        )
    return found


def answer_presets(view: SweepView) -> Sentence:
    """Which preset leads how often, over all pairs of model and context."""
    found = leaders(view)
    counts = Counter(each["output_node"] for each in found).most_common()
    return answer(
        "No config is to be recommended: models differ, and each is compared over presets of hardware. Of "
        f"{len(found)} pairs of model and context, the highest output throughput is that of ",
        strong(", ".join(f"{node} in {count}" for node, count in counts)),
        ".",
    )


def highest(view: SweepView) -> Table:
    """The preset with the highest throughputs for each model and context, and where requests failed."""
    return table(
        pl.DataFrame(leaders(view), infer_schema_length=None),
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
            href=trial_href(pl.col("trial_id")),
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
