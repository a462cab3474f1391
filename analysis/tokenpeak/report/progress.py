"""How far a running sweep is: each planned config's state on each kind of hardware, and what is left."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from tokenpeak.report.blocks import number
from tokenpeak.report.search_notes import outcomes, searched_plan
from tokenpeak.report.view import SweepView, config_label
from tokenpeak.search.remaining import trial_count


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
    """The matrix of a running sweep. `rows` have a label and a state and value for each kind of hardware."""

    hardware: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    done: int
    planned: int
    left_s: float | None
    """At the pace of the trials so far, with every node at work; None before the first."""


def progress(view: SweepView) -> SweepProgress:
    """The matrix as it stands: each planned config is waiting, ok, invalid or failed."""
    launches = 1 if view.spec.search.strategy == "adaptive" else view.spec.search.replicates
    count = trial_count(view.spec, [(plan, outcomes(view, plan.hardware)) for plan in view.record.plans])
    cells = {(row["hardware"], row["config_id"]): row for row in _counted(view).iter_rows(named=True)}
    labels: dict[str, str] = {}
    for plan in view.record.plans:
        searched = {planned.config.config_id for planned in searched_plan(view, plan).feasible}
        beside = {config_id for kind, config_id in cells if kind == plan.hardware} - searched
        for planned in plan.feasible:
            if planned.config.config_id in searched | beside:
                labels.setdefault(planned.config.config_id, config_label(planned.config.choices, planned.config.name))
    hardware = tuple(plan.hardware for plan in view.record.plans)
    rows = tuple(
        {"label": label, "cells": [_cell(cells.get((kind, config_id)), launches) for kind in hardware]}
        for config_id, label in labels.items()
    )
    pace = view.trials["duration_s"].mean() if count.ended else None
    return SweepProgress(
        hardware=hardware,
        rows=rows,
        done=count.ended,
        planned=count.total,
        left_s=float(str(pace)) * count.remaining / max(1, len(view.record.nodes)) if pace is not None else None,
    )


def _counted(view: SweepView) -> pl.DataFrame:
    return view.trials.group_by("hardware", "config_id").agg(
        pl.col("objective").mean(),
        n=pl.len(),
        ok=(pl.col("status") == "ok").sum(),
        cause=pl.col("failure_cause").drop_nulls().first(),
        status=pl.col("status").last(),
        trial_id=pl.col("trial_id").last(),
    )


def _cell(row: dict[str, Any] | None, launches: int) -> dict[str, Any]:
    if row is None:
        return {"state": "waiting", "text": "waiting", "href": None}
    if row["objective"] is not None:
        state, text = "ok", number(row["objective"])
    elif row["ok"]:
        state, text = "invalid", "invalid"
    else:
        state, text = row["status"], str(row["cause"] or row["status"]).replace("_", " ")
    more = f" ({row['n']} of {launches})" if row["n"] < launches else ""
    return {"state": state, "text": text + more, "href": f"trials/{row['trial_id']}.html"}
