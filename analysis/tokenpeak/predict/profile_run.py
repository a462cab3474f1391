"""Profile run of the engine: the peak of activations, what stays held beside it, and what is left for the KV cache.

What a kernel keeps for its next call adds to the sampler's peak; what it frees does not. Rules are by release, device
and method, as the engine chooses its kernels; sizes hold for the profile run's `max_num_batched_tokens`.
"""

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import GIB

SAMPLER_BYTES_PER_LOGIT = 39
"""The sampler at its peak, per sequence and vocabulary entry: logits in 16 and 32 bits (6), sorted values and their
64-bit indices (12), softmax, its running sum and the mask (9), logits put back, probabilities, random draws (12)."""

UNSORTED_BYTES_PER_LOGIT = 14
"""The same where top-k and top-p are found without sorting: logits in 16 and 32 bits (6), probabilities (4), random
draws (4). Source: 0.18.0 v1/sample/ops/topk_topp_sampler.py forward_native; vllm#33538."""
SCRATCH_ROWS, SCRATCH_BYTES = 132, 4
"""Beside them a row of 32 bits for each multiprocessor: 0.18.0 v1/sample/ops/topk_topp_triton.py. An H100 has 132."""
UNSORTED_SINCE = (0, 17, 0)
"""On AMD, too: logs of an MI300X with 0.16 and 0.18."""

SECOND_RUNNER_BYTES_PER_LOGIT = 6
"""The same of the second model runner, whose profile run samples without top-k and top-p: logits in 16 and 32 bits.
Source: 0.24.0 v1/worker/gpu/model_runner.py 633-644 and v1/worker/gpu/sample/sampler.py 157-243."""

GRAPH_BYTES_PER_SIZE = 10 * 1024**2
"""Memory of one captured graph."""

CONTEXT_BYTES = int(0.13 * GIB)
"""Memory outside PyTorch that a process on one GPU of NVIDIA takes beside the driver's: kernels and libraries. Measured
on an H100 (llm-d-benchmark, empirical-vllm-memory-results.md) and beneath H200 logs of 0.11 to 0.16."""
CONTEXT_BYTES_0_17 = int(0.32 * GIB)
"""The same since 0.17: H200 logs of 0.17 to 0.20."""
CONTEXT_BYTES_AMD = int(1.05 * GIB)
"""The same on an MI300X: logs of 0.11 to 0.18, whose peaks are else those of an H200."""

COMMUNICATOR_BYTES = int(0.42 * GIB)
"""Channels that a tensor-parallel group opens with its first collectives: 0.55 GiB outside PyTorch on two H100 beside
the 0.13 of one (llm-d-benchmark, the same file), and 0.43 on four MI300X."""
EARLY_PAIR_BYTES, EARLY_GROUP_BYTES = int(1.05 * GIB), int(2.0 * GIB)
"""The same of two GPUs and of more, with NVLink, up to 0.10.2, which looks at the memory before it starts NCCL:
v1/worker/gpu_worker.py 0.10.2 175 and 193, 0.11.0 169 and 182. Two H200 with 0.10.2, four H100 with 0.9 (vllm#21348);
V0 says 2.1 GiB of eight A100."""
EARLY_PCIE_BYTES = int(0.1 * GIB)
"""The same without NVLink, by what V0 says of two RTX 4090 (vllm#13061)."""

FUSED_ALL_REDUCE_BYTES = int(1.5 * GIB)
"""FlashInfer's workspace for an all-reduce fused with the norm behind it, a default on Hopper and Blackwell: 0.18.0
config/vllm.py 113-134 `enable_allreduce_rms_fusion`; 0.15.1 has it off, and a log of 0.17.1 shows it. Measured: logs of
groups of 2, 4 and 8 H200 with it differ by 1.4 to 1.6 GiB from what one GPU and 0.16 give, those of 4 B200 by 1.65."""
FUSED_GROUPS = (2, 4, 8)
"""Group sizes that it knows: FI_ALLREDUCE_FUSION_MAX_SIZE_MB in 0.18.0 compilation/passes/fusion."""


def non_torch_bytes(deployment: Deployment) -> int:
    """Bytes outside PyTorch on one device that the engine counts against the KV cache."""
    gpu, release = deployment.gpu, deployment.release
    own = CONTEXT_BYTES_0_17 if release >= (0, 17) else CONTEXT_BYTES
    own = CONTEXT_BYTES_AMD if gpu.vendor == "amd" else own
    if deployment.tensor_parallel == 1:
        return own
    if release >= (0, 11):
        return own + COMMUNICATOR_BYTES + (FUSED_ALL_REDUCE_BYTES if fuses_all_reduce(deployment) else 0)
    if gpu.interconnect != "nvlink":
        return own + EARLY_PCIE_BYTES
    return own + (EARLY_PAIR_BYTES if deployment.tensor_parallel == 2 else EARLY_GROUP_BYTES)


def fuses_all_reduce(deployment: Deployment) -> bool:
    """Whether a compile pass fuses the all-reduce with the norm: not when eager, nor beside other parallelism."""
    gpu = deployment.gpu
    return (
        deployment.release >= (0, 17)
        and not deployment.eager
        and gpu.vendor == "nvidia"
        and gpu.compute_capability in ("9.0", "10.0")
        and deployment.tensor_parallel in FUSED_GROUPS
        and deployment.data_parallel == deployment.pipeline_parallel == 1
    )


def expert_workspace_bytes(deployment: Deployment) -> float:
    """Bytes that the experts of a layer compute in; 0 without experts.

    Two buffers of a row for each token and expert that it is routed to, as wide as the wider side of each product.
    Source: `workspace_shapes` of TritonExperts, 0.18.0 model_executor/layers/fused_moe/fused_moe.py; of 4-bit weights
    fused_marlin_moe.py 78-89.
    """
    model, experts, weights = deployment.model, deployment.model.experts, deployment.weights
    if experts is None:
        return 0.0
    inner = experts.intermediate if deployment.expert_parallel else experts.intermediate / deployment.tensor_parallel
    hidden, wide = experts.latent or model.hidden, (2 if model.gated_mlp else 1) * inner
    is_marlin = weights is not None and weights.compute == "fp16"
    both = max(wide, hidden) + (inner if is_marlin else max(inner, hidden))
    return deployment.max_num_batched_tokens * experts.active * both * deployment.value_bytes


def keeps_expert_workspace(deployment: Deployment) -> bool:
    """Whether the kernel of the experts keeps its buffers.

    Up to 0.10 none does; 0.11 and 0.12 share buffers among layers (SharedResizableBuffer in modular_kernel.py), since
    0.13 the worker keeps them (v1/worker/workspace.py). FP8 is computed so since 0.11.1, and before with expert
    parallelism; full width since 0.14. FlashInfer's kernels ask for next to nothing (flashinfer_cutlass_moe.py), Marlin
    allocates anew. Who computes FP8 on Hopper: 0.13.0 quantization/fp8.py 125-190 and 0.14.1 fused_moe/oracle/fp8.py 51
    DeepGEMM for blocks below TP 8, else Triton; 0.15.1 oracle/fp8.py 129 FlashInfer, but for scales of channels;
    0.18.0 oracle/fp8.py `_get_priority_backends` Triton again for blocks without expert parallelism.
    """
    gpu, release, weights = deployment.gpu, deployment.release, deployment.weights
    if gpu.vendor != "nvidia" or release < (0, 11) or not deployment.v1:
        return False
    blackwell, hopper = gpu.compute_capability.startswith("10."), gpu.compute_capability == "9.0"
    if weights is None:
        return release >= (0, 14)
    if weights.compute != "fp8" or blackwell or float(gpu.compute_capability) < 8.9:
        return False
    if release < (0, 13):
        return release >= (0, 11, 1) or deployment.expert_parallel
    if release < (0, 14):
        return weights.has_blocks and deployment.tensor_parallel < 8
    if release < (0, 15) or not hopper:
        return True
    if weights.has_blocks:
        return release >= (0, 18) and not deployment.expert_parallel
    return weights.method != "modelopt"


LARGEST_IMAGE_TOKENS = 16384
"""Embeddings of the largest image of Qwen's families, as their engines' logs say. Source: 0.18.0
model_executor/models/qwen2_vl.py get_max_image_tokens."""
LARGEST_VIDEO_TOKENS = 153600
"""Those of Qwen3-VL's largest video, with which 0.11 profiles; 0.13 profiles with an image."""


def image_bytes(deployment: Deployment) -> float:
    """Bytes of the largest image's embeddings, which stay cached while the text is profiled.

    Source: `profile_run` in 0.18.0 v1/worker/gpu_model_runner.py, encoder_cache.
    """
    model = deployment.model
    if deployment.text_only:
        return 0.0
    video = model.model_type.startswith("qwen3_vl") and (0, 11) <= deployment.release < (0, 12)
    tokens = LARGEST_VIDEO_TOKENS if video else LARGEST_IMAGE_TOKENS
    return tokens * model.image_token_values * deployment.value_bytes


def activation_peak_bytes(deployment: Deployment) -> float:
    """The most that one device holds beside weights and KV cache during the engine's profile run.

    Either the MLP of a full batch (gate and up, their product, or the experts' buffers; hidden state and residual for
    each token), or the sampler with every sequence at once while the batch's hidden states, and buffers that are kept,
    are still held: the larger of the two, beside an image's embeddings. Expert layers hold the hidden states of all
    data-parallel ranks (0.32.0 distributed/device_communicators/all2all.py 128).
    """
    model, tp = deployment.model, deployment.tensor_parallel
    tokens, width = deployment.max_num_batched_tokens, deployment.value_bytes
    buffers = expert_workspace_bytes(deployment)
    inner = buffers or tokens * (3 if model.gated_mlp else 2) * model.intermediate / tp * width
    layer = inner + tokens * 2 * deployment.expert_ranks * model.hidden * width
    kept = (buffers if keeps_expert_workspace(deployment) else 0.0) + tokens * model.hidden * width
    return max(layer, sampler_bytes(deployment) + kept) + image_bytes(deployment)


def sampler_bytes(deployment: Deployment) -> float:
    """Bytes that the sampler of the profile run holds at its peak."""
    vocabulary, sequences = deployment.model.vocabulary, min(deployment.max_num_seqs, deployment.max_num_batched_tokens)
    if deployment.second_runner:
        return sequences * vocabulary * SECOND_RUNNER_BYTES_PER_LOGIT
    if deployment.release < UNSORTED_SINCE:
        return sequences * vocabulary * SAMPLER_BYTES_PER_LOGIT
    return vocabulary * (sequences * UNSORTED_BYTES_PER_LOGIT + min(sequences, SCRATCH_ROWS) * SCRATCH_BYTES)


def graph_bytes(deployment: Deployment) -> float:
    """Bytes of captured graphs; none when eager."""
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
        - non_torch_bytes(deployment)
        - graphs
    )
