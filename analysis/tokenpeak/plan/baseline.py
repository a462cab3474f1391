"""Baselines: the engine's defaults, and production's own settings, as configs of the sweep."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenpeak.errors import PlanError
from tokenpeak.plan.matrix import configs, on_node
from tokenpeak.plan.node_kinds import build_of, known_flags_of
from tokenpeak.records import NodeFacts
from tokenpeak.spec.axes import ExtraConfig, FlagValue
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.command import OURS, command_line
from tokenpeak.vllm.flags import FlagFacts, known_flags

DEFAULTS, PRODUCTION = "defaults", "production"

SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}
"""Short names of flags, as people start engines with."""


def baselines(spec: SweepSpec, nodes: Sequence[NodeFacts]) -> tuple[tuple[ExtraConfig, ...], tuple[str, ...]]:
    """The baselines that the spec asks for and does not define, and why one is left out; `nodes` are of one kind.

    `defaults` is the fixed part with every axis left to the engine. `production` is the first node's production as it
    was found to run, where it serves the model that the sweep tunes: its flags alone, without the fixed part's, on the
    node's default engine build.
    """
    if not spec.axes:
        return (), ()
    wanted = [name for name in spec.search.baseline if name not in {extra.name for extra in spec.extra_configs}]
    added = [ExtraConfig(name=DEFAULTS)] if DEFAULTS in wanted else []
    notes: tuple[str, ...] = ()
    running = next((node for node in nodes if node.production and node.production.arguments), None)
    if PRODUCTION in wanted and running is not None:
        found = _production(spec, running)
        if isinstance(found, ExtraConfig):
            added.append(found)
        else:
            notes = (found,)
    return tuple(added), notes


def _production(spec: SweepSpec, node: NodeFacts) -> ExtraConfig | str:
    """The node's production as a config of the sweep, or why it cannot be one."""
    assert node.production is not None, "only a node with production is asked"
    tuned = spec.model or node.model
    names = () if tuned is None else (tuned.name, tuned.served_name)
    name, flags = parse_arguments(node.production.arguments, node.engine_version)
    if name not in names and node.production.model not in names:
        return f"production of {node.node} serves {node.production.model}, so it is no baseline of this sweep"
    unset: dict[str, FlagValue] = dict.fromkeys(spec.fixed.flags)
    # The fixed part's build is what the sweep is to try, not what production runs.
    build = node.builds[0].name if spec.fixed.engine is not None else None
    extra = ExtraConfig(name=PRODUCTION, flags={**unset, **flags}, engine=build)
    alone = spec.model_copy(update={"axes": {}, "extra_configs": (extra,)})
    try:
        config = on_node(configs(alone, node.model)[-1], node)
        version = config.engine_version or node.engine_version
        command_line(config, version, known_flags_of(build_of(config, node), version))
    except PlanError as error:
        return f"production's settings are no baseline of this sweep: {error}"
    return extra


def parse_arguments(arguments: Sequence[str], engine_version: str | None) -> tuple[str | None, dict[str, FlagValue]]:
    """The model and the flags of an engine's command line; what the sweep sets itself (address, names) is left out."""
    known = known_flags(engine_version)
    model: str | None = None
    flags: dict[str, FlagValue] = {}
    words = _spelled_out(arguments, known)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            model = model or word
            continue
        spelled, _, given = word.partition("=")
        name = SHORT.get(spelled, spelled.lstrip("-").replace("-", "_"))
        values = [given] if given else []
        while words and not given and not begins_option(words[0]) and takes_more(known.get(name), values):
            values.append(words.pop(0))
        if name == "model":
            model = values[0] if values else model
        elif name not in OURS:
            negated = name.removeprefix("no_")
            if name not in known and negated in known:
                flags[negated] = False
            else:
                flags[name] = _value(values, known.get(name))
    return model, flags


def _spelled_out(arguments: Sequence[str], known: Mapping[str, FlagFacts]) -> list[str]:
    """The words with `-O3`, `-O=3` and `-O 3` as `--optimization-level=3`, where the engine has that flag.

    Before it had, they set a key of --compilation-config that is named by the version; there they stay as they are.
    """
    words: list[str] = []
    for word in arguments:
        if "optimization_level" in known and re.fullmatch(r"-O=?[0-3]", word):
            words.append(f"--optimization-level={word[-1]}")
        elif "optimization_level" in known and words[-1:] == ["-O"] and re.fullmatch("[0-3]", word):
            words[-1] = f"--optimization-level={word}"
        else:
            words.append(word)
    return words


def begins_option(word: str) -> bool:
    """Whether a word of a command line is an option, not a value that begins with a minus."""
    return word.startswith("--") or word.partition("=")[0] in SHORT or re.fullmatch(r"-O=?[0-3]?", word) is not None


def takes_more(facts: FlagFacts | None, values: Sequence[str]) -> bool:
    """Whether the next word is a value of this flag."""
    if facts is not None and facts.kind in ("bool", "switch"):
        return False
    return not values or (facts is not None and facts.kind == "list")


def _value(values: Sequence[str], facts: FlagFacts | None) -> Any:
    if len(values) != 1:
        return list(values) or True
    word, kind = values[0], facts.kind if facts is not None else "value"
    if word in ("True", "False") and kind not in ("str", "value"):
        return word == "True"
    if kind in ("int", "size", "size_or_auto") and word.lstrip("-").isdigit():
        return int(word)
    return float(word) if kind == "float" else word
