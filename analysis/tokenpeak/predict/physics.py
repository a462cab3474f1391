"""Performance model of one engine step (roofline), and the size of the KV cache, from first principles.

A step reads the weights and the KV cache of its sequences, multiplies, exchanges activations between GPUs, and is
launched and scheduled by a host; the slowest of what overlaps, plus what does not, is its duration. The predictor and
the simulated engine use these same functions. Constants are named, with the reason for their value. One of them,
HOST_S_PER_KERNEL, leans on a published row; none leans on the V100 grid or on the KV cache sizes.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

from tokenpeak.predict.hardware import GpuFacts
from tokenpeak.predict.model import ModelFacts, dtype_bytes
from tokenpeak.predict.quantization import Quantization, quantization_named
from tokenpeak.vllm.flags import DEFAULT_RELEASE, newest_release

MEMORY_EFFICIENCY = 0.80
"""Share of the data sheet's bandwidth that reading weights in a skinny matrix product attains (STREAM: 0.9)."""

KV_EFFICIENCY = 0.60
"""The same for KV cache, which is read in blocks scattered over memory."""

QUANTIZED_EFFICIENCY = 0.55
"""The same for 4-bit weights, unpacked while they are read."""

COMPUTE_EFFICIENCY = 0.60
"""Share of the data sheet's dense rate that the matrix products of a long prefill attain, all operations counted."""

ATTENTION_EFFICIENCY = 0.40
"""The same for the products inside attention."""

LAYER_KERNELS = 12
"""Kernels of a layer: two norms, four matrix products, rotary embedding, KV write, attention, activation and copies."""

HOST_S_PER_KERNEL = 30e-6
"""Python, dispatch and launch of one kernel when eager; the host is the limit when the GPU is faster than that.
Modules, custom ops and the dispatcher take 20 to 40 µs on the hosts of these years; the published 1.5B model on one
V100, whose GPU idles most of the time, shows 13.4 ms for 28 layers, which is this figure."""

KERNEL_FLOOR_S = 2.5e-6
"""Ramp-up and drain of each dependent kernel on the GPU, with or without a graph."""

V0_SCHEDULER_S, V0_SCHEDULER_S_PER_SEQUENCE = 2.5e-3, 60e-6
V1_SCHEDULER_S, V1_SCHEDULER_S_PER_SEQUENCE = 1.0e-3, 10e-6
"""Scheduling, input preparation, sampling and output between steps, while the GPU waits. V0 does all of it in one
process; V1 moves tokenizing and HTTP to others and keeps its batch from step to step."""

V0_STAGE_S = 2.5e-3
"""Hand-over from one pipeline stage to the next under V0: Python objects to another process."""

LINK_EFFICIENCY = {"nvlink": 0.75, "infinity_fabric": 0.6, "pcie": 0.6, "none": 0.6}
"""Share of one direction's bandwidth that a collective attains; on PCIe it goes through host memory."""

HOP_S = {"nvlink": 1.5e-6, "infinity_fabric": 3e-6, "pcie": 6e-6, "none": 6e-6}
COLLECTIVE_START_S = 8e-6
"""Start of an all-reduce, and each hop of it."""

CUSTOM_ALL_REDUCE_BYTES = 8 * 1024**2
"""Largest payload of the engine's own all-reduce (vllm/distributed/device_communicators/custom_all_reduce.py)."""

CPU_LAYER_S = 60e-6
"""Host time of a layer on the CPU engine, whose kernels are calls."""

RESOURCES = ("weights_bandwidth", "kv_bandwidth", "compute", "interconnect", "launch_overhead")


def version_tuple(version: str | None) -> tuple[int, int, int]:
    """`0.8.5.post1` as (0, 8, 5); the newest known release when None."""
    numbers = [int(part) for part in re.findall(r"\d+", version or newest_release())[:3]]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return major, minor, patch


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step, in seconds: what each resource alone would take, and the whole.

    Weights are read while matrices are multiplied, KV cache while attention is computed; an eager host launches
    while the GPU works; exchange between GPUs and scheduling overlap nothing.
    """

    weights_s: float
    kv_s: float
    compute_s: float
    """Matrix products."""
    attention_s: float
    interconnect_s: float
    launch_s: float
    """What the host needs to launch the step's kernels one by one; 0 with graphs."""
    floor_s: float
    """Ramp-up and drain of the kernels on the device."""
    scheduler_s: float
    total_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total_s", self._total_s())

    def _total_s(self, without: str = "") -> float:
        """The duration, or what it would be if one resource were infinitely fast."""
        weights, kv = self.weights_s, self.kv_s
        matrix, attention = self.compute_s, self.attention_s
        exchange, launch, rest = self.interconnect_s, self.launch_s, self.scheduler_s
        if without == "weights_bandwidth":
            weights = 0.0
        elif without == "kv_bandwidth":
            kv = 0.0
        elif without == "compute":
            matrix = attention = 0.0
        elif without == "interconnect":
            exchange = 0.0
        elif without == "launch_overhead":
            launch = rest = 0.0
        busy = max(weights, matrix) + max(kv, attention) + exchange
        return max(busy + (0.0 if without == "launch_overhead" else self.floor_s), launch) + rest

    @property
    def binding(self) -> str:
        """The resource whose absence would shorten the step most, in the words of records.Prediction."""
        return min(RESOURCES, key=lambda resource: self._total_s(without=resource))


IDLE = StepTime(
    weights_s=0.0,
    kv_s=0.0,
    compute_s=0.0,
    attention_s=0.0,
    interconnect_s=0.0,
    launch_s=0.0,
    floor_s=0.0,
    scheduler_s=0.0,
)
"""A step with nothing to do."""


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
        if self.quantization and (stored is None or stored.method.split("_")[0] != self.quantization.split("_")[0]):
            return quantization_named(self.quantization)
        return stored

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
        experts = self.model.expert_parameters * self.matrix_width_bytes
        once = self.model.weight_bytes(self.dtype, self.weights) - experts
        return (once + experts / self.expert_ranks) / (self.tensor_parallel * self.pipeline_parallel)

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
        experts = model.expert_parameters / ranks * model.experts_read(tokens * ranks)
        return (model.linear_parameters - model.expert_parameters + experts) * self.matrix_width_bytes

    @cached_property
    def memory_efficiency(self) -> float:
        """MEMORY_EFFICIENCY, or less for narrow weights."""
        narrow = self.weights is not None and self.weights.bits < 6
        return QUANTIZED_EFFICIENCY if narrow else MEMORY_EFFICIENCY

    @cached_property
    def kernels(self) -> int:
        """Kernels of one step, all pipeline stages together."""
        exchange = 2 if self.tensor_parallel > 1 else 0
        return self.model.layers * (LAYER_KERNELS + exchange) + LAYER_KERNELS


def step_time_s(
    deployment: Deployment,
    *,
    prefill_tokens: int = 0,
    prefill_context_tokens: int = 0,
    decode_sequences: int = 0,
    decode_context_tokens: int = 0,
    prefill_sequences: int = 1,
    prefill_share: float = 1.0,
) -> StepTime:
    """The duration of one step that prefills and decodes.

    `prefill_tokens` are computed in this step, for `prefill_sequences` prompts of like length;
    `prefill_context_tokens` are those prompts' tokens that are in the KV cache already, all prompts together.
    `decode_sequences` get one token each; `decode_context_tokens` is the sum of their contexts.
    With pipeline stages this is the time through all of them for one micro-batch: with N sequences in flight,
    each stage is busy with N ÷ stages of them, so ask with that share.
    All numbers are of one data-parallel rank. `prefill_share` of the ranks prefill as much as this one; the others, who
    compute expert layers in step with it, only decode.
    """
    gpu, model, tp = deployment.gpu, deployment.model, deployment.tensor_parallel
    tokens = prefill_tokens + decode_sequences
    if tokens == 0:
        return IDLE
    prompts = max(1, prefill_sequences)
    sampled = decode_sequences + (prompts if prefill_tokens else 0)

    bandwidth = gpu.memory_bytes_per_s * tp
    output_bytes = model.output_matrix_parameters * deployment.value_bytes
    mean_tokens = decode_sequences + prefill_tokens * prefill_share
    weights_s = (deployment.matrix_bytes_read(mean_tokens) + output_bytes) / (bandwidth * deployment.memory_efficiency)

    kv_bytes = deployment.kv_bytes_per_token_per_gpu * deployment.pipeline_parallel
    context = decode_context_tokens + decode_sequences
    if model.sliding_window and model.windowed_layers and decode_sequences:
        mean = context / decode_sequences
        windowed = model.windowed_layers / model.layers
        context = int(context * (1 - windowed) + decode_sequences * min(mean, model.sliding_window) * windowed)
    kv_s = kv_bytes * (context + prefill_context_tokens) / (gpu.memory_bytes_per_s * KV_EFFICIENCY)

    rate = deployment.compute_flops * tp
    experts = model.active_expert_parameters
    matrix_flops = 2.0 * ((model.active_linear_parameters - experts) * tokens + experts * mean_tokens)
    matrix_flops += 2.0 * model.output_matrix_parameters * sampled
    matrix_s = matrix_flops / (rate * COMPUTE_EFFICIENCY)
    pairs = prefill_tokens * prefill_context_tokens / prompts + prefill_tokens * prefill_tokens / (2.0 * prompts)
    attention_s = model.attention_flops(pairs, context) / (gpu.flops_for("fp16") * tp * ATTENTION_EFFICIENCY)

    interconnect_s = _all_reduces_s(deployment, tokens) + _pipeline_s(deployment, tokens)
    interconnect_s += _expert_exchange_s(deployment, mean_tokens)
    if deployment.v1:
        scheduler_s = V1_SCHEDULER_S + V1_SCHEDULER_S_PER_SEQUENCE * sampled
    else:
        scheduler_s = V0_SCHEDULER_S + V0_SCHEDULER_S_PER_SEQUENCE * sampled

    floor_s = deployment.kernels * KERNEL_FLOOR_S
    launch_s = deployment.kernels * HOST_S_PER_KERNEL if deployment.eager else 0.0
    if gpu.vendor == "cpu":
        floor_s, launch_s = model.layers * CPU_LAYER_S, 0.0
    return StepTime(
        weights_s=weights_s,
        kv_s=kv_s,
        compute_s=matrix_s,
        attention_s=attention_s,
        interconnect_s=interconnect_s,
        launch_s=launch_s,
        floor_s=floor_s,
        scheduler_s=scheduler_s,
    )


def _all_reduces_s(deployment: Deployment, tokens: int) -> float:
    """Two all-reduces a layer and one at the end: latency of the hops plus bytes over the link.

    A ring takes 2 × (n - 1) hops. On NVLink the engine's own all-reduce, used up to 8 MiB, reads from all others at
    once and takes two.
    """
    n, link = deployment.tensor_parallel, deployment.gpu.interconnect
    if n == 1:
        return 0.0
    one_way = max(deployment.gpu.interconnect_bytes_per_s, 16e9) / 2 * LINK_EFFICIENCY[link]
    payload = tokens * deployment.model.hidden * deployment.value_bytes
    direct = deployment.custom_all_reduce and link == "nvlink" and payload <= CUSTOM_ALL_REDUCE_BYTES
    hops = 2 if direct else 2 * (n - 1)
    each = COLLECTIVE_START_S + hops * HOP_S[link] + payload * 2 * (n - 1) / n / one_way
    return (2 * deployment.model.layers + 1) * each


def _expert_exchange_s(deployment: Deployment, tokens: float) -> float:
    """In each expert layer, every rank gathers the tokens of all ranks, and their sums are reduced and scattered.

    `tokens` are those of one rank in the mean. Source: 0.32.0 distributed/device_communicators/all2all.py 67-142
    (AgRsAll2AllManager, the default of `all2all_backend`); 0.8.5 model_executor/layers/fused_moe/layer.py 847-883.
    """
    n, link, experts = deployment.expert_ranks, deployment.gpu.interconnect, deployment.model.experts
    if n == 1 or experts is None:
        return 0.0
    one_way = max(deployment.gpu.interconnect_bytes_per_s, 16e9) / 2 * LINK_EFFICIENCY[link]
    payload = tokens * n * deployment.model.hidden * deployment.value_bytes
    each = COLLECTIVE_START_S + (n - 1) * HOP_S[link] + payload * (n - 1) / n / one_way
    return 2 * experts.sparse_layers * each


def _pipeline_s(deployment: Deployment, tokens: int) -> float:
    """Activations handed from stage to stage, and the processes that do it."""
    stages, link = deployment.pipeline_parallel, deployment.gpu.interconnect
    if stages == 1:
        return 0.0
    one_way = max(deployment.gpu.interconnect_bytes_per_s, 16e9) / 2 * LINK_EFFICIENCY[link]
    payload = 2 * tokens * deployment.model.hidden * deployment.value_bytes
    hand_over = COLLECTIVE_START_S + payload / one_way + (0.0 if deployment.v1 else V0_STAGE_S)
    return (stages - 1) * hand_over
