"""An adaptive sweep on simulated nodes, interrupted in the middle and resumed, with trials that are cut short."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from driven_home import Home

from tokenpeak.predict.demand import objective_run
from tokenpeak.ranking.objective import objective_value
from tokenpeak.records import Plan, TrialRecord
from tokenpeak.search.history import Finished, Proposal, Wait, history_of
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SweepSpec, parse_spec
from tokenpeak.store.archive import Archive

pytestmark = pytest.mark.e2e

SETTLING = timedelta(seconds=1)
"""Between the end of a trial, as its record has it, and the moment from which other nodes' claims know of it."""


def interrupted_and_resumed(home: Home, inventory: str) -> tuple[SweepSpec, Plan, list[TrialRecord]]:
    """An adaptive sweep that is ended by a signal in its third trial and resumed: all its trials, in the same order."""
    _, path = home.interrupted_and_resumed(inventory, "learn", trials=3)
    archive = Archive(path)
    record = archive.read_sweep()
    trials = sorted(archive.trials(), key=lambda trial: trial.trial_id)
    return parse_spec(record.spec, archive.path / "sweep.json"), record.plans[0], trials


def key(trial: TrialRecord) -> tuple[str, int]:
    """What identifies the trial within its hardware."""
    return trial.config.config_id, trial.replicate


def ended_at(trial: TrialRecord) -> timedelta:
    """When it ended, since the epoch of its clock."""
    return timedelta(seconds=trial.started_at.timestamp() + (trial.duration_s or 0.0))


def answers(
    spec: SweepSpec, plan: Plan, earlier: Sequence[TrialRecord], trial: TrialRecord
) -> list[Proposal | Wait | Finished]:
    """What a strategy made anew answers to what was known when the trial began.

    A trial of another node that ended just then may have been known to have ended, or not.
    """
    began = timedelta(seconds=trial.started_at.timestamp())
    found = []
    for settled in (began, began - SETTLING):
        known = [other for other in earlier if ended_at(other) <= settled or other.node == trial.node]
        running = {key(other) for other in earlier if other not in known}
        history = history_of(known, spec, plan.hardware)
        found.append(make_strategy(spec.search, plan, metric=spec.objective.metric).propose(history, running))
    return found


@pytest.mark.parametrize("inventory", ["lone", "twins"])
def test_interruption_changes_no_suggestion(home: Home, inventory: str) -> None:
    """Every trial is what the trials before it lead to; those that were interrupted are made first, and none twice."""
    spec, plan, trials = interrupted_and_resumed(home, inventory)
    lost = [key(trial) for trial in trials if trial.status == "interrupted"]
    ended = [trial for trial in trials if trial.status != "interrupted"]
    after = trials[max(place for place, trial in enumerate(trials) if trial.status == "interrupted") + 1 :]

    assert set(lost) == {key(trial) for trial in after[: len(lost)]}
    assert len(ended) == len({key(trial) for trial in ended})
    assert len({trial.node for trial in ended}) == (2 if inventory == "twins" else 1)
    for place, trial in enumerate(trials):
        if trial in after[: len(lost)]:
            continue
        # Once the sweep was resumed, what was interrupted before ran no more.
        earlier = [other for other in trials[:place] if trial not in after or other.status != "interrupted"]
        proposed = [step for step in answers(spec, plan, earlier, trial) if isinstance(step, Proposal)]

        assert (*key(trial), trial.holdout) in [(*step.key, step.holdout) for step in proposed]
        if trial.status == "ok":
            _check_cut(spec, trial, proposed)


def _check_cut(spec: SweepSpec, trial: TrialRecord, proposed: Sequence[Proposal]) -> None:
    """The runs beside the objective's were left out exactly where it was well measured and beyond the threshold."""
    run = objective_run(trial.runs, spec)
    value = objective_value(trial, spec)
    thresholds = [step.early_stop_threshold for step in proposed if step.key == key(trial)]
    is_behind = [
        threshold is not None
        and value is not None
        and value < threshold
        and run is not None
        and run.verdict.status == "valid"
        for threshold in thresholds
    ]

    assert (trial.left_out is not None) in is_behind
    assert (1 if trial.left_out else 2) == len(trial.runs)
    assert trial.runs == tuple(sorted(trial.runs, key=lambda run: run.run_index))
    starts = [run.started_s for run in trial.runs if run is not None]
    assert trial.left_out or starts[1] < starts[0], "the objective's run, the spec's second, is made first"  # type: ignore[operator]
