"""Performance model of one engine step (roofline), and the size of the KV cache, from first principles.

A step reads the weights and the KV cache of its sequences, multiplies, exchanges activations between GPUs, and is
launched and scheduled by a host; the slowest of what overlaps, plus what does not, is its duration. The predictor and
the simulated engine use these same functions. Constants are named, with the reason for their value. HOST_S_PER_KERNEL
leans on a published row; COMPUTE_EFFICIENCY and those of KV cache lean on every second launch of the search on an H100,
and its other launches and all publications were kept to check them.
"""

from dataclasses import dataclass, field

from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.model import dtype_bytes

MEMORY_EFFICIENCY = 0.80
"""Share of the data sheet's bandwidth that reading weights in a skinny matrix product attains (STREAM: 0.9)."""

KV_EFFICIENCY, NARROW_KV_EFFICIENCY = 0.80, 0.45
"""The same for KV cache of 16 and of 8 bits. Blocks are large enough to be read like weights. Attention unpacks narrow
values and, on Hopper, transposes them before it multiplies: half the bytes take nearly as long as whole ones."""

QUANTIZED_EFFICIENCY = 0.55
"""The same for 4-bit weights, unpacked while they are read."""

COMPUTE_EFFICIENCY = 0.66
"""Share of the data sheet's dense rate that the matrix products of a long prefill attain."""

HIDDEN_PASSES, INNER_PASSES = 10, 3
"""Times that a layer moves each value of a token's hidden state through memory between its matrix products (two norms
with their residual, in and out; rotary embedding of queries and keys), and of its MLP (gate and up in, product out).
Narrow weights do not make this faster."""

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
process; V1 moves tokenizing and HTTP to others and keeps its batch from step to step.
Since 0.14 it does this for the next step while the GPU computes (vllm/engine_core.py, `schedules_ahead`)."""

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


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step, in seconds: what each resource alone would take, and the whole.

    Weights are read while matrices are multiplied, KV cache while attention is computed; an eager host launches
    while the GPU works; exchange between GPUs overlaps nothing, and scheduling only where it is `ahead`.
    """

    weights_s: float
    kv_s: float
    compute_s: float
    """Matrix products."""
    attention_s: float
    interconnect_s: float
    launch_s: float
    """Time of the host to launch the step's kernels one by one; 0 with graphs."""
    floor_s: float
    """Ramp-up and drain of the kernels on the device."""
    scheduler_s: float
    activations_s: float = 0.0
    """Norms, rotary embedding and activation function of every token."""
    ahead: bool = False
    """The host schedules the next step while the device computes this one."""
    total_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total_s", self._total_s())

    def _total_s(self, without: str = "") -> float:
        """The duration, or what it would be if one resource were infinitely fast."""
        weights, kv = self.weights_s, self.kv_s
        matrix, attention, activations = self.compute_s, self.attention_s, self.activations_s
        exchange, launch, rest = self.interconnect_s, self.launch_s, self.scheduler_s
        if without == "weights_bandwidth":
            weights = 0.0
        elif without == "kv_bandwidth":
            kv = 0.0
        elif without == "compute":
            matrix = attention = activations = 0.0
        elif without == "interconnect":
            exchange = 0.0
        elif without == "launch_overhead":
            launch = rest = 0.0
        busy = max(weights, matrix) + max(kv, attention) + activations + exchange
        device = busy + (0.0 if without == "launch_overhead" else self.floor_s)
        return max(device, launch + rest) if self.ahead else max(device, launch) + rest

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
    weights_s = (deployment.matrix_bytes_read(mean_tokens) + output_bytes) / (
        bandwidth * _memory_efficiency(deployment)
    )

    kv_bytes = deployment.kv_bytes_per_token_per_gpu * deployment.pipeline_parallel
    context = decode_context_tokens + decode_sequences
    if model.sliding_window and model.windowed_layers and decode_sequences:
        mean = context / decode_sequences
        windowed = model.windowed_layers / model.attention_layers
        context = int(context * (1 - windowed) + decode_sequences * min(mean, model.sliding_window) * windowed)
    kv_s = kv_bytes * (context + prefill_context_tokens) / (gpu.memory_bytes_per_s * _kv_efficiency(deployment))
    activations_s = tokens * _activation_bytes(deployment) / (gpu.memory_bytes_per_s * MEMORY_EFFICIENCY)

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

    kernels = _kernels(deployment)
    floor_s = kernels * KERNEL_FLOOR_S
    launch_s = kernels * HOST_S_PER_KERNEL if deployment.eager else 0.0
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
        activations_s=activations_s,
        ahead=deployment.schedules_ahead,
    )


def _memory_efficiency(deployment: Deployment) -> float:
    narrow = deployment.weights is not None and deployment.weights.bits < 6
    return QUANTIZED_EFFICIENCY if narrow else MEMORY_EFFICIENCY


def _kv_efficiency(deployment: Deployment) -> float:
    return NARROW_KV_EFFICIENCY if dtype_bytes(deployment.kv_dtype) < 2 else KV_EFFICIENCY


def _activation_bytes(deployment: Deployment) -> float:
    """Bytes that one device moves for a token between the matrix products of all layers."""
    model = deployment.model
    inner = model.intermediate if not model.experts else model.experts.intermediate * model.experts.active
    values = HIDDEN_PASSES * model.hidden + INNER_PASSES * inner / deployment.tensor_parallel
    return model.layers * values * deployment.value_bytes


def _kernels(deployment: Deployment) -> int:
    """Kernels of one step, all pipeline stages together."""
    exchange = 2 if deployment.tensor_parallel > 1 else 0
    return deployment.model.layers * (LAYER_KERNELS + exchange) + LAYER_KERNELS


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


REQUEST_S, REQUEST_S_PER_TOKEN = 2.4e-3, 1.1e-6
"""Reading, checking, tokenizing and handing over a request; those behind it wait."""

STREAMED_TOKEN_S = 52e-6
"""Detokenizing a token and sending it."""

TURNS = 8
"""Of the event loop that a request waits for, each with a token of every stream in it: connection, handler and its
guard against a client that goes, body, tokenizer, hand-over, the core's answer, the stream's own turn."""


def request_s(prompt_tokens: float) -> float:
    """Time of the process that a request takes."""
    return REQUEST_S + REQUEST_S_PER_TOKEN * prompt_tokens


def turns_s(streams: float) -> float:
    """Time that a request waits, in its turns, for the streams of others; it keeps no other request waiting."""
    return TURNS * streams * STREAMED_TOKEN_S
