"""The highest gpu_memory_utilization that survives the load, found by real trials on a simulated node."""

from collections.abc import Sequence

import pytest
from driven_home import Home

from tokenpeak.records import TrialRecord
from tokenpeak.report import open_archive
from tokenpeak.report.trials.search_progress import search_notes
from tokenpeak.store.archive import Archive

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def climbed(home: Home) -> tuple[str, Archive, Sequence[TrialRecord]]:
    """A sweep that was interrupted in the second trial and resumed: what it said at its end, and its ended trials."""
    said, path = home.interrupted_and_resumed("lone", "climb", trials=2)
    archive = Archive(path)
    return said, archive, [trial for trial in archive.trials() if trial.status != "interrupted"]


Climbed = tuple[str, Archive, Sequence[TrialRecord]]


def test_few_real_launches_find_it(climbed: Climbed) -> None:
    """What starts and dies under the load is too high; the other config is then tried at the value found alone."""
    _, _, trials = climbed
    made = [(trial.config.choices["gpu_memory_utilization"], trial.status) for trial in trials]
    batches = [trial.config.choices["max_num_batched_tokens"] for trial in trials]

    assert [("0.95", "failed"), ("0.91", "ok"), ("0.93", "ok"), ("0.93", "ok")] == made
    assert ["4096"] * 3 + ["512"] == batches


def test_failures_have_their_cause(climbed: Climbed) -> None:
    """The engine was up and answering; its log says that memory ran out under the load."""
    _, _, trials = climbed
    failures = [trial.failure for trial in trials if trial.failure is not None]

    assert [("load", "out_of_memory")] == [(failure.phase, failure.cause) for failure in failures]
    assert all(trial.startup.ready_s for trial in trials)


def test_sweep_and_pages_say_what_was_found(climbed: Climbed) -> None:
    """The terminal's summary and the pages' note show the value, the launches and what failed."""
    said, archive, _ = climbed
    words = (
        "gpu_memory_utilization=0.93 is the highest of 0.91 to 0.97 that launched and carried the whole load, found "
        "in 3 launches of max_num_batched_tokens=4096; failed: 0.95 (out of memory)."
    )
    view = open_archive(archive.path)

    assert words in said
    assert words in str(search_notes(view)[0].parts[0])
    assert ("0.91", "0.93", "0.95") == view.axes["gpu_memory_utilization"]
