"""Reads a transformer's shape out of config.json, whose keys differ by family, and its quantization."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import FactsError, suggestion

_UNGATED = frozenset({"gpt2", "opt", "gpt_neox", "gpt_bigcode", "bloom", "falcon", "phi", "starcoder2", "gptj", "mpt"})
"""Families whose MLP is two matrices; all others have a gate as the third."""

_LEARNED_POSITIONS = frozenset({"gpt2", "opt", "gpt_bigcode"})
_ALL_BIASED = frozenset({"gpt2", "opt", "gpt_neox", "gpt_bigcode", "bloom", "phi", "starcoder2"})
_QKV_BIASED = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "gpt_oss"})
_QK_NORMED = frozenset({"qwen3", "qwen3_moe", "gemma3", "gemma3_text", "olmo2"})
_FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text"})
_TIED_UNLESS_SAID = frozenset({"gpt2", "opt", "gemma", "gemma2", "gemma3", "gemma3_text", "bloom", "falcon"})
_MAX_PLAUSIBLE = 10**7


@dataclass(frozen=True, kw_only=True)
class Mla:
    """Multi-head latent attention: a token's keys and values are kept as one compressed vector a layer."""

    kv_lora_rank: int
    rope_head_size: int
    nope_head_size: int
    value_head_size: int
    query_lora_rank: int | None


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts: of `total` in each sparse layer a token uses `active`."""

    total: int
    active: int
    intermediate: int
    shared_intermediate: int
    sparse_layers: int


class _Keys:
    """config.json with the names that families give the same thing."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        nested = config.get("text_config") or config.get("llm_config")
        self.config: Mapping[str, Any] = {**config, **nested} if isinstance(nested, Mapping) else config
        self.name = name

    def count(self, *keys: str) -> int:
        """A positive whole number under the first of `keys` present; FactsError when missing or nonsense."""
        number = self.optional(*keys)
        if number is None:
            raise FactsError(
                f"config.json of {self.name} has no {' or '.join(keys)}. Add it to that file, or add the model to "
                "analysis/tokenpeak/predict/data/models.json."
            )
        return number

    def optional(self, *keys: str) -> int | None:
        for key in keys:
            value = self.config.get(key)
            if value is None or value is False:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_PLAUSIBLE:
                raise FactsError(
                    f"config.json of {self.name} says {key} = {value!r}; it must be a whole number from 1 to "
                    f"{_MAX_PLAUSIBLE:,}. Correct that file."
                )
            return value
        return None


def read_config(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The fields of ModelFacts, but its name, source and quantization."""
    keys = _Keys(config, name)
    family = str(keys.config.get("model_type", "llama"))
    layers = keys.count("num_hidden_layers", "n_layer", "num_layers")
    hidden = keys.count("hidden_size", "n_embd", "d_model")
    heads = keys.count("num_attention_heads", "n_head")
    vocabulary = keys.count("vocab_size")
    intermediate = keys.optional("intermediate_size", "ffn_dim", "n_inner") or 4 * hidden
    kv_heads = keys.optional("num_key_value_heads", "num_kv_heads") or (1 if keys.config.get("multi_query") else heads)
    head_size = keys.optional("head_dim")
    if head_size is None:
        if hidden % heads:
            raise FactsError(
                f"config.json of {name} says hidden_size = {hidden} and num_attention_heads = {heads}, which do not "
                "divide, and gives no head_dim. Correct that file."
            )
        head_size = hidden // heads
    if heads % kv_heads:
        raise FactsError(
            f"config.json of {name} says num_attention_heads = {heads} and num_key_value_heads = {kv_heads}; "
            "the first must be a multiple of the second. Correct that file."
        )
    mla = None
    if rank := keys.optional("kv_lora_rank"):
        mla = Mla(
            kv_lora_rank=rank,
            rope_head_size=keys.count("qk_rope_head_dim"),
            nope_head_size=keys.count("qk_nope_head_dim"),
            value_head_size=keys.count("v_head_dim"),
            query_lora_rank=keys.optional("q_lora_rank"),
        )
    experts = None
    if total := keys.optional("num_local_experts", "n_routed_experts", "num_experts"):
        width = keys.optional("moe_intermediate_size") or intermediate
        experts = Experts(
            total=total,
            active=keys.count("num_experts_per_tok", "experts_per_token", "num_experts_per_token"),
            intermediate=width,
            shared_intermediate=(keys.optional("n_shared_experts") or 0) * width
            + (keys.optional("shared_expert_intermediate_size") or 0),
            sparse_layers=_sparse_layers(keys, layers),
        )
    gated = family not in _UNGATED
    attention = _attention_parameters(hidden, heads, kv_heads, head_size, mla)
    mlp = (3 if gated else 2) * hidden * intermediate
    linear = layers * attention + layers * mlp
    active = linear
    if experts:
        expert = (3 if gated else 2) * hidden * experts.intermediate
        shared = (3 if gated else 2) * hidden * experts.shared_intermediate + hidden * experts.total
        dense = (layers - experts.sparse_layers) * mlp + layers * attention
        linear = dense + experts.sparse_layers * (experts.total * expert + shared)
        active = dense + experts.sparse_layers * (experts.active * expert + shared)
    tied = bool(keys.config.get("tie_word_embeddings", family in _TIED_UNLESS_SAID))
    positions = keys.optional("max_position_embeddings", "n_positions", "n_ctx") if family in _LEARNED_POSITIONS else 0
    return {
        "model_type": family,
        "layers": layers,
        "hidden": hidden,
        "intermediate": intermediate,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "vocabulary": vocabulary,
        "max_context": _max_context(keys),
        "dtype": str(keys.config.get("torch_dtype") or keys.config.get("dtype") or "float16"),
        "gated_mlp": gated,
        "linear_parameters": linear,
        "embedding_parameters": hidden * (vocabulary + (positions or 0) + (2 if family == "opt" else 0)),
        "head_parameters": 0 if tied else hidden * vocabulary,
        "other_parameters": _small_parameters(family, layers, hidden, intermediate, heads, kv_heads, head_size, mla),
        "active_linear_parameters": active,
        "experts": experts,
        "mla": mla,
        **_window(keys, family, layers),
    }


def _attention_parameters(hidden: int, heads: int, kv_heads: int, head_size: int, mla: Mla | None) -> int:
    if mla is None:
        return hidden * head_size * (heads + 2 * kv_heads) + heads * head_size * hidden
    query_size = heads * (mla.nope_head_size + mla.rope_head_size)
    query = hidden * query_size
    if mla.query_lora_rank:
        query = hidden * mla.query_lora_rank + mla.query_lora_rank * query_size
    down = hidden * (mla.kv_lora_rank + mla.rope_head_size)
    up = mla.kv_lora_rank * heads * (mla.nope_head_size + mla.value_head_size)
    return query + down + up + heads * mla.value_head_size * hidden


def _small_parameters(
    family: str, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, head_size: int, mla: Mla | None
) -> int:
    """Norms and biases."""
    qkv = head_size * (heads + 2 * kv_heads)
    norm = hidden * (2 if family in _ALL_BIASED else 1)
    each = norm * (4 if family in _FOUR_NORMS else 2)
    if family in _ALL_BIASED:
        each += qkv + hidden + intermediate + hidden
    elif family in _QKV_BIASED:
        each += qkv
    if family in _QK_NORMED:
        each += 2 * head_size
    if mla is not None:
        each += mla.kv_lora_rank + (mla.query_lora_rank or 0)
    return layers * each + norm


def _sparse_layers(keys: _Keys, layers: int) -> int:
    """How many layers have experts: all but the leading dense ones, or every `decoder_sparse_step`-th."""
    dense = keys.config.get("first_k_dense_replace") or 0
    step = keys.optional("decoder_sparse_step", "interleave_moe_layer_step") or 1
    only = keys.config.get("mlp_only_layers") or []
    return max(0, (layers - int(dense)) // step - len(only))


def _max_context(keys: _Keys) -> int:
    """The context that vLLM derives: the positions, times the factor of a stretched rotary embedding.

    Source: vllm/config `_get_and_verify_max_len`: llama3, mrope and longrope already hold the stretched length;
    YaRN counts from original_max_position_embeddings.
    """
    base = keys.optional("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length") or 2048
    scaling = keys.config.get("rope_scaling") or keys.config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return base
    kind, factor = str(scaling.get("rope_type", scaling.get("type", "default"))), scaling.get("factor")
    if kind in ("default", "llama3", "mrope", "longrope", "su") or not isinstance(factor, int | float):
        return base
    if kind == "yarn":
        base = int(scaling.get("original_max_position_embeddings") or base)
    return int(base * factor)


def _window(keys: _Keys, family: str, layers: int) -> dict[str, int | None]:
    """The sliding window, and in how many layers it is used."""
    window = keys.optional("sliding_window")
    if window is None or keys.config.get("use_sliding_window") is False:
        return {"sliding_window": None, "windowed_layers": 0}
    kinds = keys.config.get("layer_types")
    if isinstance(kinds, list):
        windowed = sum(kind == "sliding_attention" for kind in kinds)
    elif family == "gemma2":
        windowed = layers // 2
    elif pattern := keys.optional("sliding_window_pattern"):
        windowed = layers - layers // pattern
    else:
        windowed = layers
    return {"sliding_window": window, "windowed_layers": windowed}


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """One method of storing weights. `bits` counts scales and zero points; `compute` is the dtype of the products."""

    method: str
    bits: float
    compute: str
    """fp16, fp8, int8 or fp4; a device without units for it multiplies at its 16-bit rate."""
    kv_cache_dtype: str | None = None
    """The KV cache's dtype when the checkpoint brings one."""


def _grouped(bits: int, group: int, zeros: bool = True) -> float:
    """Bits of a weight with one 16-bit scale, and one zero point, for each `group` weights."""
    return bits + (16 + (bits if zeros else 0)) / group if group > 0 else float(bits)


METHODS: dict[str, Quantization] = {
    method.method: method
    for method in (
        Quantization(method="fp8", bits=8.0, compute="fp8"),
        Quantization(method="modelopt", bits=8.0, compute="fp8"),
        Quantization(method="fbgemm_fp8", bits=8.0, compute="fp8"),
        Quantization(method="awq", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="awq_marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="gptq", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="gptq_marlin", bits=_grouped(4, 128), compute="fp16"),
        Quantization(method="marlin", bits=_grouped(4, 128), compute="fp16"),
        # NF4 in blocks of 64 with a 32-bit maximum each.
        Quantization(method="bitsandbytes", bits=4.5, compute="fp16"),
        Quantization(method="gguf", bits=4.85, compute="fp16"),
        Quantization(method="experts_int8", bits=8.0, compute="fp16"),
        Quantization(method="compressed-tensors", bits=8.0, compute="fp8"),
        # Blocks of 32 with an 8-bit scale, and of 16 with an 8-bit scale.
        Quantization(method="mxfp4", bits=4.25, compute="fp16"),
        Quantization(method="modelopt_fp4", bits=4.5, compute="fp4"),
    )
}


def quantization_named(method: str) -> Quantization:
    """The method as `--quantization` names it; raises FactsError for a word that is not in the table."""
    if method not in METHODS:
        raise FactsError(
            f"Quantization method {method!r} is unknown. {suggestion(method, METHODS)} "
            "Add it to METHODS in predict/config_json.py to plan with it."
        )
    return METHODS[method]


def quantization_of(config: Mapping[str, Any]) -> Quantization | None:
    """Quantization by config.json's quantization_config; None when there is none or its method is not known here."""
    raw = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(raw, Mapping):
        return None
    method = str(raw.get("quant_method", "")).casefold().replace("_", "-" if raw.get("config_groups") else "_")
    if raw.get("config_groups"):
        return _compressed(raw)
    method_facts = METHODS.get(method)
    if method_facts is None:
        return None
    bits, group = raw.get("bits", raw.get("w_bit")), raw.get("group_size", raw.get("q_group_size"))
    width = method_facts.bits
    if isinstance(bits, int) and bits > 0:
        width = _grouped(bits, group if isinstance(group, int) else 0)
    elif raw.get("quant_algo") == "NVFP4":
        width = METHODS["modelopt_fp4"].bits
    elif raw.get("load_in_8bit"):
        width = 8.0
    kv = str(raw.get("kv_cache_quant_algo") or "").casefold()
    return Quantization(
        method=method_facts.method,
        bits=width,
        compute=METHODS["modelopt_fp4"].compute if raw.get("quant_algo") == "NVFP4" else method_facts.compute,
        kv_cache_dtype="fp8" if kv.startswith("fp8") else None,
    )


def _compressed(raw: Mapping[str, Any]) -> Quantization:
    """The first group of a compressed-tensors config: the width of its weights and what they are multiplied as."""
    group = next((g for g in raw["config_groups"].values() if isinstance(g, Mapping)), {})
    weights = group.get("weights") or {}
    bits, size = int(weights.get("num_bits", 8)), int(weights.get("group_size") or 0)
    activations = group.get("input_activations")
    compute = "fp16" if not activations else ("fp8" if weights.get("type") == "float" else "int8")
    width = _grouped(bits, size, zeros=not weights.get("symmetric", True))
    if (bits, weights.get("type")) == (4, "float"):
        # NVFP4: scales of 8 bits. With activations as narrow, products are as well.
        width = METHODS["modelopt_fp4"].bits
        compute = "fp4" if activations and activations.get("num_bits") == 4 else "fp16"
    kv = raw.get("kv_cache_scheme")
    return Quantization(
        method="compressed-tensors",
        bits=width,
        compute=compute,
        kv_cache_dtype="fp8" if isinstance(kv, Mapping) and kv.get("num_bits") == 8 else None,
    )
