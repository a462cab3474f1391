"""vLLM's command line, `vllm serve MODEL` and the flags of the release played, refused in argparse's own words.

Which flags a release has, and how each is written, is the table in vllm/flags.py. Those that change what the
simulated engine does become fields of `ServeArguments`; the others are accepted and have no effect.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

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
    disable_log_stats: bool = False
    disable_uvicorn_access_log: bool = False
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
