"""Matrices of a decoder: every one by the name that checkpoints give it, with its role and its parameters."""

from dataclasses import dataclass
from typing import Literal

from tokenpeak.predict.config_keys import ConfigKeys
from tokenpeak.predict.layers import Layer, state_parameters

_GATED_ATTENTION = ("qwen3_next", "qwen3_5", "qwen4_exp")
"""Families whose queries come with a gate unless their config says otherwise."""

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
    latent: int | None = None
    """Values of a token inside the experts where they are fewer than the layer's, as in Nemotron 3 Super."""


@dataclass(frozen=True)
class Stored:
    """Parameters of one role and width."""

    role: Role
    parameters: int
    bits: float | None
    """None: at the checkpoint's dtype."""


@dataclass(frozen=True)
class Matrices:
    """The matrices of a decoder's layers, named as checkpoints name them."""

    keys: ConfigKeys
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
            found += self._mlp(
                f"{block or 'mlp'}.experts.0", "experts", experts.intermediate, experts.total, experts.latent
            )
            if experts.latent:
                found += [
                    (f"{block or 'mlp'}.{name}", "replicated", self.hidden * experts.latent)
                    for name in ("fc1_latent_proj", "fc2_latent_proj")
                ]
            found += self._mlp(f"{block or 'mlp'}.shared_experts", "layer", experts.shared_intermediate)
            found.append((f"{block or 'mlp'}.gate", "replicated", self.hidden * experts.total))
        return [(f"layers.{number}.{name}", role, count) for name, role, count in found]

    def _mlp(
        self, name: str, role: Role, width: int, times: int = 1, hidden: int | None = None
    ) -> list[tuple[str, Role, int]]:
        parts = ("gate_proj", "up_proj", "down_proj") if self.gated else ("up_proj", "down_proj")
        each = times * (hidden or self.hidden) * width
        return [(f"{name}.{part}", role, each) for part in parts] if width else []

    def _attention(self, *, is_full: bool) -> list[tuple[str, Role, int]]:
        size, kv_heads = of_attention(self.keys, self.kv_heads, self.head_size, is_full=is_full)
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
            found.append(("indexer.wq_b", "replicated", inner + self.hidden * index_size))
            found.append(("indexer.weights_proj", "replicated", self.hidden * index_heads))
        return found


def of_attention(keys: ConfigKeys, kv_heads: int, head_size: int, *, is_full: bool) -> tuple[int, int]:
    """Head size and KV heads of a layer; Gemma 4 has others in those that attend to all tokens."""
    if not is_full:
        return head_size, kv_heads
    return keys.optional("global_head_dim") or head_size, keys.optional("num_global_key_value_heads") or kv_heads
