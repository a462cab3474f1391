"""What the search did that a reader of its figures must know."""

import polars as pl

from tokenpeak.records import Plan
from tokenpeak.report.blocks import Sentence, note
from tokenpeak.report.view import SweepView
from tokenpeak.search.highest import climb_words, searched
from tokenpeak.search.history import Outcome
from tokenpeak.stats.drift import drift_words


def search_notes(view: SweepView) -> list[Sentence]:
    """Highest values that were sought, trials whose load was cut short, and whether a node drifted meanwhile."""
    plans = [plan for plan in view.record.plans if plan.highest is not None]
    told = [(plan.hardware, climb_words(plan, outcomes(view, plan.hardware))) for plan in plans]
    found = [note(f"On {hardware}: {words}") for hardware, words in told if words]
    if short := _cut_short(view):
        found.append(
            note(
                f"{short} of {view.trials.height} trials made only the objective's run, because it showed that they "
                "were surely far behind. The rest of their load was left out: other figures are missing, not zero."
            )
        )
    return [*found, *(note(words) for hardware in view.hardware for words in _drift(view, hardware))]


def _drift(view: SweepView, hardware: str) -> list[str]:
    """Whether the nodes of this hardware changed meanwhile, by launches of one config again; an import has no times."""
    told = view.trials.filter(
        pl.col("hardware") == hardware, pl.col("objective") > 0, ~pl.col("other_requests")
    ).drop_nulls("started_at")
    at_s = pl.col("started_at").dt.epoch("us") / 1e6
    launches = [] if view.record.imported else told.select("node", "config_name", at_s, "objective").rows()
    return drift_words(launches, baseline=view.spec.search.baseline, margin=view.spec.search.margin)


def _cut_short(view: SweepView) -> int:
    """How many trials gave a result with only the objective's run of several, in a search that ends trials early."""
    search = view.spec.search
    if (
        search.strategy != "adaptive"
        or not search.stop_hopeless
        or sum(len(plan.levels) for plan in view.spec.workloads) < 2
    ):
        return 0
    made = view.runs.group_by("trial_id").len().filter(pl.col("len") == 1)
    return view.trials.filter(pl.col("status") == "ok").join(made, on="trial_id", how="semi").height


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
