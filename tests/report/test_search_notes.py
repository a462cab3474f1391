"""What the search did stands beside its figures."""

from pathlib import Path

from archive_factory import GPUS, make_archive
from tokenpeak.records import Failure, TrialRecord
from tokenpeak.report import open_archive
from tokenpeak.report.trials.search_progress import outcomes, progress, search_notes
from tokenpeak.search.history import history_of
from tokenpeak.store.archive import Archive

AXES = {"max_num_seqs": [8, 64], "gpu_memory_utilization": [0.91, 0.92, 0.93, 0.94]}


def rewritten(archive: Archive, **spec: object) -> None:
    """The archive as a sweep with these keys in its spec would have left it."""
    record = archive.read_sweep()
    plans = tuple(plan.model_copy(update={"highest": spec.get("highest")}) for plan in record.plans)
    (archive.path / "sweep.json").unlink()
    archive.write_sweep(record.model_copy(update={"spec": {**record.spec, **spec}, "plans": plans}))


def kept(archive: Archive, trials: list[TrialRecord]) -> None:
    """The archive with these trials alone."""
    for path in (archive.path / "trials").glob("*.json"):
        path.unlink()
    for trial in trials:
        archive.write_trial(trial, None, "")


def words(archive: Archive) -> list[str]:
    """The notes as text."""
    return [str(sentence.parts[0]) for sentence in search_notes(open_archive(archive.path))]


def test_highest_value_is_noted_and_only_its_configs_are_waited_for(tmp_path: Path) -> None:
    """While the other config is still to come: what was found, what failed, and which values were launched."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2, end=False)
    rewritten(archive, highest="gpu_memory_utilization")
    made = {trial.config.name: trial for trial in archive.trials()}
    low, high = (made[f"max_num_seqs=8 gpu_memory_utilization={value}"] for value in (0.93, 0.94))
    failure = Failure(phase="load", cause="out_of_memory", message="GPU memory ran out.")
    kept(archive, [low, high.model_copy(update={"status": "failed", "failure": failure})])
    view = open_archive(archive.path)

    assert [
        "On 1x NVIDIA A100-SXM4-80GB: gpu_memory_utilization=0.93 is the highest of 0.91 to 0.94 that launched and "
        "carried the whole load, found in 2 launches of max_num_seqs=8; failed: 0.94 (out of memory). The other "
        "configs are tried at that value alone."
    ] == words(archive)
    assert ("0.93", "0.94") == view.axes["gpu_memory_utilization"]
    assert ["8 / 0.93", "8 / 0.94", "64 / 0.93"] == [row["label"] for row in progress(view).rows]
    assert 2 + 1 + 4 == progress(view).planned, "the other config, and four launches that show noise"


def test_trials_that_were_cut_short_are_counted(tmp_path: Path) -> None:
    """One of two trials made the objective's run alone."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], seconds=2)
    search = archive.read_sweep().spec["search"]
    assert isinstance(search, dict)
    rewritten(archive, search={**search, "strategy": "adaptive"})
    first, second = archive.trials()
    kept(archive, [first.model_copy(update={"runs": first.runs[:1], "left_out": "It is far behind."}), second])

    assert ["1 of 2 trials ended early"] == [found.split(",")[0] for found in words(archive)]


def test_the_search_is_shown_the_history_that_it_had(tmp_path: Path) -> None:
    """Outcomes from frames are those from records, in the order in which the trials ended."""
    archive = make_archive(tmp_path / "a", axes={"max_num_seqs": [8, 64]}, gpus=GPUS[:1], seconds=2)
    first, second = archive.trials()
    kept(archive, [first.model_copy(update={"duration_s": 1000.0}), second])
    view = open_archive(archive.path)

    assert history_of(archive.trials(), view.spec, view.hardware[0]) == outcomes(view, view.hardware[0])
