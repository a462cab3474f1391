"""Feasibility rules: which configs cannot work on a node, by the engine's own rules.

Each source names the release and the file (under `vllm/`) that would refuse the launch. A rule that needs facts which
nobody knows (GPU, model) says nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tokenpeak.node.engine import builds
from tokenpeak.node.machine.words import wrong_word
from tokenpeak.plan.case import Case
from tokenpeak.predict.model import ModelFacts
from tokenpeak.records import Config, NodeFacts
from tokenpeak.vllm.engine_core import chunks_prefill, lacking_in_v1
from tokenpeak.vllm.flags import flag_table, known_methods
from tokenpeak.vllm.renames import speculation_refused

NEEDS_CHECKPOINT = ("awq", "gptq", "aqlm", "marlin", "hqq", "qqq")
"""Methods whose weights must come quantized; their names' beginnings or ends. Others quantize while loading."""

FORMATS = {"awq_marlin": "awq", "auto_awq": "awq", "gptq_marlin": "gptq", "auto_gptq": "gptq", "marlin": "gptq"}
"""Kernels → the checkpoint format that they read."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`check` gives the reason why a case cannot work, or None."""

    code: str
    source: str
    check: Callable[[Case], str | None]


def environment_refused(config: Config, node: NodeFacts) -> str | None:
    """Which variable of the config its node does not let anybody set, and what to do; None when it takes all."""
    allowed = node.engine_env_allowed
    names = builds.allowed_names(None, node.simulated) if allowed is None else allowed
    for name, value in config.env.items():
        if reason := builds.why_not_set(name, names, value):
            return reason
        if wrong := wrong_word(value):
            return f"{name} has a value that {wrong}"
    return None


def _heads(case: Case) -> str | None:
    if case.model is None or case.model.heads % case.tensor == 0:
        return None
    return f"tensor_parallel_size {case.tensor} does not divide the model's {case.model.heads} attention heads"


def _kv_heads(case: Case) -> str | None:
    if case.model is None or case.model.mla is not None:
        return None
    large, small = max(case.tensor, case.model.kv_heads), min(case.tensor, case.model.kv_heads)
    if large % small == 0:
        return None
    heads = f"the model's {case.model.kv_heads} KV heads"
    return f"tensor_parallel_size {case.tensor} neither divides nor is divided by {heads}"


def _intermediate(case: Case) -> str | None:
    if case.model is None or case.model.experts is not None or case.model.intermediate % case.tensor == 0:
        return None
    return f"tensor_parallel_size {case.tensor} does not divide the model's MLP of {case.model.intermediate} columns"


def _one_node(case: Case) -> str | None:
    """Why the engine would wait for others than its node, with production down meanwhile."""
    alone = "an engine is launched on one node here, and would wait for the others"
    if case.number("nnodes", 1) > 1 or case.number("node_rank") > 0:
        return f"nnodes {case.number('nnodes', 1)}: {alone}. Leave nnodes and node_rank out"
    if case.flag("headless") is True:
        return f"headless ranks are of an engine on another node: {alone}. Leave headless out"
    if case.flag("distributed_executor_backend") in ("ray", "external_launcher"):
        backend = case.flag("distributed_executor_backend")
        return (
            f"distributed_executor_backend {backend} places ranks outside of the node: {alone}. Use mp, or leave it out"
        )
    if case.flag("data_parallel_backend") == "ray":
        return f"data_parallel_backend ray places ranks outside of the node: {alone}. Use mp, or leave it out"
    data, local = case.number("data_parallel_size", 1), case.number("data_parallel_size_local", -1)
    if 0 <= local < data:
        return f"{data} data-parallel ranks, of them {local} on this node: {alone}. Leave data_parallel_size_local out"
    if data > 1 and case.flag("data_parallel_rank") is not None:
        return f"data_parallel_rank is one of {data} engines: {alone}. Leave data_parallel_rank out"
    return None


def _gpus(case: Case) -> str | None:
    data = case.number("data_parallel_size_local", 0) or max(1, case.number("data_parallel_size", 1))
    wanted = case.tensor * case.pipeline * data
    have = len(case.node.gpus)
    if not have or wanted <= have:
        return None
    factors = f"tensor {case.tensor} × pipeline {case.pipeline} × data {data}"
    return f"{factors} parallel needs {wanted} GPUs and the node has {have}"


def _layers(case: Case) -> str | None:
    if case.model is None or case.pipeline <= case.model.layers:
        return None
    return f"pipeline_parallel_size {case.pipeline} is more than the model's {case.model.layers} layers"


def _old_gpu(case: Case) -> str | None:
    if case.capability is None or case.capability >= 75 or case.version is None or case.release < (0, 20):
        return None
    return (
        f"vLLM {case.version} is built with a torch that has no kernels for compute capability "
        f"{case.capability / 10} ({case.gpu_name}); pin an engine before 0.20"
    )


def _v1_feature(case: Case) -> str | None:
    if case.env.get("VLLM_USE_V1") != "1" or not (0, 8) <= case.release < (0, 11):
        return None
    feature = lacking_in_v1(case.core)
    return f"V1 of vLLM {case.version} lacks {feature}, and VLLM_USE_V1=1 allows no other" if feature else None


def _dtype(case: Case) -> str | None:
    if case.capability is None or case.capability >= 80:
        return None
    value = str(case.flag("dtype") or "auto")
    # Up to 0.8 `auto` takes the checkpoint's dtype; since 0.9 it takes one that the GPU has.
    automatic = value == "auto" and case.release < (0, 9) and case.model is not None and case.model.dtype == "bfloat16"
    if value != "bfloat16" and not automatic:
        return None
    which = "dtype auto is bfloat16 for this model, which" if automatic else "dtype bfloat16"
    return f"{which} needs compute capability 8.0; {case.gpu_name} has {case.capability / 10}. Use dtype: float16"


def _method_release(case: Case) -> str | None:
    value = case.flag("quantization")
    if not value or str(value) in known_methods(case.version) or str(value) not in flag_table().quantization:
        return None
    return f"vLLM {case.version} has no quantization method {value}"


def _method_capability(case: Case) -> str | None:
    facts = known_methods(case.version).get(case.method or "")
    if facts is None or facts.capability is None or case.capability is None or case.capability >= facts.capability:
        return None
    return (
        f"{case.method} needs compute capability {facts.capability / 10} in vLLM {case.version or 'this release'}; "
        f"{case.gpu_name} has {case.capability / 10}"
    )


def _method_dtype(case: Case) -> str | None:
    value, dtype = case.flag("quantization"), case.flag("dtype")
    facts = known_methods(case.version).get(str(value)) if value else None
    dtype = {"half": "float16", "float": "float32"}.get(str(dtype), str(dtype))
    if facts is None or not facts.dtypes or dtype in ("None", "auto", *facts.dtypes):
        return None
    return f"{value} runs with {' or '.join(facts.dtypes)} in vLLM {case.version or 'this release'}, not with {dtype}"


def _method_checkpoint(case: Case) -> str | None:
    value = str(case.flag("quantization") or "")
    if not value or case.model is None:
        return None
    stored = case.model.quantization
    if stored is None:
        needs = any(word in value.split("_") for word in NEEDS_CHECKPOINT)
        return f"the checkpoint is not quantized, and {value} needs one that is" if needs else None
    wanted, has = FORMATS.get(value, value), FORMATS.get(stored.method, stored.method)
    if wanted == has or value in ("moe_wna16", "humming", "inc", "auto-round"):
        return None
    return f"the checkpoint is quantized with {stored.method}, not with {value}; leave the flag out"


def _kv_dtype(case: Case) -> str | None:
    value = str(case.flag("kv_cache_dtype") or "auto")
    if case.capability is None:
        return None
    if value.startswith("nvfp4") and not 100 <= case.capability < 110:
        return f"kv_cache_dtype {value} needs compute capability 10.x; {case.gpu_name} has {case.capability / 10}"
    # Since 0.25 only Triton is left below 8.0, and refuses fp8 there; up to 0.10 such GPUs have V0's kernels.
    if value.startswith("fp8") and case.capability < 80 and case.release >= (0, 25):
        return (
            f"kv_cache_dtype {value} needs compute capability 8.0 (FlashInfer) or 8.9 (Triton); "
            f"{case.gpu_name} has {case.capability / 10}"
        )
    return None


def _context(case: Case) -> str | None:
    stretched = case.flag("hf_overrides") or case.flag("rope_scaling")
    allowed = case.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in ("1", "true", "True")
    length = case.number("max_model_len")
    if case.model is None or stretched or allowed or length <= case.model.max_context:
        return None
    return f"max_model_len {length:,} is beyond the model's {case.model.max_context:,}"


def _batched_context(case: Case) -> str | None:
    tokens = case.number("max_num_batched_tokens")
    length = case.number("max_model_len") or (case.model.max_context if case.model else 0)
    if not tokens or tokens >= length or chunks_prefill(case.core, v1=case.v1, max_model_len=length):
        return None
    return f"without chunked prefill max_num_batched_tokens {tokens:,} must hold a prompt of max_model_len {length:,}"


def _sequences(case: Case) -> str | None:
    tokens, sequences = case.number("max_num_batched_tokens"), case.number("max_num_seqs")
    if not tokens or sequences <= tokens:
        return None
    return f"max_num_seqs {sequences:,} is more than max_num_batched_tokens {tokens:,}"


def _utilization(case: Case) -> str | None:
    value = case.flag("gpu_memory_utilization")
    if not isinstance(value, (int, float)) or 0 < value <= 1:
        return None
    return f"gpu_memory_utilization {value} is not a share between 0 and 1"


def _speculation(case: Case) -> str | None:
    return speculation_refused(
        case.config.flags, release=case.release, v1=case.v1, tensor_parallel=case.tensor, pipeline=case.pipeline
    )


def _memory(case: Case) -> str | None:
    is_fixed = case.memory_plan is not None and case.memory_plan.kv_cache_memory_bytes is not None
    margin = 0.0 if is_fixed else case.memory_margin_bytes
    return case.memory_plan.reason if case.memory_plan is not None and case.short_bytes > margin else None


ONE_NODE = "one_node"
RULES: tuple[Rule, ...] = (
    Rule(code=ONE_NODE, source="0.8.5 executor/ray_utils.py, 0.32.0 config/parallel.py", check=_one_node),
    Rule(code="gpus", source="0.8.5 executor/mp_distributed_executor.py, 0.32.0 config/parallel.py", check=_gpus),
    Rule(code="engine_gpu", source="0.20.2 requires torch 2.11, which has no sm_70 kernels", check=_old_gpu),
    Rule(code="engine_v1", source="0.8.5, 0.9.2, 0.10.2 engine/arg_utils.py _raise_or_fallback", check=_v1_feature),
    Rule(code="attention_heads", source="0.7.3 config.py, 0.32.0 config/model.py", check=_heads),
    Rule(code="kv_heads", source="0.32.0 model_executor/layers/linear.py QKVParallelLinear", check=_kv_heads),
    Rule(code="mlp_columns", source="0.32.0 model_executor/layers/linear.py divide", check=_intermediate),
    Rule(code="layers", source="0.32.0 distributed/utils.py get_pp_indices", check=_layers),
    Rule(code="dtype", source="0.8.5 worker/worker.py, 0.32.0 platforms/cuda.py", check=_dtype),
    Rule(code="quantization_release", source="model_executor/layers/quantization/__init__.py", check=_method_release),
    Rule(code="quantization_gpu", source="0.8.5 config.py, 0.32.0 config/vllm.py", check=_method_capability),
    Rule(code="quantization_dtype", source="0.8.5 config.py, 0.32.0 config/vllm.py", check=_method_dtype),
    Rule(
        code="quantization_checkpoint",
        source="0.8.5 config.py, 0.32.0 config/model.py, model_executor/model_loader/weight_utils.py",
        check=_method_checkpoint,
    ),
    Rule(
        code="kv_cache_dtype",
        source="0.32.0 v1/attention/backends/flashinfer.py and triton_attn.py",
        check=_kv_dtype,
    ),
    Rule(code="context", source="0.7.3 config.py, 0.32.0 config/model.py", check=_context),
    Rule(code="batched_tokens", source="0.7.3 config.py, 0.32.0 config/scheduler.py", check=_batched_context),
    Rule(code="sequences", source="0.7.3 config.py, 0.32.0 config/scheduler.py", check=_sequences),
    Rule(code="utilization", source="0.8.5 config.py, 0.32.0 config/cache.py", check=_utilization),
    Rule(code="speculation", source="0.8.5 config.py, 0.32.0 config/speculative.py", check=_speculation),
    Rule(code="memory", source="0.7.3 worker/worker.py, 0.32.0 v1/core/kv_cache_utils.py", check=_memory),
)
"""In the order in which they are asked; the first that forbids names the reason."""


def dropped_because(
    config: Config, node: NodeFacts, model: ModelFacts | None, engine_version: str | None
) -> tuple[str, str] | None:
    """The code of the first rule that forbids a config on a node, and the reason with its source; None: it may run."""
    case = Case(config=config, node=node, model=model, version=config.engine_version or engine_version)
    for rule in RULES:
        if reason := rule.check(case):
            return rule.code, f"{reason} (vLLM {rule.source})"
    return None


def _eager(case: Case) -> str | None:
    if case.flag("enforce_eager") is not True or not case.node.gpus:
        return None
    return f"enforce_eager gives up CUDA graphs: each step on {case.gpu_name} then pays for every kernel's launch"


def _weight_only(case: Case) -> str | None:
    method = case.method or ""
    if "fp8" not in method or case.capability is None or case.capability >= 89:
        return None
    return f"{case.gpu_name} has no fp8 arithmetic: {method} saves memory there, not computation"


def _kv_weight_only(case: Case) -> str | None:
    value = str(case.flag("kv_cache_dtype") or "auto")
    if not value.startswith("fp8") or case.capability is None or case.capability >= 89:
        return None
    return f"{case.gpu_name} has no fp8 arithmetic: kv_cache_dtype {value} saves memory there, and may cost time"


def _slow_link(case: Case) -> str | None:
    if case.tensor == 1 or case.gpu is None or case.gpu.interconnect != "pcie":
        return None
    return f"tensor_parallel_size {case.tensor} over PCIe: each layer waits twice for the link"


def _close(case: Case) -> str | None:
    if case.memory_plan is None or not 0 < case.short_bytes <= case.memory_margin_bytes:
        return None
    return f"it may not fit: {case.memory_plan.reason}, by less than the estimate is good for"


def _full(case: Case) -> str | None:
    value = case.flag("gpu_memory_utilization")
    if not isinstance(value, float) or value <= 0.95 or not case.node.gpus:
        return None
    graphs = (
        " CUDA graphs are not counted in before 0.21."
        if case.release < (0, 21) and not case.flag("enforce_eager")
        else ""
    )
    return f"gpu_memory_utilization {value} leaves little for what the engine does not count; it may run out.{graphs}"


ADVICE: tuple[Callable[[Case], str | None], ...] = (_eager, _weight_only, _kv_weight_only, _slow_link, _close, _full)


def advice(config: Config, node: NodeFacts, model: ModelFacts | None, engine_version: str | None) -> tuple[str, ...]:
    """Sentences that speak against a config that may run; nothing is dropped for it."""
    case = Case(config=config, node=node, model=model, version=config.engine_version or engine_version)
    return tuple(text for check in ADVICE if (text := check(case)))
