"""The published figures come out of the archives, within their rounding."""

import csv
from pathlib import Path

import polars as pl
import pytest
from published_names import A100, H200, PRESET_ROWS, PRESETS, T4, V100

from shown_pages import shown, table_of
from tokenpeak import paths
from tokenpeak.exchange.assemble import write_import
from tokenpeak.exchange.table import read_tables
from tokenpeak.report import open_archive
from tokenpeak.report.load import rates
from tokenpeak.report.ranking.standings import rank
from tokenpeak.report.side_by_side import parallel_speedups
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.store.frames import Frames


def source(archive: str, name: str) -> list[dict[str, str]]:
    """The rows of a published table."""
    with (paths.ARCHIVES / archive / "source" / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", [V100, A100, H200, T4, PRESETS])
def test_archives_are_what_their_mappings_make(name: str, tmp_path: Path) -> None:
    """Importing an archive's sources again gives its records, but for the software that made them.

    Specs are compared as they are read: one recorded before an option was there stands at its default.
    """
    found, own = read_tables(paths.ARCHIVES / name / "source" / "mapping.yml")
    made = write_import(found, tmp_path, sweep_id=own)
    kept = Archive(paths.ARCHIVES / name)
    drop = {"provenance": kept.read_sweep().provenance}
    specs = [parse_spec(archive.read_sweep().spec, archive.path) for archive in (kept, made)]

    assert specs[0] == specs[1]
    assert kept.read_sweep() == made.read_sweep().model_copy(update={**drop, "spec": kept.read_sweep().spec})
    assert list(kept.trials()) == [trial.model_copy(update=drop) for trial in made.trials()]
    assert [] == kept.malformed


def test_missing_is_missing(published: Frames) -> None:
    """What no source gives is null in every frame, not zero."""
    runs = published.runs

    assert runs["seed"].is_null().all()
    assert runs["client_processes"].is_null().all()
    assert published.trials["duration_s"].is_null().all()
    assert runs.filter(sweep_id=V100)["output_tok_per_s"].is_null().all()
    assert runs.filter(sweep_id=H200)["output_tokens"].is_null().all()
    assert ["not_judged"] == runs["verdict"].unique().to_list()


def test_v100_ranking() -> None:
    """The ranking has the published order of speeds, from 21.8 to 19.8, and names the plateau as one group."""
    view = open_archive(paths.ARCHIVES / V100)
    ranked = rank(view, view.hardware[0]).frame

    assert [21.8] * 3 + [21.7] * 6 + [21.6, 20.4, 20.1, 19.8] == ranked["objective"].round(6).to_list()
    assert {"best", "tie"} == set(ranked["group"][:10])
    assert {""} == set(ranked["group"][10:])


def test_v100_energy_and_water(tmp_path: Path) -> None:
    """W per token and litres per million tokens come out as published, with the factors that they imply."""
    view = open_archive(paths.ARCHIVES / V100)
    energy = table_of(shown("energy", paths.ARCHIVES / V100, tmp_path), "energy")
    expected = {
        row["published_w_per_token"]: row for row in source(V100, "ranking.csv") if row["published_w_per_token"]
    }

    assert 10 == len(energy)
    for row in energy:
        speed = view.runs.filter(label=row["label"])["request_output_tok_per_s_mean"][0]
        published = expected[f"{row['energy_j_per_output_tok']:.2f}"]
        assert pytest.approx(1200 / speed, abs=0.0051) == row["energy_j_per_output_tok"]
        litres = float(published["published_water_l_per_1m_tokens"])
        assert litres == round(1200 / speed / 3.6 * 1.5 * 1.8, 2)
        assert litres == pytest.approx(row["water_l_per_1m_output_tok"], rel=2e-4)
    assert 10.89 == round(1200 / 21.8 / 3.6 * 1.5 * 0.475, 2)
    assert 10.89 == pytest.approx(min(row["co2_kg_per_1m_output_tok"] for row in energy), rel=5e-4)


def test_a100_throughputs_from_tokens_and_durations(published: Frames) -> None:
    """Output, total and request throughput of every serving run are tokens and requests divided by its duration."""
    runs = published.runs.filter(sweep_id=A100)

    assert 6 == runs.height
    for row in runs.iter_rows(named=True):
        total = row["input_tokens"] + row["output_tokens"]
        assert row["output_tokens"] / row["duration_s"] == pytest.approx(row["output_tok_per_s"], rel=2e-4)
        assert total / row["duration_s"] == pytest.approx(row["total_tok_per_s"], rel=2e-4)
        assert row["requests_ok"] / row["duration_s"] == pytest.approx(row["request_per_s"], abs=0.005)


def test_h200_slo_table() -> None:
    """The highest rate of each config is the published one: 2 for all, 1.5 for the default's second launch."""
    view = open_archive(paths.ARCHIVES / H200)
    found = dict(view.trials.select(pl.concat_str("config_name", "replicate"), "objective").iter_rows())
    highest = rates.highest_rates(rates.open_runs(view, view.hardware[0], "multi-turn"))

    assert {"defaults0": 2.0, "defaults1": 1.5} == {key: found.pop(key) for key in ("defaults0", "defaults1")}
    assert {2.0} == set(found.values())
    assert [2.5] * 5 == highest.filter(pl.col("holds") == 2.0)["breaks"].to_list()
    assert (1.5, 2.0) == highest.filter(pl.col("holds") == 1.5).select("holds", "breaks").row(0)


def test_every_preset_row_is_there(published: Frames) -> None:
    """Every row with all its figures."""
    runs = published.runs.filter(sweep_id=PRESETS, level_label="concurrency=10")
    found = {
        (row["node"], row["axis_model"], row["axis_max_model_len"]): row
        for row in runs.filter(replicate=0, axis_parallelism="tensor").iter_rows(named=True)
    }
    words = {"1.5B": "qwen-1.5b", "3B": "llama-3b", "8B": "llama-8b", "32B": "qwen-32b"}
    rows = source(PRESETS, "presets.csv")

    assert PRESET_ROWS == len(rows) == len(found)
    for row in rows:
        model = next(word for part, word in words.items() if f"-{part}" in row["model"])
        own = found[row["preset"], model, row["max_model_len"]]
        assert float(row["generation_tok_per_s"]) == own["output_tok_per_s"]
        assert float(row["prompt_tok_per_s"]) == own["input_tok_per_s"]
        assert float(row["mean_latency_s"]) == own["latency_s_mean"]
        assert float(row["request_generation_tok_per_s"]) == own["request_output_tok_per_s_mean"]
        assert int(row["errors"]) == own["requests_failed"]


def test_pipeline_against_tensor() -> None:
    """Each preset's speedups of tensor over pipeline parallel are the published ones."""
    found = parallel_speedups(open_archive(paths.ARCHIVES / PRESETS))
    rows = source(PRESETS, "pipeline-vs-tensor.csv")

    assert {row["preset"]: (row["published_prompt_speedup"], row["published_generation_speedup"]) for row in rows} == {
        row["node"]: (f"{row['prompt_speedup'] * 100:.1f}%", f"{row['output_speedup'] * 100:.1f}%")
        for row in found.iter_rows(named=True)
    }
