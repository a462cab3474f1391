"""Classes of configs that cannot differ: the config that stands for each, and the decision among them."""

from functools import lru_cache

import polars as pl

from tokenpeak.ranking.candidates import Candidates, decided, launches_of_rows
from tokenpeak.report.view import SweepView


@lru_cache(maxsize=32)
def candidates(view: SweepView, hardware: str) -> Candidates:
    """The candidates of one kind of hardware and their decision."""
    trials = view.trials.filter(pl.col("hardware") == hardware)
    nodes = view.nodes_of(hardware)
    quality = trials.filter(pl.col("quality").is_not_null()).select("config_id", "quality").iter_rows()
    return decided(
        view.spec,
        launches_of_rows(view.spec, trials.iter_rows(named=True), view.runs.iter_rows(named=True)),
        plan=view.plan_for(hardware),
        quality=dict(quality),
        engine_version=nodes[0].engine_version if nodes else None,
    )


def by_class(view: SweepView, runs: pl.DataFrame) -> pl.DataFrame:
    """Rows of runs with the config_id and label of the config that stands for their class, as in the ranking."""
    labels = dict(view.trials.select("config_id", "label").iter_rows())
    parts = [
        own.with_columns(pl.col("config_id").replace(candidates(view, str(hardware)).of))
        for (hardware,), own in runs.group_by("hardware", maintain_order=True)
    ]
    found = pl.concat(parts) if parts else runs
    return found.with_columns(label=pl.col("config_id").replace_strict(labels, return_dtype=pl.String))
