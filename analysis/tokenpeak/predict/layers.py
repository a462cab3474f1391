"""Layers of a decoder by kind: what each keeps of a sequence, and whether its MLP is one of experts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Mixer = Literal["full", "window", "chunk", "state", "both", "none"]
"""Attention to all tokens, to a window or to a chunk of them, a state, attention beside a state, or no mixing."""
Mlp = Literal["dense", "experts", "none"]

_MIXERS: Mapping[str, Mixer] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "indexed_attention": "full",
    "sliding_attention": "window",
    "sliding_window_attention": "window",
    "local_attention": "window",
    "chunked_attention": "chunk",
    "linear_attention": "state",
    "lightning_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "recurrent": "state",
    "conv": "state",
    "hybrid": "both",
    "moe": "none",
    "mlp": "none",
}
"""Words of `layer_types`, `layers_block_type` and the like."""

_LETTERS: Mapping[str, tuple[Mixer, Mlp]] = {
    "M": ("state", "none"),
    "*": ("full", "none"),
    "-": ("none", "dense"),
    "E": ("none", "experts"),
}
"""Letters of Nemotron-H's hybrid_override_pattern."""


EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
"""Keys of how many experts a layer has."""


@dataclass(frozen=True)
class Layer:
    """One layer."""

    mixer: Mixer
    mlp: Mlp


@dataclass(frozen=True, kw_only=True)
class LayerState:
    """What a layer without attention keeps of a sequence, however long: values of all GPUs together."""

    conv: int
    recurrent: int
    dtype: str | None = None
    """Of the recurrent state; None: the model's."""
    checkpoints: int = 0
    """States more that a sequence has while its prompt is computed in parts. Source: 0.32.0
    model_executor/layers/mamba/mamba_mixer2.py get_kv_cache_spec."""


@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """What `layers` layers of one kind keep, each, of a sequence."""

    mixer: Literal["full", "window", "chunk", "state"]
    layers: int
    heads: int = 0
    """KV heads; 0: one vector that every GPU has whole, as MLA's."""
    values: int = 0
    """Values of keys and values, of one head and token."""
    index_bytes: int = 0
    """Of a sparse indexer, for each token beside the values."""
    reach: int | None = None
    """Tokens of the window or chunk."""
    state: LayerState | None = None


def read_layers(config: Mapping[str, Any], family: str, count: int) -> tuple[Layer, ...]:
    """The layers of a config.json that has its family's defaults filled in."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and set(pattern) <= set(_LETTERS):
        return tuple(Layer(*_LETTERS[letter]) for letter in pattern)
    blocks = config.get("layers_block_type")
    if family.startswith("nemotron_h") and isinstance(blocks, list):
        of_block: dict[str, tuple[Mixer, Mlp]] = {
            "mamba": ("state", "none"),
            "attention": ("full", "none"),
            "mlp": ("none", "dense"),
            "moe": ("none", "experts"),
        }
        return tuple(Layer(*of_block.get(str(block), ("full", "dense"))) for block in blocks)
    mixers = _mixers(config, family, count)
    return tuple(Layer(mixer, mlp) for mixer, mlp in zip(mixers, _mlps(config, count), strict=True))


def _mixers(config: Mapping[str, Any], family: str, count: int) -> list[Mixer]:
    """How each layer mixes tokens."""
    for key in ("layer_types", "layers_block_type"):
        words = config.get(key)
        if isinstance(words, list) and len(words) >= count:
            found: list[Mixer] = [_MIXERS.get(str(word), "full") for word in words[:count]]
            return _windowless(found, config)
    if family == "falcon_h1":
        return ["both"] * count
    if isinstance(own := config.get("linear_attn_config"), Mapping):
        full = set(own.get("full_attn_layers") or ())
        return ["full" if layer + 1 in full else "state" for layer in range(count)]
    if isinstance(kinds := config.get("attn_type_list"), list):
        return ["full" if kind else "state" for kind in kinds[:count]]
    if family == "bamba":
        indices = config.get("attn_layer_indices") or ()
        return ["full" if layer in indices else "state" for layer in range(count)]
    if _size(config, "mamba_d_state") and (period := _size(config, "attn_layer_period")):
        offset = int(config.get("attn_layer_offset") or 0)
        return ["full" if layer % period == offset else "state" for layer in range(count)]
    if interval := _size(config, "full_attention_interval"):
        return ["full" if (layer + 1) % interval == 0 else "state" for layer in range(count)]
    if isinstance(unit := config.get("sliding_window_pattern"), str):
        return _windowless(["window" if unit[layer % len(unit)] == "L" else "full" for layer in range(count)], config)
    if (period := _size(config, "sliding_window_pattern")) and _size(config, "sliding_window"):
        return ["full" if (layer + 1) % period == 0 else "window" for layer in range(count)]
    if isinstance(no_rope := config.get("no_rope_layers"), list) and _size(config, "attention_chunk_size"):
        rotated = [*no_rope, *[1] * count][:count]
        return ["chunk" if each else "full" for each in rotated]
    if isinstance(unit := config.get("layer_pattern"), list):
        of_family: list[Mixer] = [_MIXERS.get(str(unit[layer % len(unit)]), "full") for layer in range(count)]
        return _windowless(of_family, config)
    if _size(config, "sliding_window") and config.get("use_sliding_window") is not False:
        first = _size(config, "max_window_layers") if config.get("use_sliding_window") else None
        return ["window" if layer >= (first or 0) else "full" for layer in range(count)]
    return ["full"] * count


def _windowless(mixers: Sequence[Mixer], config: Mapping[str, Any]) -> list[Mixer]:
    """Layers with a window that the config gives no length are full ones; so are chunks."""
    lengths = {"window": "sliding_window", "chunk": "attention_chunk_size"}
    return ["full" if mixer in lengths and not _size(config, lengths[mixer]) else mixer for mixer in mixers]


def _mlps(config: Mapping[str, Any], count: int) -> list[Mlp]:
    """Which layers have experts: all but the leading dense ones, or every so-manieth."""
    if not any(_size(config, key) for key in EXPERTS):
        return ["dense"] * count
    if isinstance(kinds := config.get("mlp_layer_types"), list) and len(kinds) >= count:
        return ["experts" if kind == "sparse" else "dense" for kind in kinds[:count]]
    if isinstance(layers := config.get("moe_layers"), list):
        return ["experts" if layer in layers else "dense" for layer in range(count)]
    if isinstance(often := config.get("moe_layer_freq"), list):
        return ["experts" if each else "dense" for each in often[:count]]
    dense = int(config.get("first_k_dense_replace") or config.get("moe_layer_start_index") or 0)
    step = 1
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period", "moe_layer_freq"):
        if found := _size(config, key):
            step = found
            break
    offset = config.get("expert_layer_offset")
    only = config.get("mlp_only_layers") or []
    last = step - 1 if offset is None else int(offset)
    return [
        "experts" if layer >= dense and (layer - dense) % step == last % step and layer not in only else "dense"
        for layer in range(count)
    ]


def state_of(config: Mapping[str, Any], hidden: int) -> LayerState | None:
    """The state that layers without attention keep; None where the config has no such layer that is known here.

    Source: 0.32.0 model_executor/layers/mamba/mamba_utils.py MambaStateShapeCalculator.
    """
    dtype = config.get("mamba_ssm_cache_dtype") or config.get("mamba_ssm_dtype")
    dtype = str(dtype) if dtype not in (None, "auto") else None
    if value_heads := _size(config, "linear_num_value_heads"):
        keys = _size(config, "linear_num_key_heads", 1) * _size(config, "linear_key_head_dim", 128)
        width = _size(config, "linear_value_head_dim", 128)
        kernel = _size(config, "linear_conv_kernel_dim", 4)
        recurrent = value_heads * width * _size(config, "linear_key_head_dim", 128)
        return LayerState(conv=(2 * keys + value_heads * width) * (kernel - 1), recurrent=recurrent, dtype=dtype)
    if isinstance(own := config.get("linear_attn_config"), Mapping):
        heads, width = _size(own, "num_heads", 1), _size(own, "head_dim", 128)
        kernel = _size(own, "short_conv_kernel_size", 4)
        return LayerState(conv=3 * heads * width * (kernel - 1), recurrent=heads * width**2, dtype="float32")
    heads = _size(config, "mamba_num_heads") or _size(config, "mamba_n_heads")
    if heads:
        states = _size(config, "ssm_state_size") or _size(config, "mamba_d_state", 128)
        width = _head_width(config, heads, hidden)
        kernel = _size(config, "conv_kernel") or _size(config, "mamba_d_conv", 4)
        conv = heads * width + 2 * _groups(config) * states
        # Nemotron-H's states are wide unless it says otherwise: 0.32.0 model_executor/models/config.py.
        wide = "float32" if str(config.get("model_type")).startswith("nemotron_h") else None
        recurrent = heads * width * states
        return LayerState(conv=conv * (kernel - 1), recurrent=recurrent, dtype=dtype or wide, checkpoints=1)
    if states := _size(config, "mamba_d_state"):
        inner = _size(config, "mamba_expand", 2) * hidden
        return LayerState(conv=inner * (_size(config, "mamba_d_conv", 4) - 1), recurrent=inner * states, dtype=dtype)
    if length := _size(config, "conv_L_cache"):
        return LayerState(conv=_size(config, "conv_dim", hidden) * (length - 1), recurrent=0)
    if config.get("attn_type_list"):
        heads = _size(config, "num_attention_heads", 1)
        return LayerState(conv=0, recurrent=heads * _size(config, "head_dim", hidden // heads) ** 2, dtype="float32")
    return None


def state_parameters(config: Mapping[str, Any], hidden: int) -> dict[str, int]:
    """Parameters of the matrices of a layer with a state, by the last part of their names."""
    if value_heads := _size(config, "linear_num_value_heads"):
        keys = _size(config, "linear_num_key_heads", 1) * _size(config, "linear_key_head_dim", 128)
        values = value_heads * _size(config, "linear_value_head_dim", 128)
        projected = hidden * (2 * keys + 2 * values)
        return {"in_proj_qkvz": projected, "in_proj_ba": hidden * 2 * value_heads, "out_proj": values * hidden}
    if isinstance(own := config.get("linear_attn_config"), Mapping):
        heads, width = _size(own, "num_heads", 1), _size(own, "head_dim", 128)
        inner = heads * width
        low = 2 * (hidden * width + width * inner) + hidden * heads
        return {"qkv_proj": 3 * hidden * inner, "fg_proj": low, "o_proj": inner * hidden}
    heads = _size(config, "mamba_num_heads") or _size(config, "mamba_n_heads")
    if heads:
        states = _size(config, "ssm_state_size") or _size(config, "mamba_d_state", 128)
        inner = heads * _head_width(config, heads, hidden)
        return {
            "in_proj": hidden * (2 * inner + 2 * _groups(config) * states + heads),
            "out_proj": inner * hidden,
        }
    if states := _size(config, "mamba_d_state"):
        inner = _size(config, "mamba_expand", 2) * hidden
        rank = _size(config, "mamba_dt_rank", -(-hidden // 16))
        return {
            "in_proj": hidden * 2 * inner,
            "x_proj": inner * (rank + 2 * states) + rank * inner,
            "out_proj": inner * hidden,
        }
    if _size(config, "conv_L_cache"):
        width = _size(config, "conv_dim", hidden)
        return {"in_proj": hidden * 3 * width, "out_proj": width * hidden}
    if config.get("attn_type_list"):
        inner = _size(config, "num_attention_heads", 1) * _size(config, "head_dim", 128)
        return {"qkv_proj": 3 * hidden * inner, "output_gate": hidden * inner, "out_proj": inner * hidden}
    return {}


def _head_width(config: Mapping[str, Any], heads: int, hidden: int) -> int:
    """Values of one head of Mamba-2."""
    for key in ("mamba_head_dim", "mamba_d_head"):
        if found := _size(config, key):
            return found
    inner = _size(config, "mamba_d_ssm") or _size(config, "mamba_expand", 2) * hidden
    return inner // heads


def _groups(config: Mapping[str, Any]) -> int:
    return _size(config, "n_groups") or _size(config, "mamba_n_groups", 1)


def _size(config: Mapping[str, Any], key: str, default: int = 0) -> int:
    """A whole number above zero, or the default."""
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
