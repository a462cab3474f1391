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
from tokenpeak.report.hardware.parallel import parallel_speedups
from tokenpeak.report.hardware.presets import bars, observations
from tokenpeak.report.load import rates
from tokenpeak.report.ranking.standings import rank
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


def test_h200_kv_caches(published: Frames) -> None:
    """The KV cache of each config is the published one in GiB."""
    trials = published.trials.filter(sweep_id=H200)
    bytes_ = published.runs.filter(sweep_id=H200)

    assert bytes_.height
    for row in source(H200, "configs.csv"):
        name = {"phase0": "defaults", "phase1-baseline-rerun": "defaults"}.get(
            row["config"], row["config"].removeprefix("phase1-")
        )
        found = [
            trial.startup.kv_cache_bytes
            for trial in Archive(paths.ARCHIVES / H200).trials()
            if trial.config.name == name
        ]
        assert {float(row["kv_cache_gib"])} == {round((size or 0) / 2**30, 2) for size in found}
    assert 7 == trials.height


def test_t4_quantization_table(published: Frames) -> None:
    """Speed and size of each number format are the published ones."""
    joined = published.runs.filter(sweep_id=T4).join(published.trials, on=["sweep_id", "trial_id"])
    found = {
        row["config_name"]: (row["output_tok_per_s"], row["weights_bytes"] / 1e9)
        for row in joined.iter_rows(named=True)
    }

    assert {"float16": (35, 14), "awq-4bit": (42, 4.5), "gptq-4bit": (38, 4.5), "gguf-llama.cpp": (20, 4)} == found


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


def test_every_preset_row_is_drawn() -> None:
    """A bar chart for each model and context has a bar as long as each published figure, pale where requests failed."""
    words = {"1.5B": "qwen-1.5b", "3B": "llama-3b", "8B": "llama-8b", "32B": "qwen-32b"}
    published = {
        (
            next(word for part, word in words.items() if f"-{part}" in row["model"]),
            row["max_model_len"],
            row["preset"],
            float(row["generation_tok_per_s"]),
            int(row["errors"]) > 0,
        )
        for row in source(PRESETS, "presets.csv")
    }
    drawn = set()
    for (model, context), figure in zip(OBSERVED, bars(open_archive(paths.ARCHIVES / PRESETS)), strict=True):
        (values,) = figure.spec["datasets"].values()
        assert f"{model} at a context of {int(context):,}" == figure.title
        assert {"output_tok_per_s", "node"} == {figure.spec["encoding"][axis]["field"] for axis in ("x", "y")}
        drawn |= {(model, context, row["node"], row["output_tok_per_s"], row["failed"]) for row in values}

    assert published == drawn


OBSERVED = {
    ("qwen-1.5b", "2048"): ("gpu-small 46.63", "gpu-small 676.10", "mi210x2 (10)"),
    ("llama-3b", "2048"): ("gpu-small 47.22", "gpu-small 576.56", "H100X1 (10)"),
    ("llama-8b", "2048"): ("gpu-medium 34.56", "gpu-large 492.47", "H100X2 (20), gpu-medium (1)"),
    ("qwen-32b", "2048"): ("H100X2 20.39", "H100X2 175.25", "gpu-xlarge (10)"),
    ("qwen-1.5b", "8192"): ("gpu-small 27.97", "gpu-small 666.18", ""),
    ("llama-3b", "8192"): ("gpu-large 40.86", "mi210x1 545.31", "mi210x1 (1)"),
    ("llama-8b", "8192"): ("gpu-large 10.82", "gpu-medium 503.87", "H100X2 (64), H100X1 (63)"),
    ("qwen-32b", "8192"): ("gpu-xlarge 25.81", "gpu-xlarge 229.41", "H100X1 (14), H100X2 (2)"),
    ("qwen-1.5b", "64000"): ("H100X1 24.50", "H100X1 621.06", "H100X2 (10)"),
    ("llama-3b", "64000"): ("H100X1 45.85", "mi210x1 595.07", ""),
    ("llama-8b", "64000"): ("mi210x2 8.65", "mi210x2 451.61", "H100X1 (65), H100X2 (41)"),
    ("qwen-32b", "64000"): ("H100X2 19.32", "H100X2 176.10", "H100X2 (2)"),
    ("qwen-1.5b", "128000"): ("H100X1 26.45", "H100X1 642.54", ""),
    ("llama-3b", "128000"): ("H100X1 45.53", "H100X1 574.22", ""),
    ("llama-8b", "128000"): ("mi210x2 10.08", "mi210x2 467.43", "H100X1 (80), H100X2 (49)"),
    ("qwen-32b", "128000"): ("H100X2 18.96", "H100X2 168.05", "H100X2 (1)"),
}
"""What the report says of each table: highest prompt and generation throughput, and errors."""


@pytest.mark.parametrize(("model", "context"), OBSERVED)
def test_preset_observations_are_generated(model: str, context: str) -> None:
    """The published observations of each table follow from its rows."""
    found = observations(open_archive(paths.ARCHIVES / PRESETS), model, context)

    assert OBSERVED[model, context] == (
        f"{found.prompt_node} {found.prompt_tok_per_s:.2f}",
        f"{found.output_node} {found.output_tok_per_s:.2f}",
        found.failed,
    )


def test_pipeline_against_tensor() -> None:
    """Each preset's speedups of tensor over pipeline parallel are the published ones."""
    found = parallel_speedups(open_archive(paths.ARCHIVES / PRESETS))
    rows = source(PRESETS, "pipeline-vs-tensor.csv")

    assert {row["preset"]: (row["published_prompt_speedup"], row["published_generation_speedup"]) for row in rows} == {
        row["node"]: (f"{row['prompt_speedup'] * 100:.1f}%", f"{row['output_speedup'] * 100:.1f}%")
        for row in found.iter_rows(named=True)
    }
