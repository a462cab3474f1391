"""What a recorded trial says to the search."""

import pytest

from archive_factory import sweep_spec, trial_record
from tokenpeak.records import Reason, Verdict
from tokenpeak.search.history import BADLY_MEASURED, outcome_of


@pytest.mark.parametrize(
    ("code", "cause"),
    [("late_dispatch", BADLY_MEASURED), ("segments_lost", BADLY_MEASURED), ("overloaded", None), ("preemptions", None)],
)
def test_an_invalid_run_is_no_failed_config(code: str, cause: str | None) -> None:
    """A run that the client or the network spoilt says nothing about its config; the engine's own limits do."""
    trial, _ = trial_record(sweep_spec())
    verdict = Verdict(status="invalid", reasons=(Reason(code=code, text="…"),))
    spoilt = trial.model_copy(
        update={"runs": tuple(run.model_copy(update={"verdict": verdict}) for run in trial.runs), "failure": None}
    )
    outcome = outcome_of(spoilt.model_copy(update={"status": "ok"}), sweep_spec())

    assert (None, cause) == (outcome.value, outcome.failure_cause)
    assert outcome.about_the_config == (cause is None)
    assert not outcome.feasible
