"""Nodes of equal boards that are planned apart, and what differs between their kinds."""

import re
from collections.abc import Iterable, Mapping, Sequence

from tokenpeak.errors import PlanError
from tokenpeak.node.engine.builds import is_version, is_vllm
from tokenpeak.records import Config, EngineBuild, HardwareKey, NodeFacts
from tokenpeak.vllm.command import command_line
from tokenpeak.vllm.flags import FlagFacts, installed_flags

_WHAT = {
    "boards": "boards",
    "interconnect": "interconnect",
    "cpu_cores": "CPU cores",
    "memory_gib": "memory",
    "engines": "engine builds",
    "engine_env": "engine environment",
    "engine_env_allowed": "variables that configs may set",
}
"""The facts of a kind of hardware that its short label does not show, in words."""


def apart(groups: Mapping[str, Sequence[NodeFacts]]) -> dict[str, tuple[str, ...]]:
    """For each label of `hardware_groups`, a sentence for every other kind of equal boards: what differs."""
    sentences = {}
    for label, nodes in groups.items():
        others = [(other, same[0]) for other, same in groups.items() if other != label]
        alike = [(other, node) for other, node in others if node.hardware == nodes[0].hardware]
        sentences[label] = tuple(
            f"apart from {', '.join(each.node for each in groups[other])}: {differences(nodes[0], node)}"
            for other, node in alike
        )
    return sentences


def differences(ours: NodeFacts, theirs: NodeFacts) -> str:
    """Differences that make two nodes of equal boards two kinds of hardware, ours first."""
    here, there = ours.hardware_key, theirs.hardware_key
    parts = [
        f"{fact} {_words(name, here, there)} here, {_words(name, there, here)} there"
        for name, fact in _WHAT.items()
        if getattr(here, name) != getattr(there, name)
    ]
    if ours.model != theirs.model:
        parts.append("another model")
    return "; ".join(parts)


def _words(name: str, key: HardwareKey, other: HardwareKey) -> str:
    value = getattr(key, name)
    if name == "engine_env_allowed":
        # Both lists are long, and alike but for a few.
        more = [each for each in key.engine_env_allowed if each not in other.engine_env_allowed]
        return ", ".join(more) + " too" if more else "none besides"
    if name == "boards":
        return " + ".join(dict.fromkeys(f"{gib or '?'} GiB, driver {driver or '?'}" for _, gib, driver in key.boards))
    if name == "engines":
        return " + ".join(f"{build} {version or '?'}" for build, version in key.engines) or "none"
    if name == "engine_env":
        return " ".join(f"{variable}={text}" for variable, text in key.engine_env) or "none"
    if name == "memory_gib":
        return f"{value or '?'} GiB"
    return str(value or "unknown")


_VERSION = re.compile(r"v?\d+\.\d+\S*")


def build_of(config: Config, node: NodeFacts) -> EngineBuild:
    """The build that a resolved config is launched with; the default one where it names none that the node has."""
    return next((build for build in node.builds if build.name == config.engine), node.builds[0])


def asked_build(wanted: str | None, node: NodeFacts) -> EngineBuild:
    """The build of a node that a spec's `engine` asks for, a name or else a version; the default one for None.

    Raises PlanError that names the builds there are. One of unknown version stands for any.
    """
    builds = node.builds
    if wanted is None:
        return _startable(builds[0])
    for build in builds:
        if build.name == wanted:
            return _startable(build)
    if _VERSION.fullmatch(wanted):
        matches = [build for build in builds if is_version(wanted, build.release)]
        versioned = [build for build in matches if build.release is not None]
        if matches:
            return _startable((versioned or matches)[0])
    raise PlanError(
        f"no engine build of {node.node} is {wanted!r}: it has {_listed(builds)}. Add one to tokenpeak_engines of the "
        "inventory, or ask for one of these"
    )


def known_flags_of(build: EngineBuild, version: str | None) -> Mapping[str, FlagFacts] | None:
    """The flags that a build's own help lists; None where the table of releases is to be asked."""
    return installed_flags(build.help, build.installed, version)


def takes(config: Config, nodes: Iterable[NodeFacts]) -> bool:
    """Whether any build of these nodes takes the config's flags."""
    for node in nodes:
        for build in filter(lambda build: is_vllm(build.release), node.builds):
            spoken = config.model_copy(update={"engine_version": build.release})
            try:
                command_line(spoken, build.release, known_flags_of(build, build.release))
            except PlanError:
                continue
            return True
    return False


def _startable(build: EngineBuild) -> EngineBuild:
    """The build; raises PlanError where it is known that no trial could be of it."""
    if build.problem is not None:
        raise PlanError(f"engine build {build.name!r}: {build.problem.rstrip('.')}")
    if not is_version(build.version, build.installed):
        raise PlanError(
            f"engine build {build.name!r} is to be vLLM {build.version}, and {build.installed} is installed: correct "
            "its version in the inventory, or its command"
        )
    return build


def _listed(builds: Sequence[EngineBuild]) -> str:
    return ", ".join(
        f"{build.name} ({'vLLM ' if is_vllm(build.release) else ''}{build.release or 'of unknown version'})"
        for build in builds
    )
