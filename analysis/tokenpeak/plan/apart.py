"""Nodes of equal boards that are planned apart, and what differs between their kinds."""

from collections.abc import Mapping, Sequence

from tokenpeak.records import HardwareKey, NodeFacts

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
    found = {}
    for label, nodes in groups.items():
        others = [(other, same[0]) for other, same in groups.items() if other != label]
        alike = [(other, node) for other, node in others if node.hardware == nodes[0].hardware]
        found[label] = tuple(
            f"apart from {', '.join(each.node for each in groups[other])}: {differences(nodes[0], node)}"
            for other, node in alike
        )
    return found


def differences(ours: NodeFacts, theirs: NodeFacts) -> str:
    """What makes two nodes of equal boards two kinds of hardware, ours first."""
    here, there = ours.hardware_key, theirs.hardware_key
    found = [
        f"{what} {_words(name, here, there)} here, {_words(name, there, here)} there"
        for name, what in _WHAT.items()
        if getattr(here, name) != getattr(there, name)
    ]
    if ours.model != theirs.model:
        found.append("another model")
    return "; ".join(found)


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
