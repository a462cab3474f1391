"""Baselines: the engine's defaults, and production's own settings, as configs of the sweep."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tokenpeak.errors import PlanError
from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.plan.matrix import configs, on_node
from tokenpeak.plan.node_kinds import build_of, known_flags_of
from tokenpeak.records import NodeFacts
from tokenpeak.spec.axes import ExtraConfig, FlagValue
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.command import OURS, command_line, read_options
from tokenpeak.vllm.flags import FlagFacts, known_flags

DEFAULTS, PRODUCTION = "defaults", "production"


def baselines(spec: SweepSpec, nodes: Sequence[NodeFacts]) -> tuple[tuple[ExtraConfig, ...], tuple[str, ...]]:
    """The baselines that the spec asks for and does not define, and why one is left out; `nodes` are of one kind.

    `defaults` is the fixed part with every axis left to the engine. `production` is the first node's production as it
    was found to run, where it serves the model that the sweep tunes: its flags alone, without the fixed part's, on the
    node's default engine build of vLLM.
    """
    if not spec.axes:
        return (), ()
    wanted = [name for name in spec.search.baseline if name not in {extra.name for extra in spec.extra_configs}]
    added = [ExtraConfig(name=DEFAULTS, engine=_build_of_defaults(spec, nodes))] if DEFAULTS in wanted else []
    notes: tuple[str, ...] = ()
    running = next((node for node in nodes if node.production and node.production.arguments), None)
    if PRODUCTION in wanted and running is not None:
        running_config = _production(spec, running)
        if isinstance(running_config, ExtraConfig):
            added.append(running_config)
        else:
            notes = (running_config,)
    return tuple(added), notes


def _build_of_defaults(spec: SweepSpec, nodes: Sequence[NodeFacts]) -> str | None:
    """The build whose defaults are meant: vLLM's first one, where the default build is another server; else None."""
    builds = nodes[0].builds if nodes and spec.fixed.engine is None else ()
    if not builds or is_vllm(builds[0].release):
        return None
    return next((build.name for build in builds if is_vllm(build.release)), None)


def _production(spec: SweepSpec, node: NodeFacts) -> ExtraConfig | str:
    """The node's production as a config of the sweep, or why it cannot be one."""
    assert node.production is not None, "only a node with production is asked"
    tuned = spec.model or node.model
    names = () if tuned is None else (tuned.name, tuned.served_name)
    own = next((build for build in node.builds if is_vllm(build.release)), None)
    if own is None:
        return f"production's settings are no baseline of this sweep: {node.node} has no build of vLLM"
    try:
        name, flags = parse_arguments(node.production.arguments, own.release)
    except PlanError as error:
        return f"production's settings are no baseline of this sweep: {error}"
    if name not in names and node.production.model not in names:
        return f"production of {node.node} serves {node.production.model}, so it is no baseline of this sweep"
    unset: dict[str, FlagValue] = dict.fromkeys(spec.fixed.flags)
    # The fixed part's build is what the sweep is to try, not what production runs.
    build = own.name if spec.fixed.engine is not None or own != node.builds[0] else None
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
    """The model and the flags of an engine's command line; what the sweep sets itself (address, names) is left out.

    Of a flag that is given twice the last counts, as for the engine. Raises PlanError for settings that are not in the
    line: a variable that nobody has filled in, or a file that could not be read.
    """
    if variable := next((found for word in arguments if (found := _VARIABLE.search(word))), None):
        raise PlanError(
            f"its command has {variable[0]}, whose value is not seen from there. Write the value into it, or give the "
            "settings as an extra config named production."
        )
    table = known_flags(engine_version)
    short = {name: facts.name for facts in table.values() for name in facts.short}
    place, options = read_options(arguments, table)
    model = None if place is None else arguments[place]
    flags: dict[str, Any] = {}
    for option in options:
        whole, _, key = option.name.partition(".")
        # Of `-cc.mode=3` the first part may be the flag's short name.
        name = short.get(f"-{whole}", whole)
        positive = name.removeprefix("no_")
        if name == "config" and option.values:
            raise PlanError(
                f"its settings stand in {option.values[0]}, which could not be read on the node. Give them as an extra "
                "config named production."
            )
        if key:
            held = flags.get(name)
            flags[name] = _nested(held if isinstance(held, dict) else {}, key.split("."), option.values)
        elif name == "model" and option.values:
            model = option.values[0]
        elif name not in table and positive in table:
            flags[positive] = False
        elif name not in OURS:
            flags[name] = _value(option.values, table.get(name))
    return model, flags


_VARIABLE = re.compile(r"\$(?:\{[^}]*\}|\w+|\([^)]*\))")
"""A variable or a command that a shell would have filled in."""


def _nested(held: dict[str, Any], keys: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """A JSON flag with one of its keys set, as `--compilation-config.mode 3` sets it."""
    if len(keys) > 1:
        inner = held.get(keys[0])
        return {**held, keys[0]: _nested(inner if isinstance(inner, dict) else {}, keys[1:], values)}
    word = values[0] if values else "true"
    try:
        return {**held, keys[0]: json.loads(word)}
    except ValueError:
        return {**held, keys[0]: word}


def _value(values: Sequence[str], facts: FlagFacts | None) -> Any:
    if len(values) != 1:
        return list(values) or True
    word, kind = values[0], facts.kind if facts is not None else "value"
    if word in ("True", "False") and kind not in ("str", "value"):
        return word == "True"
    if kind in ("int", "size", "size_or_auto") and word.lstrip("-").isdigit():
        return int(word)
    try:
        return float(word) if kind == "float" else word
    except ValueError:
        # What no engine takes is said where the command is built.
        return word
