"""Settings of a simulated engine: a command line on these devices in this release, with every default filled in.

Source: vllm/engine/arg_utils.py, vllm/config/{model,scheduler,cache}.py of the releases named.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tokenpeak.errors import FactsError
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.model import ModelFacts, facts_from_config, model_facts
from tokenpeak.sim.arguments import ServeArguments
from tokenpeak.sim.devices import Devices
from tokenpeak.vllm.engine_core import CoreQuestion, batch_defaults, chunks_prefill, runs_v1, schedules_ahead
from tokenpeak.vllm.flags import known_flags
from tokenpeak.vllm.model_runner import RunnerQuestion, capture_sizes, reserves_graphs, second_runner


@dataclass(frozen=True, kw_only=True)
class Release:
    """A vLLM release. `number` is (major, minor, patch); `v1` says which of the two engines it runs."""

    text: str
    number: tuple[int, int, int]
    v1: bool

    @property
    def one_kv_line(self) -> bool:
        """KV cache size and maximum concurrency share a line (vllm/v1/core/kv_cache_utils.py, from 0.32)."""
        return self.number >= (0, 32, 0)

    @property
    def banner(self) -> bool:
        """The log begins with a drawing of the name (vllm/entrypoints/utils.py, from 0.15)."""
        return self.number >= (0, 15, 0)

    @property
    def names_api_server(self) -> bool:
        """`Starting vLLM API server` (vllm/entrypoints/openai/api_server.py, up to 0.27)."""
        return self.number < (0, 28, 0)

    @property
    def process_prefixes(self) -> bool:
        """Log lines begin with the process, as `(EngineCore pid=1)` (vllm/utils/system_utils.py, from 0.10)."""
        return self.number >= (0, 10, 0)

    @property
    def core_name(self) -> str:
        """What the engine's process is called in the log (vllm/v1/engine/utils.py)."""
        return "EngineCore" if self.number >= (0, 18, 0) else "EngineCore_DP0"

    @property
    def default_memory_utilization(self) -> float:
        """`gpu_memory_utilization` unless given."""
        default = known_flags(self.text)["gpu_memory_utilization"].default
        return float(default) if isinstance(default, int | float) else 0.9


def release_number(version: str) -> tuple[int, int, int]:
    """Major, minor and patch of the release called `version`; raises FactsError for what is no version."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise FactsError(f"TOKENPEAK_SIM_VERSION is {version!r}, which is no vLLM version. Give one as 0.32.0.")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def release(version: str, asked: CoreQuestion) -> Release:
    """The release called `version`, running the engine core that it would choose."""
    return Release(text=version, number=asked.release, v1=runs_v1(asked))


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
"""What a model that nothing here knows is played as: the shape of Llama-3.2-1B with a context of 32k."""

_DTYPES = {"half": "float16", "float": "float32"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A resolved engine. Sizes are in tokens, of one replica of the engine."""

    arguments: ServeArguments
    release: Release
    devices: Devices
    model: ModelFacts
    served_names: tuple[str, ...]
    dtype: str
    quantization: str | None
    """The method, from the flag or else the checkpoint."""
    kv_cache_dtype: str
    max_model_len: int
    max_model_len_given: bool
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    schedules_ahead: bool
    """The next step is scheduled while this one is computed."""
    prefix_caching: bool
    block_size: int
    eager: bool
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    draft_tokens: int
    scheduler_steps: int
    api_keys: tuple[str, ...]
    runner_env: Mapping[str, str]
    """Variables that the model runner depends on."""
    cpu_kv_cache_bytes: int
    """The CPU engine's KV cache, which it is given."""

    @cached_property
    def runner(self) -> RunnerQuestion:
        """What the model runner and its graphs depend on."""
        return RunnerQuestion(
            release=self.release.number,
            flags=self.arguments.given,
            env=self.runner_env,
            vendor=self.devices.gpu.vendor,
            compute_capability=self.devices.gpu.compute_capability,
            model_type=self.model.model_type,
            experts=self.model.experts is not None,
            quantized=self.quantization is not None,
        )

    @cached_property
    def deployment(self) -> Deployment:
        """The same in the words of the performance model. FactsError when the quantization is not known."""
        return Deployment(
            model=self.model,
            gpu=self.devices.gpu,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            data_parallel=self.data_parallel,
            dtype=self.dtype,
            quantization=self.arguments.quantization,
            kv_cache_dtype=self.kv_cache_dtype,
            eager=self.eager,
            engine_version=self.release.text,
            v1=self.release.v1,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            custom_all_reduce=not self.arguments.disable_custom_all_reduce,
            schedules_ahead=self.schedules_ahead,
            graph_sizes=len(
                capture_sizes(
                    self.runner,
                    max_num_seqs=self.max_num_seqs,
                    max_num_batched_tokens=self.max_num_batched_tokens,
                    draft_tokens=self.draft_tokens,
                )
            ),
            graphs_reserved=reserves_graphs(self.runner),
            second_runner=self.release.v1 and second_runner(self.runner),
        )

    @property
    def gpus(self) -> tuple[int, ...]:
        """Indexes of the GPUs that the engine takes."""
        wanted = self.tensor_parallel * self.pipeline_parallel * self.data_parallel
        return self.devices.indexes[:wanted]

    @property
    def device_name(self) -> str:
        """How the log calls the device."""
        return "CPU" if self.devices.is_cpu else "GPU"


def resolve(
    arguments: ServeArguments, version: str, devices: Devices, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The engine of that version that the command line asks for; refuses nothing."""
    model = model_facts(arguments.model) or facts_from_config(_UNKNOWN_MODEL, arguments.model)
    major, minor = devices.compute_capability
    asked = CoreQuestion(
        release=release_number(version),
        flags=arguments.given,
        env=environ,
        vendor=devices.gpu.vendor,
        capability=10 * major + minor if devices.gpu.vendor == "nvidia" else None,
        mla=model.mla is not None,
        windowed=model.sliding_window is not None,
    )
    played = release(version, asked)
    given_len = arguments.max_model_len if arguments.max_model_len not in (None, -1) else None
    max_model_len = given_len or model.max_context
    batched, sequences = batch_defaults(
        asked,
        v1=played.v1,
        device=devices.gpu.name,
        memory_gib=devices.gpu.usable_bytes / GIB,
        world=arguments.tensor_parallel_size * arguments.pipeline_parallel_size,
    )
    chunked = chunks_prefill(asked, v1=played.v1, max_model_len=max_model_len)
    if arguments.performance_mode == "throughput":
        sequences, batched = 2 * sequences, 2 * batched
    if not chunked:
        batched = max(max_model_len, batched)
    batched = arguments.max_num_batched_tokens or min(batched, (arguments.max_num_seqs or sequences) * max_model_len)
    prefix_caching = arguments.enable_prefix_caching
    speculative = arguments.speculative_config or {"num_speculative_tokens": arguments.num_speculative_tokens or 0}
    key = environ.get("VLLM_API_KEY")
    return Settings(
        arguments=arguments,
        release=played,
        devices=devices,
        model=model,
        served_names=arguments.served_model_name or (arguments.model,),
        dtype=_dtype(arguments.dtype, model, devices),
        quantization=arguments.quantization or (model.quantization.method if model.quantization else None),
        kv_cache_dtype=arguments.kv_cache_dtype,
        max_model_len=max_model_len,
        max_model_len_given=given_len is not None,
        gpu_memory_utilization=arguments.gpu_memory_utilization or played.default_memory_utilization,
        max_num_seqs=arguments.max_num_seqs or min(sequences, batched),
        max_num_batched_tokens=batched,
        chunked_prefill=chunked,
        schedules_ahead=schedules_ahead(asked, v1=played.v1),
        prefix_caching=played.v1 if prefix_caching is None else prefix_caching,
        block_size=arguments.block_size or (128 if devices.is_cpu else 16),
        eager=arguments.enforce_eager,
        tensor_parallel=arguments.tensor_parallel_size,
        pipeline_parallel=arguments.pipeline_parallel_size,
        data_parallel=arguments.data_parallel_size,
        draft_tokens=int(speculative.get("num_speculative_tokens", 0)),
        scheduler_steps=1 if played.v1 else arguments.num_scheduler_steps,
        api_keys=arguments.api_key or ((key,) if key else ()),
        runner_env={name: environ[name] for name in ("VLLM_USE_V2_MODEL_RUNNER",) if name in environ},
        cpu_kv_cache_bytes=int(environ.get("VLLM_CPU_KVCACHE_SPACE") or 4) * GIB,
    )


def _dtype(asked: str, model: ModelFacts, devices: Devices) -> str:
    """The dtype of the weights: asked for, else the checkpoint's, with bfloat16 given up where it cannot run."""
    if asked != "auto":
        return _DTYPES.get(asked, asked)
    if model.dtype == "float32":
        return "float16"
    if model.dtype == "bfloat16" and devices.compute_capability < (8, 0):
        return "float16"
    return model.dtype
