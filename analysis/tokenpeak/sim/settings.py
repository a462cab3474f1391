"""Settings of a simulated engine: a command line on these devices in this release, with every default filled in."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tokenpeak.errors import FactsError
from tokenpeak.predict.deployment import Deployment, activation_peak_bytes, graph_bytes
from tokenpeak.predict.memory_plan import MemoryPlan, memory_on
from tokenpeak.predict.model import ModelFacts, facts_from_config, model_facts
from tokenpeak.sim.arguments import ServeArguments
from tokenpeak.sim.devices import Devices

_UNKNOWN_MODEL = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
"""A model that nothing here knows is played as one of this shape: Llama-3.2-1B with a context of 32k."""


CPU_KV_CACHE_GIB = "4"
"""KV cache of the CPU engine, unless its variable says another."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A vLLM release. `number` is (major, minor, patch); `v1` says which of the two engines it runs."""

    text: str
    number: tuple[int, int, int]
    v1: bool

    @property
    def process_prefixes(self) -> bool:
        """Log lines begin with the process, as `(EngineCore pid=1)` (vllm/utils/system_utils.py, from 0.10)."""
        return self.number >= (0, 10, 0)


def release_number(version: str) -> tuple[int, int, int]:
    """Major, minor and patch of the release called `version`; raises FactsError for what is no version."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise FactsError(f"TOKENPEAK_SIM_VERSION is {version!r}, which is no vLLM version. Give one as 0.32.0.")
    return int(match[1]), int(match[2]), int(match[3] or 0)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A resolved engine. Sizes are in tokens, of one replica of the engine."""

    arguments: ServeArguments
    release: Release
    devices: Devices
    memory: MemoryPlan
    served_names: tuple[str, ...]
    max_num_seqs: int
    api_keys: tuple[str, ...]

    @property
    def model(self) -> ModelFacts:
        """The shape of the model."""
        return self.memory.deployment.model

    @property
    def deployment(self) -> Deployment:
        """The engine in the words of the performance model."""
        return self.memory.deployment

    @property
    def max_model_len(self) -> int:
        """Most tokens of a sequence."""
        return self.memory.max_model_len

    @cached_property
    def kv_blocks(self) -> int:
        """Blocks of KV cache of one replica."""
        block_bytes = self.deployment.kv_bytes_per_token_per_gpu * self.memory.block_size
        return self.arguments.num_gpu_blocks_override or max(0, int(self.memory.kv_cache_bytes // block_bytes))

    @property
    def kv_tokens(self) -> int:
        """Tokens that they hold."""
        return self.kv_blocks * self.memory.block_size

    @property
    def vram_bytes(self) -> int:
        """All that the process takes on a GPU once it serves."""
        fixed = self.deployment.weight_bytes_per_gpu + activation_peak_bytes(self.deployment)
        return int(fixed + graph_bytes(self.deployment) + max(0.0, self.memory.kv_cache_bytes))

    @property
    def gpus(self) -> tuple[int, ...]:
        """Indexes of the GPUs that the engine takes."""
        deployment = self.deployment
        wanted = deployment.tensor_parallel * deployment.pipeline_parallel * deployment.data_parallel
        return self.devices.indexes[:wanted]


def resolve(
    arguments: ServeArguments, version: str, devices: Devices, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The engine of that version that the command line asks for; refuses nothing.

    Raises FactsError for a quantization, or a dtype of the KV cache, whose width is not known.
    """
    model = model_facts(arguments.model) or facts_from_config(_UNKNOWN_MODEL, arguments.model)
    environ = {"VLLM_CPU_KVCACHE_SPACE": CPU_KV_CACHE_GIB, **environ}
    memory = memory_on(devices.gpu, model, arguments.given, environ, version, config="simulated")
    if memory is None:
        raise FactsError(
            f"The simulated engine does not know how wide quantization {arguments.quantization} or KV cache "
            f"{arguments.kv_cache_dtype} are."
        )
    deployment, key = memory.deployment, environ.get("VLLM_API_KEY")
    if arguments.block_size is None and devices.is_cpu:
        memory = replace(memory, block_size=128)
    sequences = deployment.max_num_seqs
    return Settings(
        arguments=arguments,
        release=Release(text=version, number=release_number(version), v1=deployment.v1),
        devices=devices,
        memory=memory,
        served_names=arguments.served_model_name or (arguments.model,),
        max_num_seqs=arguments.max_num_seqs or min(sequences, deployment.max_num_batched_tokens),
        api_keys=arguments.api_key or ((key,) if key else ()),
    )
