"""Frames hold every row of the archives, under the columns of tables.py."""

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from archive_factory import MANY_AXES, make_archive
from tokenpeak.errors import ArchiveError
from tokenpeak.store import request_files
from tokenpeak.store.frames import Frames, frames_of_each, open_frames


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two archives, one with failures."""
    path = tmp_path_factory.mktemp("archives")
    make_archive(path / "a", seconds=5)
    axes = {axis: values[-2:] for axis, values in MANY_AXES.items()}
    make_archive(path / "b", axes=axes, seconds=5, seed=1, end=False)
    return path


@pytest.fixture(scope="module")
def frames(folder: Path) -> Frames:
    """The frames of both."""
    return open_frames(folder)


def test_failed_and_dropped_are_rows(frames: Frames) -> None:
    """A failed launch and a dropped config are rows with their reason."""
    failed = frames.trials.filter(status="failed")

    assert {"out_of_memory"} == set(failed["failure_cause"])
    assert {"tensor_parallel_gpus"} == set(frames.configs.filter(status="dropped")["dropped_rule"])


def test_energy_follows_from_the_factors(frames: Frames) -> None:
    """kWh, CO₂, water and cost per million tokens are J/token and tok/s times the spec's factors."""
    run = frames.runs.row(0, named=True)
    kwh = run["energy_j_per_output_tok"] * 1e6 / 3.6e6 * 1.3

    assert pytest.approx(kwh) == run["energy_kwh_per_1m_output_tok"]
    assert pytest.approx(kwh * 0.48) == run["co2_kg_per_1m_output_tok"]
    assert pytest.approx(kwh * 1.8) == run["water_l_per_1m_output_tok"]
    assert pytest.approx(2.5 / 3600 / run["output_tok_per_s"] * 1e6) == run["cost_per_1m_output_tok"]


def test_requests_of_older_searches_have_a_row_each(tmp_path: Path) -> None:
    """Where each probe's requests were counted from 0, they are counted on; what was counted once stays."""
    archive = make_archive(tmp_path / "a", seconds=5)
    path = next(iter(sorted((archive.path / "trials").glob("*.requests.parquet"))))
    rows = pl.read_parquet(path).filter(pl.col("run_index") == 0).head(4)
    probe = rows.with_columns(phase=pl.lit("probe"))
    pl.concat([probe, rows, probe]).write_parquet(path)
    read = open_frames(tmp_path).requests.filter(pl.col("trial_id") == path.name.partition(".")[0]).collect()

    assert list(range(8)) == read.filter(pl.col("phase") == "probe")["request_index"].to_list()
    assert rows["request_index"].to_list() == read.filter(pl.col("phase") != "probe")["request_index"].to_list()


def test_malformed_files_are_named(tmp_path: Path) -> None:
    """Files that cannot be read are named, and all other rows are there."""
    archive = make_archive(tmp_path / "a", seconds=5)
    trials = sorted((archive.path / "trials").glob("*.json"))
    trials[0].write_text("{")
    parquet = archive.requests_path(trials[1].stem)
    parquet.write_bytes(b"PAR1 not")
    frames = open_frames(tmp_path)

    assert {trials[0].name, parquet.name} == {file.path.name for file in frames.malformed}
    assert len(trials) - 1 == frames.trials.height
    assert len(trials) - 2 == frames.requests.select(pl.col("trial_id").n_unique()).collect().item()


def test_sweeps_one_after_the_other_have_the_rows_of_all_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each archive's trials, and its requests in parts of three trials, are those of all archives; others are named."""
    monkeypatch.setattr(request_files, "TRIALS_A_PART", 3)
    for name in ("a", "b"):
        make_archive(tmp_path / name, seconds=2, seed=ord(name))
    make_archive(tmp_path / "c", seconds=2).path.joinpath("sweep.json").write_text("{")
    together, each = open_frames(tmp_path), list(frames_of_each([tmp_path]))

    assert ["a", "b"] == [sweep_id for frames in each for sweep_id in frames.sweeps["sweep_id"]]
    assert together.malformed == tuple(file for frames in each for file in frames.malformed)
    assert_frame_equal(together.trials, pl.concat(frames.trials for frames in each if frames.specs))
    parts = [list(frames.request_parts(name)) for frames, name in zip(each, "ab", strict=False)]
    assert min(map(len, parts)) > 3
    assert_frame_equal(together.requests.collect(), pl.concat(part for found in parts for part in found))


def test_two_archives_of_one_sweep_are_refused_before_any_is_read(tmp_path: Path) -> None:
    """Nothing is given of either."""
    first = make_archive(tmp_path / "a" / "same", axes={"max_num_seqs": [8]}, seconds=2)
    make_archive(tmp_path / "b" / "same", axes={"max_num_seqs": [8]}, seconds=2)

    with pytest.raises(ArchiveError, match="both hold sweep same"):
        next(frames_of_each([first.path, tmp_path / "b" / "same"]))


def test_fields_of_raw_files_are_columns(tmp_path: Path) -> None:
    """As the raw files have them, with what follows: tokens computed again, energy by boundary, share of idle power."""
    archive = make_archive(tmp_path / "a", gpus=["NVIDIA L4"], axes={"max_num_seqs": [64]}, seconds=3, end=False)
    (path,), sweep = (archive.path / "trials").glob("*.json"), archive.path / "sweep.json"
    trial, record = json.loads(path.read_text()), json.loads(sweep.read_text())
    record["plans"][0]["feasible"][0]["config"]["engine"] = "new"
    first, second = trial["runs"][:2]
    energy = {"source": "sampled_power", "energy_j": 10.0, "power_w": 5.0}
    first["further_energy"] = [
        {**energy, "boundary": "node", "energy_j_per_output_tok": 0.9},
        {**energy, "boundary": "cpu_and_dram", "energy_j_per_output_tok": 0.2},
    ]
    first["temperature_c"] = 51.5
    # Each preemption costs a prompt of 100 tokens and half an answer of 50.
    first["summary"] |= {"requests_ok": 100, "input_tokens": 10_000, "output_tokens": 5_000}
    first["engine"]["preemptions"], second["engine"]["preemptions"] = 2, None
    trial["left_out"] = "It is far behind."
    trial["idle_power"] = [
        {"boundary": boundary, "power_w": watts, "low_w": watts, "high_w": watts}
        for boundary, watts in (("node", 150.0), (first["energy"]["boundary"], 9.0))
    ]
    path.write_text(json.dumps(trial))
    sweep.write_text(json.dumps(record))
    frames = open_frames(archive.path)
    own = frames.trials.row(0, named=True)
    runs = [frames.runs.row(number, named=True) for number in range(2)]
    names = ("node_j_per_output_tok", "cpu_j_per_output_tok", "temperature_c", "recomputed_share")

    assert ["running"] == frames.sweeps["status"].to_list()
    assert "new" in frames.configs["engine_build"].to_list()
    assert ("It is far behind.", next(archive.trials()).ended_at) == (own["left_out"], own["ended_at"])
    assert (0.9, 0.2, 51.5, pytest.approx(250 / 15_000)) == tuple(runs[0][name] for name in names)
    assert {None} == {runs[1][name] for name in names}
    for row, run in zip(runs, trial["runs"], strict=False):
        assert (9.0, pytest.approx(9.0 / run["energy"]["power_w"])) == (row["idle_power_w"], row["idle_share"])
