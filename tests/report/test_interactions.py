"""What each alternative does, and each pair of axes, is shown with its interval or not at all."""

import json
from pathlib import Path

import polars as pl

from archive_factory import GPUS, make_archive
from shown_pages import figures_of, shown
from tokenpeak import paths
from tokenpeak.report import heatmaps, interactions, open_archive
from tokenpeak.report.blocks.block import plain


def axis_name(column: str) -> str:
    """The axis of a column of trials."""
    return column.removeprefix("axis_")


AXES = {"max_num_seqs": [8, 64], "enforce_eager": [True, False], "gpu_memory_utilization": [0.8, 0.9]}


def test_what_trials_cannot_separate_is_not_estimable(tmp_path: Path) -> None:
    """Two axes that always changed together: neither is estimable, nor their pair; the third axis is."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)
    for trial in list(archive.trials()):
        if (trial.config.choices["max_num_seqs"] == "8") != (trial.config.choices["enforce_eager"] == "true"):
            (archive.path / "trials" / f"{trial.trial_id}.json").unlink()
    view = open_archive(archive.path)
    effects = {row["axis"]: row for row in interactions.effects(view).iter_rows(named=True)}
    pairs = {row["pair"]: row for row in interactions.beyond(view).iter_rows(named=True)}
    drawn = figures_of(shown("interactions", archive.path, tmp_path))
    (figure,) = (each for each in drawn if each["name"].startswith("effects-"))

    assert effects["gpu_memory_utilization"]["effect"] is not None
    assert (None, "not estimable") == tuple(effects["enforce_eager"][key] for key in ("effect", "remark"))
    pair = pairs["max_num_seqs × enforce_eager"]
    assert (None, "not estimable") == (pair["effect"], pair["cell"])
    assert pair["p_value"] is None
    wanted = "left out of the means: max_num_seqs = 8, max_num_seqs = 64, enforce_eager = true, enforce_eager = false."
    assert wanted in str(figure["caption"])


def test_an_alternative_that_came_with_another_leaves_the_rest_comparable() -> None:
    """On a real H100 the smallest batch came only with bf16: the others are compared, as their matched pairs say."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    effects = interactions.effects(view)
    (row,) = interactions.importance(view, effects).filter(axis="max_num_seqs").iter_rows(named=True)
    others = ["max_num_batched_tokens", "weights", "kv_cache_dtype"]
    launches = view.trials.filter(pl.col("objective") > 0).select("objective", pl.col("^axis_.*$").name.map(axis_name))
    small, large = (launches.filter(max_num_seqs=seqs) for seqs in ("128", "512"))
    ratios = large.join(small, on=others).select(pl.col("objective") / pl.col("objective_right"))["objective"]
    said = plain(interactions.answer_interactions(view, effects).parts)

    assert ("512", "128") == (row["best"], row["worst"])
    assert ratios.min() < 1 + row["gain"] < ratios.max()
    assert " matters: 512 gives +26% over 128" in said
    assert "What weights does is not known" in said


def test_cell_of_a_class_that_ran_is_no_gap(tmp_path: Path) -> None:
    """A config that was merged into another's class has that one's figure in its cell; one of no class is untried."""
    axes = {"max_num_seqs": [8, 64], "max_num_batched_tokens": [2048, 4096]}
    archive = make_archive(tmp_path / "a", axes=axes, gpus=GPUS[:1], seconds=2)
    trials = {tuple(trial.config.choices.values()): trial for trial in archive.trials()}
    for choices in (("64", "4096"), ("8", "4096")):
        (archive.path / "trials" / f"{trials[choices].trial_id}.json").unlink()
    record = json.loads((archive.path / "sweep.json").read_text())
    for planned in record["plans"][0]["feasible"]:
        if planned["config"]["config_id"] == trials["64", "4096"].config.config_id:
            planned["config_class"] = trials["64", "2048"].config_class
    (archive.path / "sweep.json").write_text(json.dumps(record))
    view = open_archive(archive.path)
    grid = heatmaps.cells(view, "max_num_seqs", "max_num_batched_tokens", 0.1)
    found = {(row["across"], row["down"]): row for row in grid.iter_rows(named=True)}

    assert found["64", "2048"]["value"] == found["64", "4096"]["value"]
    assert "cannot differ from max_num_seqs=64 max_num_batched_tokens=2048, which ran" == found["64", "4096"]["why"]
    assert "untried" == found["8", "4096"]["state"]
