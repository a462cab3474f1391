"""What an analyst gets on top of the frames: values of axes, and latencies of requests."""

import json
from pathlib import Path

import polars as pl
import pytest

from archive_factory import make_archive
from tokenpeak.report import SweepView, open_archive
from tokenpeak.store.frames import with_latencies


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
    moments = {"due_s": 0.5, "sent_s": 1.0, "first_token_s": 2.0, "last_token_s": 4.0}
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
