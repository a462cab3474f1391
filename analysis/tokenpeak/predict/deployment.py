"""Deployment: a model on devices, as an engine of some version would run it, and what follows for bytes and rates."""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property

from tokenpeak.predict.hardware import GpuFacts
from tokenpeak.predict.kv_pool import Caching, KvPool, kv_pool
from tokenpeak.predict.model import ModelFacts, dtype_bytes
from tokenpeak.predict.quantization import Quantization, quantization_named
from tokenpeak.vllm.flags import DEFAULT_RELEASE, newest_release


def version_tuple(version: str | None) -> tuple[int, int, int]:
    """`0.8.5.post1` as (0, 8, 5); the newest known release when None."""
    numbers = [int(part) for part in re.findall(r"\d+", version or newest_release())[:3]]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return major, minor, patch


def _tiles(size: float, tile: int) -> int:
    """A size in whole tiles."""
    return math.ceil(size / tile) * tile


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
    expert_parallel: bool = False
    """`enable_expert_parallel`: each device has some experts whole, rather than a slice of each."""
    text_only: bool = False
    """`language_model_only`: the towers are left out."""

    @cached_property
    def release(self) -> tuple[int, int, int]:
        """The engine's release as numbers."""
        return version_tuple(self.engine_version)

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
            if part.role == "tower" and self.text_only:
                continue
            if part.role in ("replicated", "small"):
                total += size
            elif part.role == "experts":
                total += size * self.expert_padding / (self.expert_ranks * self.tensor_parallel)
            else:
                total += size / self.tensor_parallel
        return (total + self.absorbed_bytes) / self.pipeline_parallel

    @cached_property
    def absorbed_bytes(self) -> float:
        """Copies of latent attention's kv_b_proj at full width, which decoding multiplies with; 0 without it.

        Source: 0.18.0 model_executor/layers/attention/mla_attention.py process_weights_after_loading, W_UK_T and W_UV.
        """
        mla, model = self.model.mla, self.model
        if mla is None:
            return 0.0
        each = mla.kv_lora_rank * (mla.nope_head_size + mla.value_head_size) * model.heads / self.tensor_parallel
        return model.attention_layers * each * self.value_bytes

    @cached_property
    def expert_padding(self) -> float:
        """Bytes in memory ÷ bytes stored of MXFP4 experts, whose kernel takes whole tiles of each GPU's share.

        Source: 0.32.0 model_executor/layers/quantization/mxfp4.py: hidden in 256, the inner size in 128. Hopper's
        Triton kernels, before: the inner size in 64, and in 256 the side that a product sums over (0.11.0 mxfp4.py 225,
        and the weights of gpt-oss on one H100, vllm#27508).
        """
        experts, stored = self.model.experts, self.model.quantization
        if experts is None or stored is None or stored.method != "mxfp4":
            return 1.0
        hidden, inner = self.model.hidden, experts.intermediate / self.tensor_parallel
        if self.gpu.compute_capability == "9.0" and self.release < (0, 21):
            rows = _tiles(inner, 64)
            return (2 * rows * _tiles(hidden, 256) + hidden * _tiles(rows, 256)) / (3 * hidden * inner)
        return _tiles(hidden, 256) / hidden * (_tiles(inner, 128) / inner)

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
        routed, others = self._matrix_bytes
        return others + routed * model.experts_read(tokens * ranks) / ranks

    @cached_property
    def _matrix_bytes(self) -> tuple[float, float]:
        """Bytes of the experts that tokens are routed to, and of the layers' other matrices."""
        parts = self.model.stored_bytes(self.dtype, self.weights)
        return (
            sum(size for part, size in parts if part.role == "experts"),
            sum(size for part, size in parts if part.role in ("layer", "replicated")),
        )


BLOCK_TOKENS = 16


def pool_of(deployment: Deployment, engine: Caching) -> KvPool | None:
    """The pool of KV cache blocks of one device; None where no layer keeps anything."""
    model = deployment.model
    plain = dtype_bytes(model.dtype if deployment.dtype == "auto" else deployment.dtype)
    kept = [replace(each, layers=-(-each.layers // deployment.pipeline_parallel)) for each in model.kept]
    return kv_pool(kept, dtype_bytes(deployment.kv_dtype), plain, deployment.tensor_parallel, engine)
