"""Memory plan: weights, activations, graphs and KV cache of a config on a node, engine defaults filled in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokenpeak.errors import FactsError
from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.predict.checkpoint import facts_of
from tokenpeak.predict.deployment import (
    BLOCK_TOKENS,
    Deployment,
    pool_of,
    version_tuple,
)
from tokenpeak.predict.hardware import GIB, GpuFacts, board_like, cpu_facts, gpu_facts
from tokenpeak.predict.kv_pool import Caching, KvPool
from tokenpeak.predict.model import DTYPE_BYTES, ModelFacts
from tokenpeak.predict.profile_run import activation_peak_bytes, graph_bytes, kv_cache_bytes
from tokenpeak.predict.quantization import METHODS
from tokenpeak.vllm.engine_core import (
    CORE_VARIABLES,
    CoreFacts,
    RunnerFacts,
    batch_defaults,
    capture_sizes,
    chunks_prefill,
    reserves_graphs,
    runs_v1,
    schedules_ahead,
    second_runner,
)
from tokenpeak.vllm.flags import flag_table, newest_release, size
from tokenpeak.vllm.renames import speculative_config

if TYPE_CHECKING:
    # Records are models of pydantic, which a simulated engine does not need.
    from tokenpeak.records import Config, NodeFacts

CPU_WORKER_BYTES = int(0.88 * GIB)
"""The CPU engine's worker beside weights and KV cache, which it takes off its share of memory when the size of the
cache is not given: measured with 0.32, eager; 0.62 with fewer libraries loaded. The share is of the memory of its NUMA
node."""

CPU_BLOCK_TOKENS = 128
"""Tokens of a block of the CPU engine, but of MLA. Source: 0.32.0 platforms/cpu.py, and its start-up log."""

DRAFT_SHARE = {"ngram": 0.0, "suffix": 0.0, "eagle": 0.06, "eagle3": 0.06, "medusa": 0.03, "mtp": 0.05}
"""Time of one drafted token as a share of reading the model's weights: nothing for guesses from the text itself, a
layer or two for trained heads; a draft model of its own is taken for a tenth."""


def device_of(node: "NodeFacts") -> GpuFacts | None:
    """The node's device with its probed memory; the smallest one of a mixed node, None when nothing is known of it."""
    if not node.gpus:
        return cpu_facts(node.cpu, node.cpu_cores, node.memory_bytes)
    devices = []
    for gpu in node.gpus:
        facts = gpu_facts(gpu.name) or board_like(gpu.name, gpu.vram_bytes, gpu.compute_capability)
        if facts is None:
            return None
        devices.append(replace(facts, vram_bytes=gpu.vram_bytes) if gpu.vram_bytes else facts)
    return min(devices, key=lambda facts: (facts.vram_bytes, facts.memory_bytes_per_s))


def missing_hardware(node: "NodeFacts") -> str | None:
    """The sentence that says which device the table lacks and where to add it; None when it has all."""
    unknown = {gpu.name: gpu for gpu in node.gpus if gpu_facts(gpu.name) is None}
    if not unknown:
        return None
    like = {board_like(gpu.name, gpu.vram_bytes, gpu.compute_capability) for gpu in unknown.values()}
    taken = ", ".join(sorted({str(each.taken_for) for each in like if each is not None}))
    planned = (
        f"is planned as {taken} with its own memory, whose speed is a guess"
        if taken and None not in like
        else "is planned without prediction"
    )
    return (
        f"{', '.join(map(repr, sorted(unknown)))} is not in the hardware table, so {node.node} {planned}; "
        "what is measured there does not depend on it."
    )


def is_countable(model: ModelFacts) -> bool:
    """Whether the bytes of a model's weights, as its checkpoint stores them, are known."""
    if not model.is_counted:
        return False
    return model.are_weights_read or model.quantization is None or model.quantization.is_known


def unknown_shape(model: ModelFacts, quantization: str | None) -> str:
    """The sentence that says why nothing is predicted for a model whose config.json is there."""
    if not model.is_counted:
        return (
            f"The layers of {model.name} ({model.model_type}) are not known here, so nothing is predicted for it "
            "and no config is dropped by memory."
        )
    method = quantization or (model.quantization.method if model.quantization is not None else "its dtype")
    return (
        f"How wide weights of {model.name} are by {method!r} is unknown here, so nothing is predicted for it and no "
        "config is dropped by memory."
    )


def missing_model(name: str) -> str:
    """The sentence that says how to make the facts of a model known."""
    return (
        f"The model {name!r} is unknown here, so nothing is predicted for it. Put its config.json there: "
        f"~/.local/share/tokenpeak/models/{name}/config.json; where the hub can be reached, that happens by itself."
    )


def core_facts(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    model: ModelFacts | None,
    gpu: GpuFacts | None,
    version: str | None,
) -> CoreFacts:
    """Facts that decide between V0 and V1; a device that the table lacks is taken for a new one of NVIDIA."""
    digits = gpu.compute_capability.replace(".", "") if gpu is not None and gpu.vendor == "nvidia" else ""
    return CoreFacts(
        release=version_tuple(version),
        flags=flags,
        env=env,
        vendor=gpu.vendor if gpu is not None else "nvidia",
        capability=int(digits) if digits.isdigit() else None,
        mla=model is not None and model.mla is not None,
        windowed=model is not None and model.sliding_window is not None,
    )


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """A config's memory on one device, in bytes."""

    deployment: Deployment
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    max_model_len: int
    block_size: int = BLOCK_TOKENS
    chunked_prefill: bool = True
    prefix_caching: bool = True
    is_hybrid: bool = True
    """False with `disable_hybrid_kv_cache_manager`."""
    draft_tokens: int = 0
    """Tokens that are drafted for each one decoded; 0 without speculation."""
    draft_share: float = 0.0
    """Time of one drafted token as a share of reading the model's weights."""

    @property
    def data_parallel(self) -> int:
        """Ranks that share the load out."""
        return self.deployment.data_parallel

    @cached_property
    def kv_cache_bytes(self) -> float:
        """Left for KV cache; below zero when the weights alone do not fit."""
        return kv_cache_bytes(
            self.deployment, self.gpu_memory_utilization, kv_cache_memory_bytes=self.kv_cache_memory_bytes
        )

    @cached_property
    def pool(self) -> KvPool | None:
        """How the engine divides the cache among its layers; None where none keeps anything."""
        deployment = self.deployment
        engine = Caching(
            release=version_tuple(deployment.engine_version),
            block_tokens=self.block_size,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=deployment.max_num_batched_tokens,
            ahead=deployment.schedules_ahead,
            prefix_caching=self.prefix_caching,
            is_hybrid=self.is_hybrid and deployment.v1,
        )
        return pool_of(deployment, engine)

    @cached_property
    def kv_cache_tokens(self) -> int:
        """Tokens that the KV cache holds, as the engine's log says."""
        return self.pool.tokens(self.kv_cache_bytes) if self.pool is not None else 0

    @cached_property
    def sequence_bytes(self) -> float:
        """KV cache of one sequence of max_model_len tokens, on one device."""
        return self.pool.sequence_bytes if self.pool is not None else 0.0

    @property
    def fits(self) -> bool:
        """One full sequence fits beside weights, activations and graphs."""
        return self.kv_cache_bytes >= self.sequence_bytes

    @property
    def reason(self) -> str:
        """The sum that does not work out, in a sentence."""
        deployment = self.deployment
        budget = deployment.gpu.usable_bytes * self.gpu_memory_utilization
        parts = (
            f"weights {deployment.weight_bytes_per_gpu / GIB:.1f} GiB + "
            f"activations {activation_peak_bytes(deployment) / GIB:.1f} GiB + "
            f"graphs {graph_bytes(deployment) / GIB:.1f} GiB + "
            f"KV cache of one sequence of {self.max_model_len:,} tokens {self.sequence_bytes / GIB:.1f} GiB"
        )
        if self.kv_cache_memory_bytes is not None:
            return (
                f"one sequence of {self.max_model_len:,} tokens needs {self.sequence_bytes / GIB:.2f} GiB of KV cache; "
                f"{self.kv_cache_memory_bytes / GIB:.2f} GiB are given"
            )
        room = self.kv_cache_tokens
        hint = f"; max_model_len up to {room:,} would fit" if room >= BLOCK_TOKENS else ""
        return (
            f"{parts} exceed {budget / GIB:.1f} GiB, the {self.gpu_memory_utilization:.0%} of each "
            f"{deployment.gpu.name} that the engine may use{hint}"
        )


@dataclass(frozen=True)
class _Numbers:
    """Numeric flags of a config."""

    flags: Mapping[str, Any]
    config: str

    def number(self, flag: str, default: float) -> float:
        """A flag's value, `8k` too, or its default."""
        value = self.flags.get(flag)
        if value is None or isinstance(value, bool):
            return default
        try:
            return float(value)
        except ValueError as error:
            if (amount := size(str(value))) is not None:
                return float(amount)
            raise FactsError(f"{flag} of config {self.config!r} is {value!r}; give a number.") from error

    def count(self, flag: str, default: float) -> int:
        """A flag that is a whole number from 1, or its default."""
        value = int(self.number(flag, default))
        if value < 1:
            raise FactsError(f"{flag} of config {self.config!r} is {self.flags.get(flag)!r}; give a number from 1.")
        return value


def _cpu_space(text: str) -> int:
    """VLLM_CPU_KVCACHE_SPACE in bytes."""
    if not text.isdigit():
        raise FactsError(f"VLLM_CPU_KVCACHE_SPACE is {text!r}; the engine takes whole GiB, such as 4.")
    return int(text) * GIB


PLANNING_ENV = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_CPU_KVCACHE_SPACE", "VLLM_USE_V2_MODEL_RUNNER", *CORE_VARIABLES)
"""Variables of the engine's environment that a plan depends on."""


def engine_environment(config: "Config", node: "NodeFacts") -> dict[str, str]:
    """Variables that the engine would find: the inventory's, and on top of it the config's own variables."""
    return {**node.engine_env, **config.env}


def _widths_known(deployment: Deployment) -> bool:
    """Whether the bytes of its weights and of its KV cache can be counted: its family, its method and its widths."""
    stored, kv = deployment.model.quantization, deployment.kv_dtype
    if not is_countable(deployment.model):
        return False
    if (
        stored is None
        and deployment.quantization in flag_table().quantization
        and deployment.quantization not in METHODS
    ):
        return False
    return kv in DTYPE_BYTES or kv.startswith("fp8")


def plan_memory(
    config: "Config", node: "NodeFacts", model: ModelFacts | None, engine_version: str | None = None
) -> MemoryPlan | None:
    """The memory of `config` on `node`; None when the device, the model or an endpoint's flags are unknown.

    None, too, of a server that is not vLLM, and where the engine knows a width of weights or of KV cache that is not
    known here.
    """
    gpu = device_of(node)
    if node.checkpoint is not None and node.model is not None and config.model.name == node.model.name:
        model = facts_of(node.checkpoint, config.model.name) or model
    if gpu is None or model is None or config.endpoint is not None or not is_vllm(config.engine_version):
        return None
    version = config.engine_version or engine_version or node.engine_version
    return memory_on(gpu, model, config.flags, engine_environment(config, node), version, config=config.name)


def memory_on(
    gpu: GpuFacts,
    model: ModelFacts,
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    version: str | None,
    *,
    config: str,
) -> MemoryPlan | None:
    """The memory of an engine with these flags on one device; None for a width that is not known here."""
    numbers = _Numbers(flags, config)
    core = core_facts(flags, env, model, gpu, version)
    v1 = runs_v1(core)
    tensor = numbers.count("tensor_parallel_size", 1)
    pipeline = numbers.count("pipeline_parallel_size", 1)
    # The engine itself takes the longest that fits, up to the model's.
    longest = flags.get("max_model_len") in ("auto", "-1", -1)
    length = model.max_context if longest else numbers.count("max_model_len", model.max_context)
    chunked = chunks_prefill(core, v1=v1, max_model_len=length)
    batched, sequences = batch_defaults(
        core, v1=v1, device=gpu.name, memory_gib=gpu.usable_bytes / GIB, world=tensor * pipeline
    )
    sequences = numbers.count("max_num_seqs", sequences)
    if not chunked:
        batched = max(length, batched)
    batched = numbers.count("max_num_batched_tokens", min(batched, sequences * length))
    kv_cache_memory = int(numbers.number("kv_cache_memory_bytes", 0)) or None
    utilization = numbers.number("gpu_memory_utilization", 0.92 if version_tuple(version) >= (0, 20, 0) else 0.9)
    if gpu.vendor == "cpu" and kv_cache_memory is None:
        space = env.get("VLLM_CPU_KVCACHE_SPACE")
        others = CPU_WORKER_BYTES + model.weight_bytes(str(flags.get("dtype") or "auto"))
        kv_cache_memory = _cpu_space(space) if space else max(1, int(gpu.vram_bytes * utilization - others))
    quantization = flags.get("quantization")
    speculation = speculative_config(flags) or {}
    drafted = speculation.get("num_speculative_tokens", 0)
    drafts = drafted if isinstance(drafted, int) else 0
    runner = RunnerFacts(
        release=core.release,
        flags=flags,
        env=env,
        vendor=gpu.vendor,
        compute_capability=gpu.compute_capability,
        model_type=model.model_type,
        experts=model.experts is not None,
        quantized=bool(quantization) or model.quantization is not None,
    )
    graphs = capture_sizes(runner, max_num_seqs=sequences, max_num_batched_tokens=batched, draft_tokens=drafts)
    deployment = Deployment(
        model=model,
        gpu=gpu,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=numbers.count("data_parallel_size", 1),
        dtype=str(flags.get("dtype") or "auto"),
        quantization=str(quantization) if quantization else None,
        kv_cache_dtype=str(flags.get("kv_cache_dtype") or "auto"),
        eager=bool(flags.get("enforce_eager", False)),
        engine_version=version or newest_release(),
        v1=v1,
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        custom_all_reduce=not flags.get("disable_custom_all_reduce", False),
        schedules_ahead=schedules_ahead(core, v1=v1),
        graph_sizes=len(graphs),
        graphs_reserved=reserves_graphs(runner),
        second_runner=v1 and second_runner(runner),
        expert_parallel=bool(flags.get("enable_expert_parallel", False)),
        text_only=bool(flags.get("language_model_only", False)),
    )
    if not _widths_known(deployment):
        return None
    memory = MemoryPlan(
        deployment=deployment,
        gpu_memory_utilization=utilization,
        kv_cache_memory_bytes=kv_cache_memory,
        max_model_len=length,
        block_size=numbers.count(
            "block_size", CPU_BLOCK_TOKENS if gpu.vendor == "cpu" and not model.mla else BLOCK_TOKENS
        ),
        chunked_prefill=chunked,
        prefix_caching=bool(flags.get("enable_prefix_caching", v1)),
        is_hybrid=not flags.get("disable_hybrid_kv_cache_manager", False),
        draft_tokens=drafts,
        draft_share=DRAFT_SHARE.get(str(speculation.get("method", "")), 0.1),
    )
    return replace(memory, max_model_len=max(1, memory.kv_cache_tokens)) if longest and not memory.fits else memory
