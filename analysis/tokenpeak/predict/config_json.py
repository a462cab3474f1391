"""Reads a decoder's shape out of config.json, whose keys differ by family and may stand for the family's defaults."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tokenpeak.errors import FactsError
from tokenpeak.predict.layers import EXPERTS, Kept, Layer, read_layers, state_of, state_parameters
from tokenpeak.predict.quantization import Scheme
from tokenpeak.predict.tower import tower_parameters

FAMILIES = Path(__file__).parent / "data" / "families.json"
"""What a config.json leaves out: the defaults of its family."""

_UNGATED = frozenset(
    {
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
    }
)
"""Families whose MLP is two matrices; all others have a gate as the third."""

_LEARNED_POSITIONS = frozenset({"gpt2", "opt", "gpt_bigcode"})
_ALL_BIASED = frozenset({"gpt2", "opt", "gpt_neox", "gpt_bigcode", "bloom", "phi", "starcoder2"})
_QKV_BIASED = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "gpt_oss"})
_QK_NORMED = frozenset({"qwen3", "qwen3_moe", "gemma3", "gemma3_text", "olmo2"})
_FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text"})
_TIED_UNLESS_SAID = frozenset({"gpt2", "opt", "gemma", "gemma2", "gemma3", "gemma3_text", "bloom", "falcon"})
_UNCOUNTED = frozenset(
    {
        "cosmos3_edge",
        "deepseek_v4",
        "diffusion_gemma",
        "doge",
        "gemma3n",
        "gemma3n_text",
        "glm5_next",
        "hrm_text",
        "idefics",
        "inkling_mm_model",
        "inkling_text",
        "jetmoe",
        "mllama",
        "moshi",
        "phi4_multimodal",
        "qwen4_exp",
        "recurrent_gemma",
        "t5gemma2",
        "zamba",
        "zamba2",
        "zaya",
    }
)
"""Families with parts that the formulas below do not know: nothing is predicted from their config.json."""
_LIKE_LLAMA = frozenset(
    {
        "baichuan",
        "deepseek_v32",
        "exaone",
        "internlm",
        "internlm2",
        "internlm3",
        "kimi_k2",
        "kimi_vl",
        "llama4_text",
        "minimax_m1",
        "minimax_text_01",
        "nemotron_h",
        "orion",
        "phi",
        "phi3small",
        "solar",
        "yi",
    }
)
"""Families that the defaults do not have and whose layers are as those of others."""
_GATED_ATTENTION = ("qwen3_next", "qwen3_5", "qwen4_exp")
"""Families whose queries come with a gate unless their config says otherwise."""
_MAX_PLAUSIBLE = 10**7


Role = Literal["layer", "experts", "replicated", "embedding", "head", "small", "tower"]
"""What a parameter is of: a matrix of the layers that the GPUs share, of the experts, or that each GPU has whole."""


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


@dataclass(frozen=True)
class Stored:
    """Parameters of one role and width."""

    role: Role
    parameters: int
    bits: float | None
    """None: at the checkpoint's dtype."""


@cache
def _families() -> Mapping[str, Mapping[str, Any]]:
    families: Mapping[str, Mapping[str, Any]] = json.loads(FAMILIES.read_text())["families"]
    return families


class _Keys:
    """config.json with the names that families give the same thing."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        nested = config.get("text_config") or config.get("llm_config") or config.get("thinker_config")
        said: Mapping[str, Any] = {**config, **nested} if isinstance(nested, Mapping) else config
        families = _families()
        defaults = families.get(str(said.get("model_type"))) or families.get(str(config.get("model_type"))) or {}
        self.config: Mapping[str, Any] = {**defaults, **said}
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
            if value is None or value is False or value == 0:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_PLAUSIBLE:
                raise FactsError(
                    f"config.json of {self.name} says {key} = {value!r}; it must be a whole number from 1 to "
                    f"{_MAX_PLAUSIBLE:,}. Correct that file."
                )
            return value
        return None


def read_config(config: Mapping[str, Any], name: str, scheme: Scheme | None = None) -> dict[str, Any]:
    """The fields of ModelFacts, but its name, source and quantization; `scheme` gives the width of each matrix."""
    keys = _Keys(config, name)
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
    matrices = _Matrices(keys, family, hidden, intermediate, heads, kv_heads, head_size, mla, experts, gated)
    stored: Counter[tuple[Role, float | None]] = Counter()
    for number, layer in enumerate(kinds):
        for module, role, parameters in matrices.of_layer(number, layer):
            bits = (
                scheme.bits(module, experts=role == "experts") if scheme is not None and role != "replicated" else None
            )
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
        "is_counted": family not in _UNCOUNTED and (family in _families() or family in _LIKE_LLAMA),
        "active_linear_parameters": active,
        "experts": experts,
        "mla": mla,
        "stored": tuple(Stored(role, count, bits) for (role, bits), count in stored.items() if count),
        "kept": _kept(keys, kinds, hidden, kv_heads, head_size, mla),
    }


def _heads(keys: _Keys, hidden: int) -> tuple[int, int, int]:
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


def _mla(keys: _Keys) -> Mla | None:
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


def _experts(keys: _Keys, sparse_layers: int) -> Experts | None:
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
    )


@dataclass(frozen=True)
class _Matrices:
    """The matrices of a decoder's layers, named as checkpoints name them."""

    keys: _Keys
    family: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    mla: Mla | None
    experts: Experts | None
    gated: bool

    def of_layer(self, number: int, layer: Layer) -> list[tuple[str, Role, int]]:
        """Module, role and parameters of each matrix of a layer."""
        block = "mixer" if self.family == "nemotron_h" else None
        found: list[tuple[str, Role, int]] = []
        if layer.mixer in ("full", "window", "chunk", "both"):
            own = self._latent() if self.mla else self._attention(is_full=layer.mixer == "full")
            found += [(f"{block or 'self_attn'}.{name}", role, count) for name, role, count in own]
        if layer.mixer in ("state", "both"):
            states = state_parameters(self.keys.config, self.hidden)
            place = block or ("linear_attn" if "linear_num_value_heads" in self.keys.config else "mamba")
            found += [(f"{place}.{name}", "layer", count) for name, count in states.items()]
        if layer.mlp == "dense":
            found += self._mlp(block or "mlp", "layer", self.intermediate)
        elif layer.mlp == "experts" and (experts := self.experts) is not None:
            found += self._mlp(f"{block or 'mlp'}.experts.0", "experts", experts.intermediate, experts.total)
            found += self._mlp(f"{block or 'mlp'}.shared_experts", "layer", experts.shared_intermediate)
            found.append((f"{block or 'mlp'}.gate", "replicated", self.hidden * experts.total))
        return [(f"layers.{number}.{name}", role, count) for name, role, count in found]

    def _mlp(self, name: str, role: Role, width: int, times: int = 1) -> list[tuple[str, Role, int]]:
        parts = ("gate_proj", "up_proj", "down_proj") if self.gated else ("up_proj", "down_proj")
        return [(f"{name}.{part}", role, times * self.hidden * width) for part in parts] if width else []

    def _attention(self, *, is_full: bool) -> list[tuple[str, Role, int]]:
        size, kv_heads = _of_attention(self.keys, self.kv_heads, self.head_size, is_full=is_full)
        # A gate as large as the queries comes with them.
        gate = 2 if self.keys.config.get("attn_output_gate", self.family.startswith(_GATED_ATTENTION)) else 1
        kv = self.hidden * size * kv_heads
        is_one = is_full and bool(self.keys.config.get("attention_k_eq_v"))
        found: list[tuple[str, Role, int]] = [
            ("q_proj", "layer", gate * self.hidden * size * self.heads),
            ("k_proj", "layer", kv),
            ("v_proj", "layer", 0 if is_one else kv),
            ("o_proj", "layer", self.heads * size * self.hidden),
        ]
        return found

    def _latent(self) -> list[tuple[str, Role, int]]:
        mla = self.mla
        assert mla is not None, "latent attention has a rank"
        query_size = self.heads * (mla.nope_head_size + mla.rope_head_size)
        found: list[tuple[str, Role, int]] = [
            ("kv_a_proj_with_mqa", "replicated", self.hidden * (mla.kv_lora_rank + mla.rope_head_size)),
            ("kv_b_proj", "layer", mla.kv_lora_rank * self.heads * (mla.nope_head_size + mla.value_head_size)),
            ("o_proj", "layer", self.heads * mla.value_head_size * self.hidden),
        ]
        if rank := mla.query_lora_rank:
            found += [("q_a_proj", "replicated", self.hidden * rank), ("q_b_proj", "layer", rank * query_size)]
        else:
            found += [("q_proj", "layer", self.hidden * query_size)]
        index_heads, index_size = self.keys.optional("index_n_heads"), self.keys.optional("index_head_dim")
        if index_heads and index_size:
            inner = (mla.query_lora_rank or self.hidden) * index_heads * index_size
            found.append(("indexer", "replicated", inner + self.hidden * (index_size + index_heads)))
        return found


def _of_attention(keys: _Keys, kv_heads: int, head_size: int, *, is_full: bool) -> tuple[int, int]:
    """Head size and KV heads of a layer; Gemma 4 has others in those that attend to all tokens."""
    if not is_full:
        return head_size, kv_heads
    return keys.optional("global_head_dim") or head_size, keys.optional("num_global_key_value_heads") or kv_heads


def _kept(
    keys: _Keys, kinds: tuple[Layer, ...], hidden: int, kv_heads: int, head_size: int, mla: Mla | None
) -> tuple[Kept, ...]:
    """What the layers keep of a sequence, by kind; the last `num_kv_shared_layers` have no keys of their own.

    Source: 0.32.0 v1/attention/backends/mla/indexer.py for the indexer: index_head_dim values of 8 bits and a scale.
    """
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
            found.append(Kept(mixer=mixer, layers=counts[mixer], values=width, index_bytes=index + 4 if index else 0))
            continue
        size, heads = _of_attention(keys, kv_heads, head_size, is_full=mixer == "full")
        found.append(Kept(mixer=mixer, layers=counts[mixer], heads=heads, values=2 * size, reach=reach.get(mixer)))
    if counts["state"] and (state := state_of(keys.config, hidden)) is not None:
        found.append(Kept(mixer="state", layers=counts["state"], state=state))
    return tuple(found)


def _per_layer_embeddings(keys: _Keys) -> int:
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
