"""Search notes: what the search did that a reader of its figures must know."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from tokenpeak.ranking.drift import drift_words
from tokenpeak.records import Plan
from tokenpeak.report.blocks.block import Sentence, note
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.view import SweepView, config_label
from tokenpeak.search.highest import climb_words, searched
from tokenpeak.search.history import Outcome, judged_slo
from tokenpeak.search.remaining import trial_count


def search_notes(view: SweepView) -> list[Sentence]:
    """Highest values that were sought, trials whose load was cut short, and whether a node drifted meanwhile."""
    plans = [plan for plan in view.record.plans if plan.highest is not None]
    climbs = [(plan.hardware, climb_words(plan, outcomes(view, plan.hardware))) for plan in plans]
    found = [note(f"On {hardware}: {words}") for hardware, words in climbs if words]
    if short := _cut_short(view):
        found.append(
            note(
                f"{short} of {view.trials.height} trials ended early, far behind in the objective's run: their other "
                "load levels were left out."
            )
        )
    return [*found, *(note(words) for hardware in view.hardware for words in _drift(view, hardware))]


def _drift(view: SweepView, hardware: str) -> list[str]:
    """Whether the nodes of this hardware changed meanwhile, by launches of one config again; an import has no times."""
    timed = view.trials.filter(pl.col("hardware") == hardware, pl.col("objective") > 0, ~pl.col("holdout")).drop_nulls(
        "started_at"
    )
    at_s = pl.col("started_at").dt.epoch("us") / 1e6
    launches = [] if view.record.imported else timed.select("node", "config_name", at_s, "objective").rows()
    return drift_words(launches, baseline=view.spec.search.baseline, margin=view.spec.search.margin)


def _cut_short(view: SweepView) -> int:
    """How many trials gave a result with only the objective's run, because the others were left out on purpose."""
    return view.trials.filter(pl.col("status") == "ok", pl.col("left_out").is_not_null()).height


def searched_plan(view: SweepView, plan: Plan) -> Plan:
    """The plan with what is searched of it, as far as the trials show."""
    return plan if plan.highest is None else searched(plan, outcomes(view, plan.hardware))


def outcomes(view: SweepView, hardware: str) -> list[Outcome]:
    """The ended trials of one hardware as the search saw them."""
    ended = view.trials.filter(pl.col("hardware") == hardware, pl.col("status") != "interrupted")
    ended = ended.sort("ended_at", maintain_order=True)
    return [
        Outcome(
            config_id=row["config_id"],
            replicate=row["replicate"],
            status=row["status"],
            value=row["objective"],
            node=row["node"],
            slo_met=judged_slo(view.spec, row["slo_met"]),
            failure_cause=row["failure_cause"],
            duration_s=row["duration_s"] or 0.0,
            holdout=row["holdout"],
        )
        for row in ended.iter_rows(named=True)
    ]


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
        pl.col("objective").log().mean().exp(),
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
