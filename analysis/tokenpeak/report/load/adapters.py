"""LoRA adapters of a workload: requests, latencies and output rate of each, by config and load level."""

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks.block import Column, Table, table
from tokenpeak.report.ranking.classes import by_class
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.requests import SHOWN, chosen
from tokenpeak.report.view import SweepView


def by_adapter(view: SweepView, ranked: Ranking, workload: str) -> pl.DataFrame:
    """A row per config, load level and adapter, over the measured requests of all launches; empty without adapters.

    Columns: series (the label), level, adapter, n, failed, ttft_50, ttft_99, tpot_50 (ms), output_tok_per_s (mean over
    launches of the run's rate × the adapter's share of its tokens). Of the configs that the page of requests shows.
    """
    plans = {plan.workload.name: plan.workload for plan in view.spec.workloads}
    if not getattr(plans.get(workload), "adapters", None):
        return pl.DataFrame()
    labels = chosen(view, ranked, SHOWN)
    runs = by_class(
        view,
        view.runs.filter(
            pl.col("hardware") == ranked.hardware, pl.col("workload_name") == workload, pl.col("verdict") != "invalid"
        ),
    ).filter(pl.col("label").is_in(labels))
    keys = ["trial_id", "run_index"]
    known = runs.select(*keys, "level_kind", "output_tok_per_s", series="label", level="level_label")
    begin = pl.when(pl.col("level_kind") == "open").then("due_s").otherwise("sent_s")
    ok = pl.col("error").is_null()
    answer_s = pl.col("last_token_s") - pl.col("first_token_s")
    requests = (
        view.requests.filter(pl.col("phase") == "measured", pl.col("adapter").is_not_null())
        .join(known.lazy(), on=keys)
        .with_columns(
            ok=ok,
            tokens=pl.when(ok).then(pl.col("output_tokens")).otherwise(0),
            ttft=pl.when(ok).then(pl.col("first_token_s") - begin) * 1000,
            tpot=pl.when(ok & (pl.col("output_tokens") > 1)).then(answer_s / (pl.col("output_tokens") - 1)) * 1000,
        )
        .collect()
    )
    group = ["series", "level", "adapter"]
    rates = (
        requests.with_columns(whole=pl.col("tokens").sum().over(keys))
        .group_by(*group, *keys)
        .agg(rate=pl.col("output_tok_per_s").first() * pl.col("tokens").sum() / pl.col("whole").first())
        .group_by(group)
        .agg(output_tok_per_s=pl.col("rate").mean())
    )
    place = pl.col("series").replace_strict(labels, range(len(labels)), return_dtype=pl.Int64)
    return (
        requests.group_by(group)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            (~pl.col("ok")).sum().cast(pl.Int64).alias("failed"),
            pl.col("ttft").quantile(0.5, "linear").alias("ttft_50"),
            pl.col("ttft").quantile(0.99, "linear").alias("ttft_99"),
            pl.col("tpot").quantile(0.5, "linear").alias("tpot_50"),
        )
        .join(rates, on=group, how="left")
        .sort(place, "level", "adapter")
    )


def adapter_table(view: SweepView, ranked: Ranking, workload: str) -> Table | None:
    """The table of `by_adapter`; None where the workload names no adapters or the archive has no single requests."""
    rows = by_adapter(view, ranked, workload)
    if rows.is_empty():
        return None
    return table(
        rows,
        [
            Column(key="series", title="Config", unit=" / ".join(view.axes), kind="code"),
            Column(key="level", title="Load level", kind="code"),
            Column(key="adapter", title="Adapter", kind="code"),
            Column(key="n", title="Requests", kind="number"),
            Column(key="failed", title="Failed", kind="number"),
            Column(key="ttft_50", title="TTFT p50", unit="ms", kind="number"),
            Column(key="ttft_99", title="TTFT p99", unit="ms", kind="number"),
            Column(key="tpot_50", title="TPOT p50", unit="ms", kind="number"),
            Column(key="output_tok_per_s", title="Output", unit="tok/s", kind="number"),
        ],
        name=f"adapters-{slug(workload)}-{slug(ranked.hardware)}",
        title=f"Adapters of {workload}{view.where(ranked.hardware)}",
        note="Over the measured requests of all launches; base is the model without an adapter. Output is an adapter's "
        "share of the run's rate.",
        scope=slug(ranked.hardware),
    )
