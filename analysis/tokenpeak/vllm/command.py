"""The engine's command line: a config's flags in the words of the release that will read them."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpeak.errors import PlanError, suggestion
from tokenpeak.records import Config
from tokenpeak.vllm.flags import FlagFacts, flag_table, json_value, known_flags, known_variables, newest_release
from tokenpeak.vllm.renames import ADVICE, succeed

OURS = {
    "host": "the inventory's tokenpeak_host",
    "port": "the inventory's tokenpeak_port",
    "model": "the spec's model",
    "served_model_name": "the spec's model.served_name",
    "revision": "the spec's model.revision",
    "api_key": "a key file, so that no file of the sweep holds it",
    "uds": "the inventory's tokenpeak_host",
    "config": "the spec's flags",
}
"""Flags that a config may not set, and what says it instead."""

_PATTERNS = {
    "int": re.compile(r"-?\d+"),
    "float": re.compile(r"-?\d*\.?\d+(?:[eE]-?\d+)?"),
    "size": re.compile(r"\d+(?:\.\d+)?[kKmMgGtT]?"),
    "size_or_auto": re.compile(r"auto|-1|\d+(?:\.\d+)?[kKmMgGtT]?"),
}


MODULE = "api_server"
"""How the name of the module ends by which older images start. It takes no model but by `--model`: up to 0.8 it refuses
another word, and later releases serve their default model instead (0.8.5 entrypoints/openai/api_server.py; in 0.32.0
entrypoints/cli/serve.py alone reads the word)."""


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A config in the words of one release: the flags as arguments, and environment variables."""

    arguments: tuple[str, ...]
    env: dict[str, str]


def command_line(
    config: Config, engine_version: str | None, known: Mapping[str, FlagFacts] | None = None
) -> CommandLine:
    """A config's flags and environment in the words of a release.

    `known` is what the installed engine's own help says (`flags.parse_help`) and goes before the table. Without a
    version, what any release takes is accepted. Raises PlanError that names the flag, what is wrong and what to write
    instead; a forced config passes as it is written.
    """
    version = config.engine_version or engine_version
    takes = known_flags(version) if known is None else known
    reads = known_variables(version)
    if config.args:
        raise PlanError(f"Config {config.name!r} has args, which are of a server that is not vLLM; write its flags.")
    for name in OURS.keys() & config.flags.keys():
        raise PlanError(f"Config {config.name!r} sets {name}; it comes from {OURS[name]}. Remove the flag.")
    given = {name: value for name, value in config.flags.items() if value is not None}
    flags, env = succeed(given, config.env, takes, reads)
    arguments: list[str] = []
    for name, value in flags.items():
        facts = takes.get(name)
        if facts is None:
            if _says_nothing(name, value) and not config.force:
                continue
            if not config.force and not (version is None and flag_table().lifetime(name)):
                raise PlanError(_unknown_flag(config, name, version, takes))
            facts = FlagFacts(name=name, kind=_any_kind(name, value))
        arguments += _written(config, facts, value, version)
    for name in env:
        if name.startswith("VLLM_") and name not in reads and not config.force:
            raise PlanError(_unknown_variable(config, name, version, reads))
    return CommandLine(arguments=tuple(arguments), env=env)


def engine_argv(
    config: Config,
    *,
    host: str,
    port: int,
    engine_version: str | None,
    executable: Sequence[str] = ("vllm", "serve"),
    known: Mapping[str, FlagFacts] | None = None,
) -> list[str]:
    """The command line that launches a config; holds no secret. Raises PlanError as `launch` does."""
    revision = ["--revision", config.model.revision] if config.model.revision else []
    return [
        *executable,
        *model_words(executable, config.model.name),
        *("--host", host, "--port", str(port), "--served-model-name", config.model.served_name),
        *revision,
        *command_line(config, engine_version, known).arguments,
    ]


def engine_env(
    config: Config,
    *,
    engine_version: str | None,
    inventory: Mapping[str, str] | None = None,
    known: Mapping[str, FlagFacts] | None = None,
) -> dict[str, str]:
    """The variables to set on top of the inventory's when the engine starts.

    VLLM_CPU_KVCACHE_SPACE beats kv_cache_memory_bytes unless it is empty (0.32.0 platforms/cpu.py), so a config that
    sets the flag empties the inventory's variable.
    """
    env = command_line(config, engine_version, known).env
    if config.flags.get("kv_cache_memory_bytes") is not None and "VLLM_CPU_KVCACHE_SPACE" in (inventory or {}):
        env.setdefault("VLLM_CPU_KVCACHE_SPACE", "")
    return env


def model_words(program: Sequence[str], model: str) -> list[str]:
    """How a model is named to a program: by the first word after it, or by an option."""
    return ["--model", model] if any(word.endswith(MODULE) for word in program) else [model]


def served_from(argv: Sequence[str]) -> str:
    """The model in a launched command line: its name, or the folder on the node; empty where none is known."""
    for word in ("serve", "--model"):
        if word in argv[:-1]:
            return argv[argv.index(word) + 1]
    return ""


def launched_program(argv: Sequence[str]) -> tuple[str, ...]:
    """The program of a launched command line with its own words, before the model; empty where it cannot be seen."""
    for word, before in (("--model", 0), ("--host", 1), ("serve", -1)):
        if word in argv:
            return tuple(argv[: argv.index(word) - before])
    return ()


_OPTIMIZATION = re.compile(r"-O=?([0-3]?)")


@dataclass(frozen=True)
class CommandOption:
    """An option of a command line: its name with underscores, the places of its words, and its values."""

    name: str
    places: tuple[int, ...]
    values: tuple[str, ...]


def read_options(
    words: Sequence[str], known: Mapping[str, FlagFacts], *, program: int = 0
) -> tuple[int | None, list[CommandOption]]:
    """The place of the model, and the options in their order; the first `program` words are the program's own.

    `-O3`, `-O=3` and `-O 3` are the optimization level, as they are since 0.12.
    """
    short = {name: facts.name for facts in known.values() for name in facts.short}

    def begins(word: str) -> bool:
        return word.startswith("--") or word.partition("=")[0] in short or _OPTIMIZATION.fullmatch(word) is not None

    model: int | None = None
    options: list[CommandOption] = []
    place = program
    while place < len(words):
        first, word = place, words[place]
        place += 1
        if not word.startswith("-"):
            model = first if model is None else model
            continue
        spelled, equals, given = word.partition("=")
        name = short.get(spelled, spelled.lstrip("-").replace("-", "_"))
        values = [given] if equals else []
        if level := _OPTIMIZATION.fullmatch(word):
            name, values = "optimization_level", [level[1]] if level[1] else []
        facts = known.get(name)
        takes_none = facts.kind in ("bool", "switch") if facts else name.removeprefix("no_") in known
        takes_all = facts is not None and facts.kind == "list"
        while place < len(words) and not equals and not takes_none and not begins(words[place]):
            if values and not takes_all:
                break
            values.append(words[place])
            place += 1
        if name == "model" and len(values) == 1 and not equals:
            model = place - 1
        else:
            options.append(CommandOption(name, tuple(range(first, place)), tuple(values)))
    return model, options


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def paste_command(config: Config, program: Sequence[str] = ("vllm", "serve")) -> str:
    """The config as a line to paste into a shell: environment, the program, the model and its flags."""
    command = command_line(config, config.engine_version)
    env = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
    if not all(map(_VARIABLE.fullmatch, command.env)):
        # A shell takes what is no variable's name for words of its own.
        env = [shlex.join(["env", *(f"{name}={value}" for name, value in command.env.items())])]
    named = config.model.served_name != config.model.name
    words = [*program, *model_words(program, config.model.name)]
    words += ["--revision", config.model.revision] if config.model.revision else []
    words += ["--served-model-name", config.model.served_name] if named else []
    return " ".join([*env, shlex.join([*words, *command.arguments])])


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a flag that this release lacks was given the value that it has wherever it exists."""
    spans = flag_table().flags.get(name)
    return bool(spans) and all("default" in facts and facts["default"] == value for *_, facts in spans or [])


def _any_kind(name: str, value: Any) -> str:
    spans = flag_table().flags.get(name)
    if spans:
        return str(spans[-1][2]["kind"])
    return "bool" if isinstance(value, bool) else "value"


def _written(config: Config, facts: FlagFacts, value: Any, version: str | None) -> list[str]:
    """A flag with its value as arguments; raises PlanError for a value that the release would refuse."""
    flag = "--" + facts.name.replace("_", "-")
    if not config.force and (wrong := _wrong(facts, value)):
        engine = f"vLLM {version}" if version else "vLLM"
        raise PlanError(f"Config {config.name!r} sets {facts.name} to {value!r}; {engine} wants {wrong}.")
    if isinstance(value, bool):
        if facts.kind == "bool_value":
            return [f"{flag}={value}"]
        if value:
            return [flag]
        return ["--no-" + flag[2:]] if facts.kind in ("bool", "value") else []
    if facts.kind in ("list", "append"):
        listed = json_value(value) if isinstance(value, str) and value.startswith("[") else None
        items = listed if isinstance(listed, list) else [value]
        words = [item if isinstance(item, str) else json.dumps(item) for item in items]
        return [flag, *words] if facts.kind == "list" else [part for word in words for part in (flag, word)]
    text = str(value)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _wrong(facts: FlagFacts, value: Any) -> str | None:
    """Values that a flag takes instead of this one; None when it takes it."""
    kind = facts.kind
    if kind == "value":
        return None
    if isinstance(value, bool) or kind in ("bool", "switch", "bool_value"):
        return None if isinstance(value, bool) == (kind in ("bool", "switch", "bool_value")) else _wanted(facts)
    text = str(value)
    if facts.choices:
        return None if text in map(str, facts.choices) else _wanted(facts)
    if kind == "json":
        return None if not text.startswith(("{", "[")) or json_value(text) is not None else _wanted(facts)
    pattern = _PATTERNS.get(kind)
    return None if pattern is None or pattern.fullmatch(text) else _wanted(facts)


def _wanted(facts: FlagFacts) -> str:
    if facts.choices:
        return f"one of {', '.join(map(str, facts.choices))}"
    return {
        "int": "a whole number",
        "size": "a number of tokens or bytes, such as 8192 or 8k",
        "size_or_auto": "a number of tokens, such as 8192 or 8k, or auto",
        "float": "a number",
        "json": "JSON",
        "bool": "true or false",
        "switch": "true or false",
        "bool_value": "true or false",
    }.get(facts.kind, "a value, not true or false")


def _unknown_flag(config: Config, name: str, version: str | None, takes: Mapping[str, FlagFacts]) -> str:
    start = f"Config {config.name!r} sets {name}, which vLLM {version or newest_release()} does not take."
    if life := flag_table().lifetime(name):
        first, last = life
        table = flag_table()
        index = table.index(version)
        if index > table.releases.index(last):
            when = f"It went after {last}."
        elif index < table.releases.index(first):
            when = f"It came with {first}."
        else:
            when = "That release has it, but the help of the engine on the node does not list it."
        return f"{start} {when} {ADVICE.get(name, 'Leave it out, or pin an engine that has it.')}"
    return f"{start} {suggestion(name, takes)}"


def _unknown_variable(config: Config, name: str, version: str | None, reads: Mapping[str, object]) -> str:
    start = f"Config {config.name!r} sets {name}, which vLLM {version or newest_release()} does not read."
    if life := flag_table().lifetime(name):
        return f"{start} Releases {life[0]} to {life[1]} do. {ADVICE.get(name, 'Leave it out.')}"
    return f"{start} {suggestion(name, reads)}"
