"""What each alternative does, and each pair of axes, is shown with its interval or not at all."""

from pathlib import Path

import polars as pl

from archive_factory import GPUS, make_archive
from shown_pages import figures_of, shown
from tokenpeak import paths
from tokenpeak.report import open_archive
from tokenpeak.report.blocks.block import plain
from tokenpeak.report.hardware import side_by_side
from tokenpeak.report.interactions import axis_effects, heatmaps
from tokenpeak.report.overview import summary


def axis_name(column: str) -> str:
    """The axis of a column of trials."""
    return column.removeprefix("axis_")


AXES = {"max_num_seqs": [8, 64], "enforce_eager": [True, False], "gpu_memory_utilization": [0.8, 0.9]}


def test_effects_and_pairs_have_intervals(tmp_path: Path) -> None:
    """A full grid launched twice gives every alternative and every pair, with n and bounds."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2, replicates=2)
    view = open_archive(archive.path)
    effects, pairs = axis_effects.effects(view), axis_effects.beyond(view)

    assert [8] * 6 == effects["n"].to_list()
    assert (effects["low"] < effects["effect"]).all() and (effects["effect"] < effects["high"]).all()
    assert [4] * 3 == pairs["n"].to_list()
    assert (pairs["low"] < pairs["effect"]).all() and (pairs["effect"] < pairs["high"]).all()
    assert pairs["p_value"].is_between(0, 1).all()


def test_what_trials_cannot_separate_is_not_estimable(tmp_path: Path) -> None:
    """Two axes that always changed together: neither is estimable, nor their pair; the third axis is."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)
    for trial in list(archive.trials()):
        if (trial.config.choices["max_num_seqs"] == "8") != (trial.config.choices["enforce_eager"] == "true"):
            (archive.path / "trials" / f"{trial.trial_id}.json").unlink()
    view = open_archive(archive.path)
    effects = {row["axis"]: row for row in axis_effects.effects(view).iter_rows(named=True)}
    pairs = {row["pair"]: row for row in axis_effects.beyond(view).iter_rows(named=True)}
    drawn = figures_of(shown("interactions", archive.path, tmp_path))
    (figure,) = (each for each in drawn if each["name"].startswith("effects-"))

    assert effects["gpu_memory_utilization"]["effect"] is not None
    assert (None, "not estimable") == tuple(effects["enforce_eager"][key] for key in ("effect", "remark"))
    pair = pairs["max_num_seqs × enforce_eager"]
    assert (None, "not estimable") == (pair["effect"], pair["cell"])
    assert pair["p_value"] is None
    wanted = "in no mean: max_num_seqs = 8, max_num_seqs = 64, enforce_eager = true, enforce_eager = false."
    assert wanted in str(figure["caption"])


def test_an_alternative_that_came_with_another_leaves_the_rest_comparable() -> None:
    """On a real H100 the smallest batch came only with bf16: the others are compared, as their matched pairs say."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    effects = axis_effects.effects(view)
    (row,) = axis_effects.importance(view, effects).filter(axis="max_num_seqs").iter_rows(named=True)
    others = ["max_num_batched_tokens", "weights", "kv_cache_dtype"]
    launches = view.trials.filter(pl.col("objective") > 0).select("objective", pl.col("^axis_.*$").name.map(axis_name))
    small, large = (launches.filter(max_num_seqs=seqs) for seqs in ("128", "512"))
    ratios = large.join(small, on=others).select(pl.col("objective") / pl.col("objective_right"))["objective"]
    said = plain(axis_effects.answer_interactions(view, effects).parts)

    assert ("512", "128") == (row["best"], row["worst"])
    assert ratios.min() < 1 + row["gain"] < ratios.max()
    assert " matters: 512 gives +26% over 128" in said
    assert "What weights does is not known" in said


def test_one_config_shows_no_axis(tmp_path: Path) -> None:
    """Nothing is said to matter where nothing could."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)
    for path in sorted((archive.path / "trials").glob("*.json"))[1:]:
        path.unlink()
    view = open_archive(archive.path)
    said = axis_effects.answer_interactions(view, axis_effects.effects(view))

    assert "No axis's effect is estimable" in str(said.parts[0])
    assert axis_effects.beyond(view)["effect"].is_null().all()


def test_the_best_of_a_cell_is_the_lowest_where_lower_is_better(tmp_path: Path) -> None:
    """A cell of latencies gives the least of its configs beside their mean."""
    archive = make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2)
    sweep = archive.path / "sweep.json"
    sweep.write_text(sweep.read_text().replace('"metric":"output_tok_per_s"', '"metric":"ttft_s_p95"'))
    view = open_archive(archive.path)
    cells = axis_effects.cells(view, "max_num_seqs", "enforce_eager", 0.1)

    assert [2] * 4 == cells["n"].to_list()
    assert (cells["best"] < cells["value"]).all()
    assert "; lower is better." in heatmaps.heatmap_legend(view, 0.1).words()


def test_a_sweep_without_axes_says_so(tmp_path: Path) -> None:
    """One config as it stands, or a server that is there already: nothing varies, so nothing is missed."""
    view = open_archive(make_archive(tmp_path / "a", axes={}, gpus=GPUS[:1], seconds=2).path)

    assert "This sweep varies no axis, so there is no effect to estimate." == plain(
        axis_effects.answer_interactions(view, axis_effects.effects(view)).parts
    )
    assert [] == side_by_side.speedups(view)


def test_models_at_several_contexts_on_two_nodes_are_a_sweep_like_others(tmp_path: Path) -> None:
    """Only a publication is shown by presets of hardware; a context may be a word, as `auto` is."""
    axes = {"model": ["small", "large"], "max_model_len": ["auto", 4096]}
    view = open_archive(make_archive(tmp_path / "a", axes=axes, gpus=GPUS[:2], seconds=2).path)

    assert summary.recommends(view)
    assert all("run " in each.words() for each in summary.answers_of(view) if each.tone == "answer")


def test_cells_over_other_settings_are_marked() -> None:
    """On a real H100 the smallest batch ran with bf16 only: its mean is over other settings than its neighbours'."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    cells = axis_effects.cells(view, "max_num_seqs", "weights", 0.6)
    drawn = heatmaps.heatmap(view, "max_num_seqs", "weights", 0.6)
    (alone,) = cells.filter(across="32", down="bf16").iter_rows(named=True)

    assert alone["mixed"] and alone["under"].endswith("n=1*")
    assert "Means over max_num_batched_tokens, kv_cache_dtype; 1 to 4 configs a cell." == drawn.caption
    assert (
        "*: other cells differ from this one in more than the two axes." in heatmaps.heatmap_legend(view, 0.6).words()
    )


def test_cells_of_a_full_grid_are_not_marked(tmp_path: Path) -> None:
    """Where every combination ran, all cells are means over the same settings."""
    view = open_archive(make_archive(tmp_path / "a", axes=AXES, gpus=GPUS[:1], seconds=2).path)
    drawn = heatmaps.heatmap(view, "max_num_seqs", "enforce_eager", 0.6)

    assert not axis_effects.cells(view, "max_num_seqs", "enforce_eager", 0.6)["mixed"].any()
    assert "Means over gpu_memory_utilization; 2 configs a cell." == drawn.caption
    assert "*" not in heatmaps.heatmap_legend(view, 0.6).words()


def test_the_first_of_an_axis_has_no_pairs_with_itself() -> None:
    """The number of matched pairs that the sentence says stands in the table, and none beside the reference."""
    view = open_archive(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    (shown_as,) = (
        each for each in side_by_side.speedups(view) if getattr(each, "name", "") == "speedup-kv-cache-dtype"
    )
    place = [column.key for column in shown_as.columns].index("n")

    assert ["–", "2"] == [row[place]["text"] for row in shown_as.rows]


def test_no_test_of_a_pair_of_which_nothing_can_be_estimated() -> None:
    """Of the V100's published rows no pair has an estimable cell: an F test of it is no sign of an interaction."""
    pairs = axis_effects.beyond(open_archive(paths.ARCHIVES / "v100-deepseek-r1-32b"))

    assert ["not estimable"] * 3 == pairs["cell"].to_list()
    assert [None] * 3 == pairs["p_value"].to_list()
