"""Views answer in SQL what notebooks compute: each figure here is computed again from raw files, or by Polars alone."""

import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
import psycopg
import pytest

from archive_factory import make_archive
from tokenpeak.store.database import DatabaseChoice, open_database
from tokenpeak.store.frames import open_frames

AXES: dict[str, list[object]] = {"max_num_seqs": [8, 16, 64], "enforce_eager": [True, False]}
LENGTHS = {"distribution": "uniform", "low": 10, "high": 2000}


@pytest.fixture
def archive(database: str, tmp_path: Path) -> Path:
    """An archive whose prompts have many lengths, in Postgres."""
    workload = {"input_tokens": LENGTHS, "output_tokens": 8}
    path = make_archive(tmp_path / "a", axes=AXES, gpus=["NVIDIA L4"], gpus_a_node=2, workload=workload, seconds=3).path
    with open_database(DatabaseChoice(description="test server", conninfo=database)) as opened:
        opened.ingest(open_frames(path))
    return path


def rows(conninfo: str, query: str) -> list[tuple[object, ...]]:
    """What the query finds."""
    with psycopg.connect(conninfo, options="-c search_path=tokenpeak") as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]


def raw_runs(archive: Path) -> list[dict[str, object]]:
    """Each run of the raw files with its trial's choices."""
    trials = [json.loads(path.read_bytes()) for path in sorted((archive / "trials").glob("*.json"))]
    return [
        {**run, "trial_id": trial["trial_id"], "choices": trial["config"]["choices"]}
        for trial in trials
        for run in trial["runs"]
    ]


def test_waits_by_prompt_length(archive: Path, database: str) -> None:
    """TTFT p99 by prompt length, in SQL and by NumPy from the raw requests: from due at a rate, else from sent."""
    found = rows(
        database,
        "SELECT level_label, input_tokens / 500 * 500, percentile_cont(0.99) WITHIN GROUP (ORDER BY ttft_s), "
        "avg(tpot_s), max(latency_s) FROM v_requests WHERE phase = 'measured' AND error IS NULL "
        'GROUP BY 1, 2 ORDER BY level_label COLLATE "C", 2',
    )
    levels = {run["run_index"]: run["level_label"] for run in raw_runs(archive)}
    requests = pl.concat(pl.read_parquet(path) for path in (archive / "trials").glob("*.parquet"))
    expected = []
    for label, length in itertools.product(sorted(map(str, levels.values())), range(0, 2001, 500)):
        index = next(index for index, each in levels.items() if each == label)
        own = requests.filter(
            pl.col("error").is_null(),
            pl.col("run_index") == index,
            pl.col("input_tokens").is_between(length, length + 499),
        )
        if own.height:
            began = own["due_s" if label.startswith("rate=") else "sent_s"].to_numpy()
            tpot = (own["last_token_s"] - own["first_token_s"]).to_numpy() / 7
            waits, latency = own["first_token_s"].to_numpy() - began, own["last_token_s"].to_numpy() - began
            expected.append((label, length, np.percentile(waits, 99), tpot.mean(), latency.max()))

    assert len(expected) > 12
    assert [pytest.approx(row) for row in expected] == found


def test_loads_with_closed_loops_and_gpus(archive: Path, database: str) -> None:
    """v_rates has each run at a rate and at a concurrency; v_runs the GPUs of its node."""
    found = rows(database, "SELECT level_kind, level_label, concurrency, rate_per_s, ttft_s_p99 FROM v_rates")
    expected = [
        (
            "closed" if "concurrency" in run["level"] else "open",
            run["level_label"],
            run["level"].get("concurrency"),
            run["level"].get("rate_per_s"),
            run["summary"]["ttft_s"]["p99"],
        )
        for run in raw_runs(archive)
    ]

    assert sorted(map(str, expected)) == sorted(map(str, found))
    assert {"open", "closed"} == {row[0] for row in found}
    assert [(2,)] == rows(database, "SELECT DISTINCT gpu_count FROM v_runs")


def test_pairs_and_single_axes(archive: Path, database: str) -> None:
    """Cells of heatmaps, speedups of one axis alone and energies by config are geometric means of the raw figures."""
    closed = [run for run in raw_runs(archive) if "concurrency" in run["level"]]
    speed = {tuple(run["choices"].values()): run["summary"]["output_tok_per_s"] for run in closed}
    joule = {tuple(run["choices"].values()): run["energy"]["energy_j_per_output_tok"] for run in closed}
    pairs = rows(
        database,
        "SELECT alternative, other_alternative, objective_mean FROM v_pairs "
        "WHERE axis = 'max_num_seqs' AND other_axis = 'enforce_eager'",
    )
    ratios = rows(
        database,
        "SELECT alternative, exp(avg(ln(ratio))), count(*) FROM v_one_axis "
        "WHERE axis = 'enforce_eager' AND other_alternative = 'true' GROUP BY 1",
    )
    energies = rows(
        database,
        "SELECT choices ->> 'max_num_seqs', choices ->> 'enforce_eager', e.energy_j_per_output_tok "
        "FROM v_energy_configs e JOIN v_configs USING (sweep_id, hardware, config_id)",
    )
    eager = np.exp(np.mean([np.log(speed[seqs, "false"] / speed[seqs, "true"]) for seqs in ("8", "16", "64")]))

    assert pytest.approx(speed) == {(one, other): mean for one, other, mean in pairs}
    assert [("false", pytest.approx(eager), 3)] == ratios
    assert pytest.approx(joule) == {(one, other): mean for one, other, mean in energies}
    assert rows(database, "SELECT count(*) FROM series") == rows(database, "SELECT count(*) FROM v_series")
