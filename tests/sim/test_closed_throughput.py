"""Throughput of a closed loop against the simulated engine, recomputed from the rows of its requests by NumPy alone."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from running_engine import MODEL, StartEngine

from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import run_job

SLOTS, REQUESTS, WARMUP = 8, 60, 4


def test_throughput_follows_from_the_rows(start_engine: StartEngine, tmp_path: Path) -> None:
    """Window, tokens, requests and prompts per second are those of the rows, and all slots are full in the window."""
    engine = start_engine().wait_ready()
    lengths = {"distribution": "uniform", "low": 4, "high": 40}
    workload = {"kind": "synthetic", "name": "x", "input_tokens": 64, "output_tokens": lengths}
    level = {"concurrency": SLOTS, "requests": REQUESTS, "warmup_requests": WARMUP}
    run = {"run_index": 0, "workload": workload, "level": level, "slo": {}}
    job = {"base_url": engine.url, "model": MODEL, "output_dir": tmp_path, "runs": [run], "processes": 2}
    summary = run_job(LoadJob.model_validate(job))[0].summary

    rows = pl.read_parquet(tmp_path / "requests.parquet")
    sent, last = rows["sent_s"].to_numpy(), rows["last_token_s"].to_numpy()
    begin = rows.filter(phase="measured")["due_s"].min()
    ends = np.sort(last)
    from_s, to_s = begin + summary.steady_from_s, begin + summary.steady_to_s
    tokens = inside = 0.0
    for row in rows.iter_rows(named=True):
        arrived = row["first_token_s"] + np.cumsum([0, *row["event_times_us"]]) / 1e6
        share = row["output_tokens"] / arrived.size
        inside += share * np.sum((arrived > from_s) & (arrived <= to_s))
        tokens += row["output_tokens"] if row["phase"] == "measured" else 0
    seconds = to_s - from_s
    flight = np.array([np.sum((sent <= at) & (last > at)) for at in np.linspace(from_s, to_s, 400)[1:-1]])

    assert from_s == pytest.approx(ends[SLOTS])
    assert to_s == pytest.approx(ends[SLOTS + SLOTS * summary.steady_waves])
    assert summary.steady_waves in (5, 6)
    assert np.mean(flight) > 0.9 * SLOTS
    assert inside / seconds == pytest.approx(summary.output_tok_per_s, rel=1e-6)
    assert inside / seconds * REQUESTS / tokens == pytest.approx(summary.request_per_s, rel=1e-6)
    assert summary.input_tokens == pytest.approx(64 * REQUESTS, rel=0.2)
    assert summary.input_tok_per_s == pytest.approx(summary.request_per_s * summary.input_tokens / REQUESTS)
    # The requests that end in the window are whole waves by its definition, which counts them another way.
    assert summary.steady_waves * SLOTS / seconds == pytest.approx(summary.request_per_s, rel=0.2)
