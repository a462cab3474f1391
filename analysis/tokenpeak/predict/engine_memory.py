"""Memory of an engine on one device: activations at the profile run, CUDA graphs, and the KV cache that is left."""

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import GIB

NON_TORCH_BYTES = int(0.2 * GIB)
"""Workspaces and communicators that grow between the engine's first look at memory and its profile run."""

SAMPLER_BYTES_PER_LOGIT = 39
"""The sampler at its peak, per sequence and vocabulary entry: logits in 16 and 32 bits (6), sorted values and their
64-bit indices (12), softmax, its running sum and the mask (9), logits put back, probabilities, random draws (12)."""

SECOND_RUNNER_BYTES_PER_LOGIT = 6
"""The same of the second model runner, whose profile run samples without top-k and top-p: logits in 16 and 32 bits.
Source: 0.24.0 v1/worker/gpu/model_runner.py 633-644 and v1/worker/gpu/sample/sampler.py 157-243."""

GRAPH_BYTES_PER_SIZE = 10 * 1024**2
"""Memory of one captured graph."""

BLOCK_TOKENS = 16


def activation_peak_bytes(deployment: Deployment) -> float:
    """The most that one device holds beside weights and KV cache during the engine's profile run.

    Either the MLP of a full batch (gate and up, their product, hidden state and residual for each token), or the
    sampler with every sequence at once while the batch's hidden states are still held: the larger of the two. Expert
    layers hold the hidden states of all data-parallel ranks (0.32.0 distributed/device_communicators/all2all.py 128).
    """
    model, tp = deployment.model, deployment.tensor_parallel
    tokens, width = deployment.max_num_batched_tokens, deployment.value_bytes
    inner = model.intermediate if not model.experts else model.experts.intermediate * model.experts.active
    layer = tokens * ((3 if model.gated_mlp else 2) * inner / tp + 2 * deployment.expert_ranks * model.hidden) * width
    sequences = min(deployment.max_num_seqs, tokens)
    each = SECOND_RUNNER_BYTES_PER_LOGIT if deployment.second_runner else SAMPLER_BYTES_PER_LOGIT
    sampler = sequences * model.vocabulary * each + tokens * model.hidden * width
    return max(layer, sampler)


def graph_bytes(deployment: Deployment) -> float:
    """What captured graphs take; none when eager."""
    if deployment.eager or deployment.gpu.vendor == "cpu":
        return 0.0
    return deployment.graph_sizes * GRAPH_BYTES_PER_SIZE


def kv_cache_bytes(
    deployment: Deployment, gpu_memory_utilization: float = 0.9, *, kv_cache_memory_bytes: int | None = None
) -> float:
    """Bytes that one device has left for KV cache; below zero when the weights alone do not fit.

    On the CPU engine the size is given, by VLLM_CPU_KVCACHE_SPACE or the flag, as `kv_cache_memory_bytes`.
    Some releases also set the graphs' memory aside (vllm/model_runner.py).
    """
    if kv_cache_memory_bytes is not None:
        return float(kv_cache_memory_bytes)
    graphs = graph_bytes(deployment) if deployment.graphs_reserved else 0.0
    return (
        deployment.gpu.usable_bytes * gpu_memory_utilization
        - deployment.weight_bytes_per_gpu
        - activation_peak_bytes(deployment)
        - NON_TORCH_BYTES
        - graphs
    )


def kv_cache_tokens(
    deployment: Deployment,
    gpu_memory_utilization: float = 0.9,
    *,
    kv_cache_memory_bytes: int | None = None,
    block_size: int = BLOCK_TOKENS,
) -> int:
    """Tokens that the KV cache holds, in whole blocks; 0 when nothing is left for it."""
    left = kv_cache_bytes(deployment, gpu_memory_utilization, kv_cache_memory_bytes=kv_cache_memory_bytes)
    blocks = int(left / (deployment.kv_bytes_per_token_per_gpu * block_size))
    return max(0, blocks) * block_size
