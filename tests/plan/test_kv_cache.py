"""KV cache sizes of the published H200 runs, each predicted with that row left out of any calibration."""

import pytest

from node_models import known_board, known_model
from plan.published import read_rows
from tokenpeak.predict.deployment import (
    Deployment,
    kv_cache_bytes,
)
from tokenpeak.predict.hardware import GIB

ROWS = read_rows("gtc-h200-llama70b-fp8")
NAMES = [row["config"] for row in ROWS]


def published(row: dict[str, str]) -> tuple[Deployment, float, float]:
    model, gpu = known_model("nvidia/Llama-3.1-70B-Instruct-FP8"), known_board("NVIDIA H200")
    deployment = Deployment(
        model=model,
        gpu=gpu,
        engine_version="0.14.1",
        graphs_reserved=False,
        max_num_seqs=int(row["max_num_seqs"]),
        max_num_batched_tokens=int(row["max_num_batched_tokens"]),
    )
    return deployment, float(row["gpu_memory_utilization"]), float(row["kv_cache_gib"])


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_predicts_the_published_kv_cache(row: dict[str, str]) -> None:
    """Physical constants alone, none adjusted to these rows, come within 5% of each."""
    deployment, utilization, gib = published(row)

    assert pytest.approx(gib, rel=0.05) == kv_cache_bytes(deployment, utilization) / GIB
