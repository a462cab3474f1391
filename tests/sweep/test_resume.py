"""What production was down so far, when a sweep is resumed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.archive_factory import make_archive

from tokenpeak.node.protocol.answers import RestoreAnswer, StatusAnswer
from tokenpeak.node.protocol.parts import RestoreOutcome
from tokenpeak.records import Restoration
from tokenpeak.store.archive import Archive
from tokenpeak.sweep import resume
from tokenpeak.sweep.ansible.result import NodeResult
from tokenpeak.sweep.resume import downtime_before_s, give_back


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
