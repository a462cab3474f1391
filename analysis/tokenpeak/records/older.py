"""Settings that specs of older archives have and no sweep has any more: left out where an archive is read."""

from collections.abc import Mapping

_GONE = {
    "spec": ("node_screening",),
    "search": ("prefer", "stop_hopeless"),
    "energy": ("hours", "kg_co2_per_gpu_hour", "kg_co2_per_kwh_market"),
    "endpoint": ("api_key_file",),
    "dataset": ("format", "min_input_tokens", "min_output_tokens", "max_output_tokens"),
    "level": (
        *("cooldown_s", "start_rate_per_s", "tolerance", "confidence"),
        *("screening_requests", "confirming_requests", "max_probes"),
    ),
}


def _without(part: str, raw: object) -> object:
    if not isinstance(raw, Mapping):
        return raw
    return {name: value for name, value in raw.items() if name not in _GONE[part]}


def workload_of(raw: object) -> object:
    """A recorded workload as today's."""
    return _without("dataset", raw) if isinstance(raw, Mapping) and raw.get("kind") == "dataset" else raw


def level_of(raw: object) -> object:
    """A recorded load level as today's."""
    return _without("level", raw)


def spec_of(raw: object) -> object:
    """A recorded spec as today's; no comparison of answers was `null`."""
    spec = _without("spec", raw)
    if not isinstance(spec, dict):
        return spec
    if spec.get("quality", False) is None:
        spec["quality"] = False
    spec |= {part: _without(part, spec[part]) for part in ("search", "energy", "endpoint") if part in spec}
    if isinstance(energy := spec.get("energy"), dict) and "cited" in energy:
        energy["cited"] = _without("energy", energy["cited"])
    if isinstance(plans := spec.get("workloads"), list | tuple):
        spec["workloads"] = [_plan(plan) for plan in plans]
    return spec


def _plan(raw: object) -> object:
    if not isinstance(raw, Mapping) or not isinstance(levels := raw.get("levels"), list | tuple):
        return raw
    return {**raw, "workload": workload_of(raw.get("workload")), "levels": [level_of(level) for level in levels]}
