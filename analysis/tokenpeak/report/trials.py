"""Trials: the answer of their page, and the parts of a launch's time with their names and colours."""

import polars as pl

from tokenpeak.report.blocks import Sentence, answer, number, strong
from tokenpeak.report.view import SweepView

KINDS = {
    "engine_start_s": "engine start",
    "load_s": "load",
    "production_start_s": "production start",
    "orchestration_s": "TokenPeak's own",
}
COLOURS = {
    "engine_start_s": "var(--phase-engine)",
    "load_s": "var(--phase-load)",
    "production_start_s": "var(--phase-production)",
    "orchestration_s": "var(--phase-own)",
}
DRAWN = 60
"""Most trials that the figure shows, the first ones; its table has all."""


def timed(view: SweepView) -> bool:
    """It is known where the time of trials went; an import's source does not say."""
    return bool(view.trials["duration_s"].is_not_null().any())


def answer_trials(view: SweepView) -> Sentence:
    """How many trials there were, what they took, and how much of it was measuring."""
    trials = view.trials
    if trials.is_empty():
        return answer("No trial has ended yet.")
    if not timed(view):
        return answer(
            strong(f"{number(trials.height)} launches"),
            " have published figures; when each was made and how long it took is not known.",
        )
    total = float(trials["duration_s"].sum())
    load = float(trials["load_s"].sum())
    own = float(trials["orchestration_s"].median() or 0.0)  # type: ignore[arg-type]
    failed = trials.filter(pl.col("status") != "ok").height
    words = "all gave a result" if not failed else f"{number(trials.height - failed)} gave a result"
    return answer(
        strong(f"{number(trials.height)} launches"),
        f", of which {words}; they took {number(total / 60, 1)} minutes on their nodes, ",
        strong(f"{load / total:.0%}" if total else "–"),
        f" of it under load. TokenPeak's own part was {number(own, 1)} s in the median trial.",
    )
