"""KV cache sizes of the published H200 runs, each predicted with that row left out of any calibration."""

import numpy as np
import pytest

from plan.published import read_rows
from tokenpeak.predict.deployment import (
    NON_TORCH_BYTES,
    SAMPLER_BYTES_PER_LOGIT,
    Deployment,
    activation_peak_bytes,
    kv_cache_bytes,
)
from tokenpeak.predict.hardware import GIB, gpu_facts
from tokenpeak.predict.model import model_facts

ROWS = read_rows("gtc-h200-llama70b-fp8")
NAMES = [row["config"] for row in ROWS]


def published(row: dict[str, str]) -> tuple[Deployment, float, float]:
    model, gpu = model_facts("nvidia/Llama-3.1-70B-Instruct-FP8"), gpu_facts("NVIDIA H200")
    assert model is not None
    assert gpu is not None
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


@pytest.mark.parametrize("left_out", range(len(ROWS)), ids=NAMES)
def test_predicts_a_row_from_the_others(left_out: int) -> None:
    """The constants adjusted to the other rows come within 5% of the row left out, and near their physical values."""
    sampled, targets = [], []
    for index, row in enumerate(ROWS):
        deployment, utilization, gib = published(row)
        if index == left_out:
            continue
        # Rows whose peak is the sampler give the bytes a logit; all rows give what else grows.
        spent = deployment.gpu.usable_bytes * utilization - deployment.weight_bytes_per_gpu - gib * GIB
        logits = deployment.max_num_seqs * deployment.model.vocabulary
        held = deployment.max_num_batched_tokens * deployment.model.hidden * 2
        is_sampler = logits * SAMPLER_BYTES_PER_LOGIT + held >= activation_peak_bytes(deployment)
        sampled.append([logits if is_sampler else 0.0, 1.0])
        targets.append(spent - (held if is_sampler else activation_peak_bytes(deployment)))
    (per_logit, rest), *_ = np.linalg.lstsq(np.array(sampled), np.array(targets), rcond=None)

    deployment, utilization, gib = published(ROWS[left_out])
    logits = deployment.max_num_seqs * deployment.model.vocabulary
    held = deployment.max_num_batched_tokens * deployment.model.hidden * 2
    layer = activation_peak_bytes(
        Deployment(
            model=deployment.model,
            gpu=deployment.gpu,
            max_num_seqs=1,
            max_num_batched_tokens=deployment.max_num_batched_tokens,
        )
    )
    predicted = (
        deployment.gpu.usable_bytes * utilization
        - deployment.weight_bytes_per_gpu
        - max(layer, logits * per_logit + held)
        - rest
    )

    assert pytest.approx(gib, rel=0.05) == predicted / GIB
    assert pytest.approx(SAMPLER_BYTES_PER_LOGIT, rel=0.25) == per_logit
    assert abs(rest - NON_TORCH_BYTES) < GIB
