"""vLLM's command line: `vllm serve MODEL` with its flags, refused in argparse's own words when unknown.

The flags that change what the simulated engine does are parsed into `ServeArguments`; the others
that a release has are accepted and have no effect.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn


@dataclass(frozen=True, kw_only=True)
class ServeArguments:
    """What the command line asks for; None where it says nothing."""

    model: str = "Qwen/Qwen3-0.6B"
    served_model_name: tuple[str, ...] = ()
    host: str | None = None
    port: int = 8000
    api_key: tuple[str, ...] = ()
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None
    enforce_eager: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    speculative_config: dict[str, Any] | None = None
    num_scheduler_steps: int = 1
    seed: int = 0
    enable_prompt_tokens_details: bool = False
    disable_custom_all_reduce: bool = False
    disable_log_stats: bool = False
    disable_uvicorn_access_log: bool = False
    given: dict[str, Any] = field(default_factory=dict)
    """The arguments that were given, as the log's `non-default args` shows them."""


_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _human_int(text: str) -> int:
    """A number as vLLM reads it: `8192`, `8k` (8,000), `8K` (8,192), `auto` (-1)."""
    if text == "auto":
        return -1
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid int value: {text!r}")
    unit = match[2]
    scale = _UNITS.get(unit) or _BINARY_UNITS.get(unit) or 1
    return int(float(match[1]) * scale)


_human_int.__name__ = "human_readable_int"


_VALUES: dict[str, dict[str, Any]] = {
    "host": {"type": str},
    "port": {"type": int},
    "api-key": {"nargs": "+"},
    "served-model-name": {"nargs": "+"},
    "dtype": {"choices": ("auto", "half", "float16", "bfloat16", "float", "float32")},
    "quantization": {"type": str},
    "kv-cache-dtype": {"type": str},
    "max-model-len": {"type": _human_int},
    "gpu-memory-utilization": {"type": float},
    "kv-cache-memory-bytes": {"type": _human_int},
    "num-gpu-blocks-override": {"type": int},
    "block-size": {"type": int},
    "max-num-seqs": {"type": int},
    "max-num-batched-tokens": {"type": _human_int},
    "long-prefill-token-threshold": {"type": int},
    "tensor-parallel-size": {"type": int},
    "pipeline-parallel-size": {"type": int},
    "data-parallel-size": {"type": int},
    "speculative-config": {"type": json.loads},
    "num-scheduler-steps": {"type": int},
    "seed": {"type": int},
}
_SHORT = {
    "quantization": "-q",
    "tensor-parallel-size": "-tp",
    "pipeline-parallel-size": "-pp",
    "data-parallel-size": "-dp",
    "speculative-config": "-sc",
}
_SWITCHES = (
    "enable-chunked-prefill",
    "enable-prefix-caching",
    "enforce-eager",
    "enable-prompt-tokens-details",
    "disable-custom-all-reduce",
    "disable-log-stats",
    "disable-uvicorn-access-log",
)
_WITHOUT_EFFECT = (
    "attention-backend", "chat-template", "compilation-config", "cpu-offload-gb", "cuda-graph-sizes", "device",
    "distributed-executor-backend", "download-dir", "generation-config", "guided-decoding-backend", "hf-overrides",
    "kv-transfer-config", "limit-mm-per-prompt", "load-format", "max-cpu-loras", "max-log-len", "max-loras",
    "max-lora-rank", "max-num-partial-prefills", "max-seq-len-to-capture", "model-loader-extra-config",
    "optimization-level", "override-generation-config", "performance-mode", "preemption-mode", "reasoning-parser",
    "revision", "scheduling-policy", "stream-interval", "swap-space", "task", "tokenizer", "tokenizer-mode",
    "tokenizer-revision", "tool-call-parser", "uvicorn-log-level",
)  # fmt: skip
_SWITCHES_WITHOUT_EFFECT = (
    "async-scheduling", "disable-log-requests", "enable-auto-tool-choice",
    "enable-expert-parallel", "enable-log-requests", "enable-lora", "enable-sleep-mode", "language-model-only",
    "trust-remote-code",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """argparse as vLLM uses it: the usage and the error on stderr, exit status 2."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write("usage: vllm [-h] [-v]\n            {chat,complete,serve,bench,collect-env,run-batch}\n")
        sys.stderr.write(f"            ...\nvllm: error: {message}\n")
        raise SystemExit(2)


def _parser() -> _Parser:
    parser = _Parser(prog="vllm serve", add_help=False)
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default=None)
    for name, options in _VALUES.items():
        names = [f"--{name}", _SHORT[name]] if name in _SHORT else [f"--{name}"]
        parser.add_argument(*names, default=argparse.SUPPRESS, **options)
    for name in _WITHOUT_EFFECT:
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    for name in (*_SWITCHES, *_SWITCHES_WITHOUT_EFFECT):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS)
    return parser


def _dashed(word: str) -> str:
    """The flag with dashes for underscores, as vLLM allows; a value after `=` stays as it is."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def parse_serve(argv: Sequence[str]) -> ServeArguments:
    """The arguments after `serve`. An unknown flag or a value of the wrong type ends the process with status 2."""
    dashed = [_dashed(word) if word.startswith("--") else word for word in argv]
    parser = _parser()
    found, unknown = parser.parse_known_args(dashed)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = {name: value for name, value in vars(found).items() if value is not None}
    model = given.pop("model_tag", None) or given.get("model")
    if model is not None:
        given["model"] = model
    known = {name: value for name, value in given.items() if name in ServeArguments.__dataclass_fields__}
    for name in ("api_key", "served_model_name"):
        if name in known:
            known[name] = tuple(known[name])
    shown = {name: value for name, value in given.items() if name != "api_key"}
    return ServeArguments(**known, given={"model_tag": model, **shown} if model else shown)
