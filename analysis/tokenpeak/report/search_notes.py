"""Search notes: what the search did that a reader of its figures must know."""

import polars as pl

from tokenpeak.ranking.drift import drift_words
from tokenpeak.records import Plan
from tokenpeak.report.blocks import Sentence, note
from tokenpeak.report.view import SweepView
from tokenpeak.search.highest import climb_words, searched
from tokenpeak.search.history import Outcome, judged_slo


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
