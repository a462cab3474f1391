"""Memory of a simulated engine: what each part takes of a GPU, and how many blocks are left for the KV cache."""

from dataclasses import dataclass, replace

from tokenpeak.predict.engine_memory import activation_peak_bytes, graph_bytes, kv_cache_bytes
from tokenpeak.sim.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Bytes on each GPU, and the KV cache that they leave for one replica of the engine."""

    weights_bytes: float
    activations_bytes: float
    graphs_bytes: float
    kv_cache_bytes: float
    """Left for the KV cache; below zero when nothing is."""
    blocks: int
    block_size: int
    full_sequence_bytes: float
    """KV cache of one sequence of max_model_len tokens."""

    @property
    def tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.blocks * self.block_size

    @property
    def vram_bytes(self) -> int:
        """All that the process takes on a GPU once it serves."""
        return int(self.weights_bytes + self.activations_bytes + self.graphs_bytes + max(0.0, self.kv_cache_bytes))


def capacity(settings: Settings) -> Capacity:
    """The memory of the engine that `settings` describe."""
    deployment, arguments = settings.deployment, settings.arguments
    given = arguments.kv_cache_memory_bytes or (settings.cpu_kv_cache_bytes if settings.devices.is_cpu else None)
    left = kv_cache_bytes(deployment, settings.gpu_memory_utilization, kv_cache_memory_bytes=given)
    per_token = deployment.kv_bytes_per_token_per_gpu
    full = settings.model.kv_bytes_of_sequence(settings.max_model_len, deployment.kv_dtype, settings.tensor_parallel)
    blocks = arguments.num_gpu_blocks_override or max(0, int(left // (per_token * settings.block_size)))
    return Capacity(
        weights_bytes=deployment.weight_bytes_per_gpu,
        activations_bytes=activation_peak_bytes(deployment),
        graphs_bytes=graph_bytes(deployment),
        kv_cache_bytes=left,
        blocks=blocks,
        block_size=settings.block_size,
        full_sequence_bytes=full / settings.pipeline_parallel,
    )


def shrink_context(settings: Settings) -> Settings:
    """The settings with `--max-model-len auto` (-1) resolved: the model's context, or what the KV cache holds."""
    if settings.arguments.max_model_len != -1:
        return settings
    return replace(settings, max_model_len=max(1, min(settings.max_model_len, capacity(settings).tokens)))
