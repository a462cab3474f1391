"""Frames hold every row of the archives under the columns of tables.py, and what an analyst needs on top."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from archive_factory import make_archive
from tokenpeak import paths
from tokenpeak.errors import ArchiveError
from tokenpeak.report import SweepView, open_archive
from tokenpeak.store import request_files
from tokenpeak.store.frames import Frames, frames_of_each, open_frames, with_latencies
from tokenpeak.store.pack import unpacked


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
    """Truncated, misnamed and foreign files are named, and all other rows are there."""
    archive = make_archive(tmp_path / "a", seconds=5)
    trials = sorted((archive.path / "trials").glob("*.json"))
    trials[0].write_text(trials[0].read_text()[:500])
    copy = archive.path / "trials" / "9999-copy.json"
    copy.write_text(trials[2].read_text())
    parquet = archive.requests_path(trials[1].stem)
    parquet.write_bytes(b"PAR1 not")
    frames = open_frames(tmp_path)

    assert {trials[0].name, copy.name, parquet.name} == {file.path.name for file in frames.malformed}
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


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> SweepView:
    """A sweep over numbers, shares and words, with requests."""
    path = tmp_path_factory.mktemp("analysed") / "one"
    axes = {"max_num_seqs": [8, 64], "gpu_memory_utilization": [0.8, 0.9], "kv_cache_dtype": ["auto", "fp8"]}
    make_archive(path, axes=axes, gpus=["NVIDIA L4"], seconds=3, requests=30)
    return open_archive(path)


def test_values_have_their_own_types(view: SweepView) -> None:
    """Counts are whole numbers, shares numbers, words text; each is the flag that the raw file of the trial has."""
    raw = [json.loads(path.read_text()) for path in sorted((view.origin or Path()).glob("trials/*.json"))]
    flags = {trial["trial_id"]: trial["config"]["flags"] for trial in raw}
    names = ("max_num_seqs", "gpu_memory_utilization", "kv_cache_dtype")
    kinds = [view.trials.schema[f"value_{name}"] for name in names]
    rows = view.trials.select("trial_id", *(f"value_{name}" for name in names)).rows()

    assert [pl.Int64(), pl.Float64(), pl.String()] == kinds
    assert {trial: tuple(own[name] for name in names) for trial, own in flags.items()} == {
        trial: tuple(values) for trial, *values in rows
    }


@pytest.mark.parametrize(("kind", "ttft_s", "latency_s"), [("open", 1.5, 3.5), ("closed", 1.0, 3.0)])
def test_latencies_of_requests(kind: str, ttft_s: float, latency_s: float) -> None:
    """They count from when a request was due in an open loop, and from when it was sent in a closed one."""
    key = {"sweep_id": "s", "trial_id": "t", "run_index": 0}
    moments = {"due_s": 0.5, "sent_s": 1.0, "first_token_s": 2.0, "first_answer_s": 2.0, "last_token_s": 4.0}
    requests = pl.DataFrame(
        [
            {**key, **moments, "output_tokens": 5, "error": None},
            {**key, **moments, "output_tokens": 1, "error": None},
            {**key, **moments, "output_tokens": 5, "error": "timeout"},
        ]
    )
    found = with_latencies(requests.lazy(), pl.DataFrame([{**key, "level_kind": kind}])).collect()

    assert [(ttft_s, 0.5, latency_s), (ttft_s, None, latency_s), (None, None, None)] == found.select(
        "ttft_s", "tpot_s", "latency_s"
    ).rows()


def test_older_archive_gets_an_interval_of_each_energy() -> None:
    """A real H100's, written before: around the rise of its counter by straight lines, and narrower than ±5%."""
    archive = unpacked(paths.ROOT / "analysis" / "landscapes" / "search-h100.tar.zst")
    joules = {}
    for path in sorted((archive / "trials").glob("*.json")):
        trial = json.loads(path.read_text())
        rows = zip(trial["series"]["t_s"], trial["series"]["columns"]["gpu0_energy_j"], strict=True)
        t_s, counter = np.array([row for row in rows if None not in row], float).T
        for run in trial["runs"]:
            ends = np.array([0, run["summary"]["duration_s"]]) + run["measured_from_s"]
            joules[trial["trial_id"], run["run_index"]] = float(np.diff(np.interp(ends, t_s, counter))[0])
    runs = open_frames(archive).runs.select("trial_id", "run_index", "energy_low_j", "energy_j", "energy_high_j")

    assert 15 == len(joules) == runs.height
    for trial_id, run_index, low, energy, high in runs.iter_rows():
        assert low < joules[trial_id, run_index] < high
        assert (high - low) / energy < 0.1
