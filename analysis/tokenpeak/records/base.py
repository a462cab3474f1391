"""The base of all records, a distribution of a figure, and specs of older archives as today's.

Settings that no sweep has any more are left out where an archive is read.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tokenpeak.paths import NAME

FORMAT_VERSION = 3
PathName = Annotated[str, Field(pattern=NAME)]
_GONE = {
    "spec": ("node_screening",),
    "search": ("prefer", "stop_hopeless"),
    "energy": ("hours", "kg_co2_per_gpu_hour", "kg_co2_per_kwh_market"),
    "endpoint": ("api_key_file", "verify_tls"),
    "dataset": ("format", "min_input_tokens", "min_output_tokens", "max_output_tokens"),
    "level": (
        *("cooldown_s", "start_rate_per_s", "tolerance", "confidence"),
        *("screening_requests", "confirming_requests", "max_probes"),
    ),
}


class Record(BaseModel):
    """A frozen part of the raw format that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Distribution(Record):
    """A metric over `n` requests (or gaps, or ticks); all None when n is 0. An import may not know n: None."""

    n: int | None
    mean: float | None = None
    std: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


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
