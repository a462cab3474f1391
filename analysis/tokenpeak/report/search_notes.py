"""What the search did that a reader of its figures must know."""

import polars as pl

from tokenpeak.records import Plan
from tokenpeak.report.blocks import Sentence, note
from tokenpeak.report.view import SweepView
from tokenpeak.search.highest import climb_words, searched
from tokenpeak.search.history import Outcome


def search_notes(view: SweepView) -> list[Sentence]:
    """The highest value of an axis that was sought on each kind of hardware, and in how many launches it was found."""
    plans = [plan for plan in view.record.plans if plan.highest is not None]
    told = [(plan.hardware, climb_words(plan, outcomes(view, plan.hardware))) for plan in plans]
    return [note(f"On {hardware}: {words}") for hardware, words in told if words]


def searched_plan(view: SweepView, plan: Plan) -> Plan:
    """The plan with what is searched of it, as far as the trials tell."""
    return plan if plan.highest is None else searched(plan, outcomes(view, plan.hardware))


def outcomes(view: SweepView, hardware: str) -> list[Outcome]:
    """The ended trials of one hardware as the search saw them, less their objective."""
    ended = pl.col("started_at").dt.epoch("us") / 1e6 + pl.col("duration_s").fill_null(0.0)
    told = view.trials.filter(pl.col("hardware") == hardware, pl.col("status") != "interrupted").sort(ended)
    return [
        Outcome(
            config_id=row["config_id"],
            replicate=row["replicate"],
            status=row["status"],
            failure_cause=row["failure_cause"],
        )
        for row in told.iter_rows(named=True)
    ]
