"""What production was down so far, when a sweep is resumed."""

from pathlib import Path

import pytest
from tests.archive_factory import make_archive

from tokenpeak.records import Restoration
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.resume import downtime_before_s


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
