"""Reads a decoder's shape out of config.json, whose keys differ by family and may stand for the family's defaults."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tokenpeak.errors import FactsError
from tokenpeak.predict.config_keys import ConfigKeys, is_counted
from tokenpeak.predict.layers import EXPERTS, Layer, LayerCache, read_layers, state_of
from tokenpeak.predict.matrices import Experts, Matrices, Mla, Role, Stored, of_attention
from tokenpeak.predict.quantization import Scheme
from tokenpeak.predict.tower import image_token_values, tower_parameters

_UNGATED = frozenset(
    [
        "apertus",
        "arcee",
        "persimmon",
        "fuyu",
        "jais2",
        "nanochat",
        "gpt_neox_japanese",
        "nemotron",
        "nemotron_h",
        "gpt2",
        "opt",
        "gpt_neox",
        "gpt_bigcode",
        "bloom",
        "falcon",
        "phi",
        "starcoder2",
        "gptj",
        "mpt",
    ]
)
"""Families whose MLP is two matrices; all others have a gate as the third."""

ENCODERS = frozenset(
    [
        "bert",
        "roberta",
        "xlm-roberta",
        "camembert",
        "distilbert",
        "electra",
        "mpnet",
        "modernbert",
        "nomic_bert",
        "new",
        "gte",
        "deberta-v2",
    ]
)
"""Families that read a text at once and keep nothing of it: they have no KV cache."""

_FULL_WIDTH = (".gate", ".weights_proj")
"""Matrices that the engine makes without the checkpoint's method. Source: 0.18.0 model_executor/models/deepseek_v2.py
DeepseekV2MoE and Indexer, quant_config=None."""
_LEARNED_POSITIONS = frozenset({"gpt2", "opt", "gpt_bigcode"})
_ALL_BIASED = frozenset({"gpt2", "opt", "gpt_neox", "gpt_bigcode", "bloom", "phi", "starcoder2"})
_QKV_BIASED = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "gpt_oss"})
_QK_NORMED = frozenset({"qwen3", "qwen3_moe", "gemma3", "gemma3_text", "olmo2"})
_FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text"})
_TIED_UNLESS_SAID = frozenset({"gpt2", "opt", "gemma", "gemma2", "gemma3", "gemma3_text", "bloom", "falcon"})


def read_config(config: Mapping[str, Any], name: str, scheme: Scheme | None = None) -> dict[str, Any]:
    """The fields of ModelFacts, but its name, source and quantization; `scheme` gives the width of each matrix."""
    keys = ConfigKeys(config, name)
    family = str(keys.config.get("model_type", "llama"))
    layers = keys.count("num_hidden_layers", "n_layer", "num_layers")
    hidden = keys.count("hidden_size", "n_embd", "d_model")
    vocabulary = keys.count("vocab_size")
    intermediate = keys.optional("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner") or 4 * hidden
    if keys.config.get("block_auto_adjust_ff_dim"):
        # LFM2 says what its MLP has before it is cut to two thirds, and to whole multiples.
        multiple = keys.optional("block_multiple_of") or 256
        intermediate = -(-int(2 * intermediate / 3) // multiple) * multiple
    heads, kv_heads, head_size = _heads(keys, hidden)
    mla = _mla(keys)
    kinds = read_layers(keys.config, family, layers)
    experts = _experts(keys, sum(layer.mlp == "experts" for layer in kinds))
    gated = family not in _UNGATED
    matrices = Matrices(keys, family, hidden, intermediate, heads, kv_heads, head_size, mla, experts, gated)
    stored: Counter[tuple[Role, float | None]] = Counter()
    for number, layer in enumerate(kinds):
        for module, role, parameters in matrices.of_layer(number, layer):
            # Routers are at full width whatever the checkpoint says.
            is_narrow = scheme is not None and not module.endswith(_FULL_WIDTH)
            bits = scheme.bits(module, experts=role == "experts") if scheme is not None and is_narrow else None
            stored[role, bits] += parameters
    positions = keys.optional("max_position_embeddings", "n_positions", "n_ctx") if family in _LEARNED_POSITIONS else 0
    embedding = hidden * (vocabulary + (positions or 0) + (2 if family == "opt" else 0)) + _per_layer_embeddings(keys)
    tied = bool(keys.config.get("tie_word_embeddings", family in _TIED_UNLESS_SAID))
    head = 0 if tied else hidden * vocabulary
    small = _small_parameters(family, layers, hidden, intermediate, heads, kv_heads, head_size, mla)
    if family == "gpt_oss" and experts:
        small += experts.sparse_layers * experts.total * (2 * experts.intermediate + hidden)
    tower = tower_parameters(config, hidden)
    stored["embedding", None] += embedding
    stored["head", None] += head
    stored["small", None] += small
    stored["tower", None] += tower
    linear = sum(count for (role, _), count in stored.items() if role in ("layer", "experts", "replicated"))
    routed = sum(count for (role, _), count in stored.items() if role == "experts")
    active = linear - routed + (routed * experts.active // experts.total if experts else 0)
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
        "embedding_parameters": embedding,
        "head_parameters": head,
        "other_parameters": small,
        "tower_parameters": tower,
        "image_token_values": image_token_values(config, hidden),
        "is_counted": is_counted(family),
        "active_linear_parameters": active,
        "experts": experts,
        "mla": mla,
        "stored": tuple(Stored(role, count, bits) for (role, bits), count in stored.items() if count),
        "kept": _kept(keys, kinds, hidden, kv_heads, head_size, mla),
    }


def _heads(keys: ConfigKeys, hidden: int) -> tuple[int, int, int]:
    """Query heads, KV heads and the values of one; FactsError where they do not go together."""
    heads = keys.count("num_attention_heads", "n_head")
    is_one = keys.config.get("multi_query") and not keys.config.get("new_decoder_architecture")
    kv_heads = 1 if is_one else keys.optional("num_key_value_heads", "num_kv_heads") or heads
    head_size = keys.optional("head_dim")
    if head_size is None:
        if hidden % heads:
            raise FactsError(
                f"config.json of {keys.name} says hidden_size = {hidden} and num_attention_heads = {heads}, which do "
                "not divide, and gives no head_dim. Correct that file."
            )
        head_size = hidden // heads
    if heads % kv_heads:
        raise FactsError(
            f"config.json of {keys.name} says num_attention_heads = {heads} and num_key_value_heads = {kv_heads}; "
            "the first must be a multiple of the second. Correct that file."
        )
    return heads, kv_heads, head_size


def _mla(keys: ConfigKeys) -> Mla | None:
    rank = keys.optional("kv_lora_rank")
    if rank is None:
        return None
    return Mla(
        kv_lora_rank=rank,
        rope_head_size=keys.count("qk_rope_head_dim"),
        nope_head_size=keys.count("qk_nope_head_dim"),
        value_head_size=keys.count("v_head_dim"),
        query_lora_rank=keys.optional("q_lora_rank"),
    )


def _experts(keys: ConfigKeys, sparse_layers: int) -> Experts | None:
    total = keys.optional(*EXPERTS)
    if total is None or not sparse_layers:
        return None
    dense = keys.optional("intermediate_size", "ffn_dim", "n_inner") or 4 * keys.count("hidden_size", "n_embd")
    width = keys.optional("moe_intermediate_size") or dense
    shared = (keys.optional("n_shared_experts", "moe_num_shared_experts", "num_shared_experts") or 0) * width + (
        keys.optional("shared_expert_intermediate_size") or 0
    )
    # Llama 4 has one shared expert, as wide as the others.
    shared = width if str(keys.config.get("model_type")).startswith("llama4") else shared
    return Experts(
        total=total,
        active=keys.count("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k", "moe_topk"),
        intermediate=width,
        shared_intermediate=keys.optional("moe_shared_expert_intermediate_size") or shared,
        sparse_layers=sparse_layers,
        latent=keys.optional("moe_latent_size"),
    )


def _kept(
    keys: ConfigKeys, kinds: tuple[Layer, ...], hidden: int, kv_heads: int, head_size: int, mla: Mla | None
) -> tuple[LayerCache, ...]:
    """What the layers keep of a sequence, by kind; the last `num_kv_shared_layers` have no keys of their own.

    Source: 0.32.0 v1/attention/backends/mla/indexer.py for the indexer: index_head_dim values of 8 bits and a scale.
    """
    if str(keys.config.get("model_type")) in ENCODERS:
        return ()
    own = kinds[: len(kinds) - (keys.optional("num_kv_shared_layers") or 0)]
    counts = Counter("full" if layer.mixer == "both" else layer.mixer for layer in own)
    counts["state"] = sum(layer.mixer in ("state", "both") for layer in own)
    reach = {"window": keys.optional("sliding_window"), "chunk": keys.optional("attention_chunk_size")}
    found = []
    for mixer in ("full", "window", "chunk"):
        if not counts[mixer]:
            continue
        if mla is not None:
            index = keys.optional("index_head_dim")
            width = mla.kv_lora_rank + mla.rope_head_size
            found.append(
                LayerCache(mixer=mixer, layers=counts[mixer], values=width, index_bytes=index + 4 if index else 0)
            )
            continue
        size, heads = of_attention(keys, kv_heads, head_size, is_full=mixer == "full")
        found.append(
            LayerCache(mixer=mixer, layers=counts[mixer], heads=heads, values=2 * size, reach=reach.get(mixer))
        )
    if counts["state"] and (state := state_of(keys.config, hidden)) is not None:
        found.append(LayerCache(mixer="state", layers=counts["state"], state=state))
    return tuple(found)


def _per_layer_embeddings(keys: ConfigKeys) -> int:
    """Embeddings that each layer has of its own, as in Gemma 3n."""
    width, vocabulary = keys.optional("hidden_size_per_layer_input"), keys.optional("vocab_size_per_layer_input")
    return (width or 0) * (vocabulary or 0) * keys.count("num_hidden_layers")


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


def _max_context(keys: ConfigKeys) -> int:
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
