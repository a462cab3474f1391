"""Deployment: a model on devices, as an engine of some version would run it, and what follows for bytes and rates."""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property

from tokenpeak.predict.hardware import GIB, GpuFacts
from tokenpeak.predict.kv_pool import Caching, KvPool, kv_pool
from tokenpeak.predict.model import ModelFacts, dtype_bytes
from tokenpeak.predict.quantization import Quantization, quantization_named
from tokenpeak.vllm.flags import DEFAULT_RELEASE, newest_release


def version_tuple(version: str | None) -> tuple[int, int, int]:
    """`0.8.5.post1` as (0, 8, 5); the newest known release when None."""
    numbers = [int(part) for part in re.findall(r"\d+", version or newest_release())[:3]]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return major, minor, patch


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A model on devices, as an engine of some version would run it."""

    model: ModelFacts
    gpu: GpuFacts
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    """Ranks that share the load out. Each has all other layers and a KV cache of its own; a mixture's experts are
    spread over them."""
    dtype: str = "auto"
    """float16, bfloat16 …; auto is the checkpoint's."""
    quantization: str | None = None
    """`--quantization`; None: as the checkpoint says."""
    kv_cache_dtype: str = "auto"
    eager: bool = False
    engine_version: str = DEFAULT_RELEASE
    v1: bool = True
    """The engine core: V1, or V0 as it was the default before 0.8 and on Volta until 0.10."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    custom_all_reduce: bool = True
    schedules_ahead: bool = False
    """The next step is scheduled while the device computes this one: `async_scheduling`."""
    graph_sizes: int = 51
    """Batch sizes that get a CUDA graph; those of 256 sequences and more by default."""
    graphs_reserved: bool = True
    """The engine sets the graphs' memory aside before it sizes the KV cache."""
    second_runner: bool = False
    """V1's second model runner, whose profile run does not sort logits."""

    @cached_property
    def weights(self) -> Quantization | None:
        """How the matrices are stored; None at full width."""
        stored = self.model.quantization
        # A flag beside a quantized checkpoint names what it already is: the engine refuses any other method.
        return quantization_named(self.quantization) if self.quantization and stored is None else stored

    @cached_property
    def kv_dtype(self) -> str:
        """The KV cache's dtype with `auto` resolved."""
        return self.model.kv_dtype(self.kv_cache_dtype, self.dtype)

    @cached_property
    def value_bytes(self) -> float:
        """Bytes of an activation."""
        return dtype_bytes(self.model.dtype if self.dtype == "auto" else self.dtype)

    @cached_property
    def expert_ranks(self) -> int:
        """Data-parallel ranks that hold the experts together; 1 without experts, where ranks know nothing of another.

        Each expert layer is spread over data × tensor parallel devices: by experts with `enable_expert_parallel`, else
        by columns of each expert. Source: 0.8.5 model_executor/layers/fused_moe/layer.py 449-464, 0.32.0
        model_executor/layers/fused_moe/config.py 1097-1237 (FusedMoEParallelConfig); for dense models 0.32.0
        v1/engine/core.py 1473-1481.
        """
        return self.data_parallel if self.model.experts else 1

    @cached_property
    def weight_bytes_per_gpu(self) -> float:
        """Weights on one device."""
        total = 0.0
        for part, size in self.model.stored_bytes(self.dtype, self.weights):
            if part.role in ("replicated", "small"):
                total += size
            elif part.role == "experts":
                total += size * self.expert_padding / (self.expert_ranks * self.tensor_parallel)
            else:
                total += size / self.tensor_parallel
        return total / self.pipeline_parallel

    @cached_property
    def expert_padding(self) -> float:
        """Bytes in memory ÷ bytes stored of MXFP4 experts, whose kernel takes whole tiles of each GPU's share.

        Source: 0.32.0 model_executor/layers/quantization/mxfp4.py: hidden in 256, the inner size in 128.
        """
        experts, stored = self.model.experts, self.model.quantization
        if experts is None or stored is None or stored.method != "mxfp4":
            return 1.0
        inner = experts.intermediate / self.tensor_parallel
        return math.ceil(self.model.hidden / 256) * 256 / self.model.hidden * (math.ceil(inner / 128) * 128 / inner)

    @cached_property
    def kv_bytes_per_token_per_gpu(self) -> float:
        """KV cache of one token on one device; a pipeline stage holds its own layers only."""
        return self.model.kv_bytes_per_token(self.kv_dtype, self.tensor_parallel) / self.pipeline_parallel

    @cached_property
    def compute_flops(self) -> float:
        """FLOP/s of one device for the matrices at their dtype."""
        dtype = self.model.dtype if self.dtype == "auto" else self.dtype
        plain = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16"}.get(dtype, "fp16")
        return self.gpu.flops_for(self.weights.compute if self.weights and self.weights.compute != "fp16" else plain)

    @cached_property
    def matrix_width_bytes(self) -> float:
        """Bytes of one parameter of the layers' matrices."""
        return self.weights.bits / 8 if self.weights else self.value_bytes

    def matrix_bytes_read(self, tokens: float) -> float:
        """Bytes of the layers' matrices that the devices of one data-parallel rank read in a step.

        Each rank computes `tokens` tokens, each of which picks its experts at random; an expert that no token of any
        rank picks is not read.
        """
        model, ranks = self.model, self.expert_ranks
        share = model.experts_read(tokens * ranks) / ranks
        return sum(
            size * share if part.role == "experts" else size
            for part, size in model.stored_bytes(self.dtype, self.weights)
            if part.role in ("layer", "experts", "replicated")
        )


NON_TORCH_BYTES = int(0.2 * GIB)
"""Workspaces and communicators that grow between the engine's first look at memory and its profile run."""

SAMPLER_BYTES_PER_LOGIT = 39
"""The sampler at its peak, per sequence and vocabulary entry: logits in 16 and 32 bits (6), sorted values and their
64-bit indices (12), softmax, its running sum and the mask (9), logits put back, probabilities, random draws (12)."""

UNSORTED_BYTES_PER_LOGIT = 22
"""The same where top-k and top-p are found without sorting: logits in 16 and 32 bits (6), a copy, softmax,
probabilities and random draws (16). Source: vllm#33538, on CUDA."""
UNSORTED_SINCE = (0, 17, 0)

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
    unsorted = deployment.gpu.vendor == "nvidia" and version_tuple(deployment.engine_version) >= UNSORTED_SINCE
    each = UNSORTED_BYTES_PER_LOGIT if unsorted else SAMPLER_BYTES_PER_LOGIT
    each = SECOND_RUNNER_BYTES_PER_LOGIT if deployment.second_runner else each
    sampler = sequences * model.vocabulary * each + tokens * model.hidden * width
    return max(layer, sampler)


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
        - NON_TORCH_BYTES
        - graphs
    )


def pool_of(deployment: Deployment, engine: Caching) -> KvPool | None:
    """The pool of KV cache blocks of one device; None where no layer keeps anything."""
    model = deployment.model
    plain = dtype_bytes(model.dtype if deployment.dtype == "auto" else deployment.dtype)
    kept = [replace(each, layers=-(-each.layers // deployment.pipeline_parallel)) for each in model.kept]
    return kv_pool(kept, dtype_bytes(deployment.kv_dtype), plain, deployment.tensor_parallel, engine)
