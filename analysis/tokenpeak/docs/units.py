"""Units of fields, read off their names: `duration_s` is in seconds."""

_WHOLE = {
    "burstiness": "1 is Poisson",
    "concurrency": "requests",
    "confidence": "share",
    "cooldown_s": "s",
    "cpus": "cores",
    "expected_prefix_hit_rate": "share",
    "gpu_hours": "GPU-hours",
    "kg_co2_per_gpu_hour": "kg/GPU-hour",
    "max_concurrency": "requests",
    "max_downtime": "s, or a span",
    "max_probes": "runs",
    "price_per_node_hour": "currency/h",
    "pue": "kWh/kWh",
    "starters": "beginnings",
    "time": "s, or a span",
    "tolerance": "share",
    "turns": "requests",
}
_ENDINGS = {
    "_per_s": "1/s",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_tokens": "tokens",
    "_w": "W",
    "_requests": "requests",
    "requests": "requests",
    "kg_co2_per_kwh": "kg/kWh",
    "kg_co2_per_kwh_market": "kg/kWh",
    "_l_per_kwh": "L/kWh",
    "price_per_kwh": "currency/kWh",
}


def unit_of(name: str) -> str:
    """The unit of a field; empty for one without."""
    if name in _WHOLE:
        return _WHOLE[name]
    return next((unit for ending, unit in _ENDINGS.items() if name.endswith(ending)), "")
