"""When a trial may begin, how long it may take production away, and what that was so far when a sweep is resumed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.archive_factory import make_archive

from archive_factory import node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.node.protocol.answers import RestoreAnswer, StatusAnswer
from tokenpeak.node.protocol.parts import RestoreOutcome
from tokenpeak.records import Restoration, TrialRecord
from tokenpeak.spec.sweep import Deadlines, SweepSpec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep import resume
from tokenpeak.sweep.ansible.result import NodeResult
from tokenpeak.sweep.downtime_budget import DowntimeBudget, Granted, Later, Never
from tokenpeak.sweep.resume import downtime_before_s, give_back

NODE = node_facts("node-1", "NVIDIA L4")
LONGEST_S = 60 + 4 * 60 + 10 + 30


def spec_with(**changes: Any) -> SweepSpec:
    """A spec whose trials take 340 s at the very most."""
    deadlines = Deadlines(engine_ready_s=60, run_s=60, engine_stop_s=10, production_ready_s=30, lease_s=20)
    spec = sweep_spec({"max_num_seqs": [8, 64]})
    assert 4 == sum(len(plan.levels) for plan in spec.workloads)
    return SweepSpec.model_validate(
        {**spec.model_dump(mode="json"), "deadlines": deadlines.model_dump(), "quality": False, **changes}
    )


def trial_of(spec: SweepSpec, duration_s: float, **changes: Any) -> TrialRecord:
    """A trial that took so long."""
    planned = plan_of(spec, NODE).feasible[0]
    record, _ = trial_record(spec, node=NODE, planned=planned, replicate=0, number=1)
    return record.model_copy(update={"duration_s": duration_s, "status": "ok", **changes})


def budget_at(clock: str, spec: SweepSpec, **changes: Any) -> DowntimeBudget:
    now = datetime.fromisoformat(f"2026-11-20T{clock}").replace(tzinfo=UTC)
    return DowntimeBudget(spec, now=lambda: now, **changes)


def test_without_a_grant_any_trial_may_begin() -> None:
    """No window and no cap: the node ends only what goes on far beyond the trial's own deadlines."""
    spec = spec_with()

    assert Granted(deadline_s=2 * LONGEST_S + 600) == budget_at("12:00", spec).ask("node-1", NODE.hardware)


def test_trial_that_could_not_end_in_the_window_waits_for_the_next() -> None:
    """Five minutes before the end, a trial that may take almost six does not begin; ten minutes before, it does."""
    spec = spec_with(window="01:00-05:00 UTC")
    refused = budget_at("04:55", spec).ask("node-1", NODE.hardware)
    allowed = budget_at("04:50", spec).ask("node-1", NODE.hardware)

    assert isinstance(refused, Later)
    assert datetime(2026, 11, 21, 1, tzinfo=UTC) == refused.until
    assert Granted(deadline_s=600 - 30) == allowed


def test_trials_before_show_how_long_one_takes() -> None:
    """Once trials are known to take a minute, one may begin three minutes before the end."""
    spec = spec_with(window="01:00-05:00 UTC")
    budget = budget_at("04:57", spec, earlier=[trial_of(spec, 60.0)])

    assert isinstance(budget.ask("node-1", NODE.hardware), Granted)


def test_downtime_is_capped() -> None:
    """A trial begins while its downtime fits in the cap, and never after; the reason has both numbers."""
    spec = spec_with(max_downtime="10m")
    budget = budget_at("12:00", spec, earlier=[trial_of(spec, 100.0)], before_s={"node-1": 300.0})
    first = budget.ask("node-1", NODE.hardware)
    budget.settle("node-1", None)
    budget.add_downtime("node-1", 200.0)
    second = budget.ask("node-1", NODE.hardware)

    assert Granted(deadline_s=300 - 30) == first
    assert isinstance(second, Never)
    assert "max_downtime is 0:10:00; production was down for 0:08:20" in second.reason


def test_nodes_share_the_cap() -> None:
    """What one node's trial may take is held back from the others until it has ended."""
    spec = spec_with(max_downtime=150)
    budget = budget_at("12:00", spec, earlier=[trial_of(spec, 100.0)])

    assert isinstance(budget.ask("node-1", NODE.hardware), Granted)
    assert isinstance(budget.ask("node-2", NODE.hardware), Never)


def test_outage_that_goes_on_is_counted_once() -> None:
    """Production that a trial could not bring back and a later attempt did was down once, for the whole time."""
    spec = spec_with()
    budget = budget_at("12:00", spec)
    down = Restoration(restored=False, was_running=True, downtime_s=122.0, message="It does not start.")
    budget.settle("node-1", trial_of(spec, 100.0, restoration=down))
    before = budget.downtime_s, budget.open_s
    budget.add_downtime("node-1", 173.0)

    assert ({"node-1": 122.0}, {"node-1": 122.0}) == before
    assert ({"node-1": 173.0}, {}) == (budget.downtime_s, budget.open_s)


def test_node_that_is_kept_between_trials_is_down() -> None:
    """With restore: per_sweep production is down from the first trial on, whether or not a trial runs."""
    spec = spec_with(max_downtime="10m", restore="per_sweep")
    now = [datetime(2026, 11, 20, 12, tzinfo=UTC)]
    budget = DowntimeBudget(spec, now=lambda: now[0])
    trial = trial_of(spec, 100.0, restoration=None, argv=("vllm",), started_at=now[0])
    first = budget.ask("node-1", NODE.hardware)
    now[0] += timedelta(seconds=100)
    budget.settle("node-1", trial)
    second = budget.ask("node-1", NODE.hardware)
    now[0] += timedelta(seconds=400)
    budget.settle("node-1", trial)
    third = budget.ask("node-1", NODE.hardware)
    budget.add_downtime("node-1", 520.0)

    assert [Granted(deadline_s=570), Granted(deadline_s=470)] == [first, second]
    assert isinstance(third, Never)
    assert "production was down for 0:08:20 and a trial may take 0:02:05 more" in third.reason
    assert {"node-1": 520.0} == budget.downtime_s


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return make_archive(tmp_path / "one", axes={"max_num_seqs": [8, 64]}, gpus=("NVIDIA L4",))


@pytest.mark.parametrize(("ended", "downtime_s", "expected_s"), [(2, 14.0, 14.0), (1, 4.0, 14.0), (0, 0.0, 20.0)])
def test_downtime_before(archive: Archive, ended: int, downtime_s: float, expected_s: float) -> None:
    """The end record's, which knows how long an outage was in the end, and that of the trials after it."""
    trials = [
        trial.model_copy(update={"restoration": Restoration(restored=is_over, was_running=True, downtime_s=10.0)})
        for trial, is_over in zip(archive.trials(), (False, True), strict=True)
    ]
    end = archive.read_end()
    assert end is not None
    node = trials[0].node
    archive.write_end(end.model_copy(update={"trials": ended, "production_downtime_s": {node: downtime_s}}))

    assert {node: expected_s} == downtime_before_s(archive, trials)


@pytest.mark.parametrize(
    ("is_over", "open_s", "expected_s"),
    [(True, None, 14.0), (False, None, 14.0), (False, 10.0, 34.0)],
    ids=["by its trial", "by the end record", "not yet"],
)
def test_an_outage_counts_once(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, is_over: bool, open_s: float | None, expected_s: float
) -> None:
    """A node whose disk refused to write keeps the record of a trial that is over, and reports it again."""
    *earlier, trial = archive.trials()
    back = Restoration(restored=is_over, was_running=True, downtime_s=10.0)
    trials = [*earlier, trial.model_copy(update={"restoration": back})]
    end = archive.read_end()
    assert end is not None
    known: dict[str, Any] = {
        "production_downtime_s": {trial.node: 14.0},
        "open_downtime_s": {trial.node: open_s} if open_s else {},
    }
    archive.write_end(end.model_copy(update={"trials": len(trials), **known}))
    holder = f"sweep {archive.path.name} from box (1), generation 1"
    outcome = RestoreOutcome(restored=True, was_running=True, downtime_s=30.0, trial_id=trial.trial_id, holder=holder)
    given = NodeResult(answers={"restore": RestoreAnswer(restoration=outcome)})
    monkeypatch.setattr(resume, "run_playbook", lambda *_, **__: SimpleNamespace(nodes={trial.node: given}))
    answers = {trial.node: StatusAnswer(holder=holder, trial_id=trial.trial_id)}

    give_back(Mock(), archive, trials, answers, Mock(sweep_id=archive.path.name), Mock(), Mock())

    after = archive.read_end()
    assert after is not None
    assert {trial.node: expected_s} == after.production_downtime_s
