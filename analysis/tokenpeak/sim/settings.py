"""Settings of a simulated engine: a command line on these devices in this release, with every default filled in."""

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NoReturn

from tokenpeak.errors import FactsError
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.memory_plan import MemoryPlan, memory_on
from tokenpeak.predict.model import ModelFacts, facts_from_config, model_facts
from tokenpeak.predict.profile_run import activation_peak_bytes, graph_bytes
from tokenpeak.sim.simulated_node import Devices
from tokenpeak.vllm.flags import FlagFacts, known_flags, size


@dataclass(frozen=True, kw_only=True)
class ServeArguments:
    """Arguments that the simulated engine reads by itself; None where the command line says nothing.

    Those that decide on memory and batches are read of `given`, by the memory plan.
    """

    model: str = "Qwen/Qwen3-0.6B"
    served_model_name: tuple[str, ...] = ()
    host: str | None = None
    port: int = 8000
    api_key: tuple[str, ...] = ()
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    num_gpu_blocks_override: int | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    long_prefill_token_threshold: int = 0
    seed: int | None = None
    enable_prompt_tokens_details: bool = False
    given: dict[str, Any] = field(default_factory=dict)
    """The arguments that were given, as the log's `non-default args` shows them; never a key."""


_SAME = {"device_memory_utilization": "gpu_memory_utilization"}


def _size(text: str) -> int:
    """As the engine reads sizes; raises what argparse prints."""
    number = size(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}")
    return number


def _size_or_auto(text: str) -> int:
    """The same, or `auto`, which is -1."""
    return -1 if text == "auto" else _size(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {json.loads}.") from error


def _truth(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes")


_TYPES: dict[str, dict[str, Any]] = {
    "int": {"type": int},
    "float": {"type": float},
    "size": {"type": _size},
    "size_or_auto": {"type": _size_or_auto},
    "json": {"type": _json},
    "list": {"nargs": "+"},
    "append": {"action": "append"},
    "switch": {"action": "store_true"},
    "bool": {"action": argparse.BooleanOptionalAction},
    "bool_value": {"type": _truth},
    "bool_or_str": {"nargs": "?", "const": True},
}


class _Parser(argparse.ArgumentParser):
    """argparse as vLLM uses it: usage and error on stderr, exit status 2."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"usage: vllm serve [model_tag] [options]\nvllm serve: error: {message}\n")
        raise SystemExit(2)

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """End as the whole command's parser does for words that nothing takes."""
        sys.stderr.write("usage: vllm [-h] [-v]\n            {chat,complete,serve,bench,collect-env,run-batch}\n")
        sys.stderr.write(f"            ...\nvllm: error: unrecognized arguments: {' '.join(words)}\n")
        raise SystemExit(2)


def _add(parser: _Parser, facts: FlagFacts) -> None:
    names = (f"--{facts.name.replace('_', '-')}", *facts.short)
    options = dict(_TYPES.get(facts.kind, {}))
    if facts.choices and facts.kind in ("str", "int"):
        options["choices"] = facts.choices
    parser.add_argument(*names, dest=_SAME.get(facts.name, facts.name), default=argparse.SUPPRESS, **options)


def parse_serve(argv: Sequence[str], version: str) -> ServeArguments:
    """The arguments after `serve`. An unknown flag or a value of the wrong type ends the process with status 2."""
    parser = _Parser(prog="vllm serve", add_help=False)
    parser.add_argument("model_tag", nargs="?")
    for facts in known_flags(version).values():
        _add(parser, facts)
    parsed, unknown = parser.parse_known_args([_dashed(word) if word.startswith("--") else word for word in argv])
    if unknown:
        parser.refuse(unknown)
    given = {name: value for name, value in vars(parsed).items() if value is not None}
    model = given.pop("model_tag", None) or given.get("model")
    if model is not None:
        given["model"] = model
    ours = {spec.name for spec in fields(ServeArguments)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if name in ours
    }
    return ServeArguments(**values, given={name: value for name, value in given.items() if name != "api_key"})


def _dashed(word: str) -> str:
    """The flag with dashes for underscores, as vLLM allows; a value after `=` stays as it is."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


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
    def adapters(self) -> tuple[str, ...]:
        """Names of the LoRA adapters that it serves; they take no time and share the prefix cache."""
        words: Sequence[str] = self.arguments.given.get("lora_modules") or ()
        return tuple(json.loads(word)["name"] if word.startswith("{") else word.partition("=")[0] for word in words)

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
