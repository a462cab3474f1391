"""Trends: the usual effect of flags on throughput, the prior without a prediction.

Each is a slope in log objective over the whole range of an axis, small enough for a few trials to overrule.
"""

import numpy as np

from tokenpeak.search.space import Axis, Floats, Space

RISING = {
    "max_num_seqs": 0.15,
    "max_num_batched_tokens": 0.08,
    "gpu_memory_utilization": 0.03,
    "tensor_parallel_size": 0.10,
    "kv_cache_memory_bytes": 0.03,
    "max_concurrency": 0.05,
}
"""Axis → gain from its lowest to its highest number."""

SWITCHES = {
    "enforce_eager": -0.10,
    "enable_chunked_prefill": 0.04,
    "enable_prefix_caching": 0.04,
    "async_scheduling": 0.05,
    "disable_cascade_attn": -0.01,
    "disable_custom_all_reduce": -0.03,
}
"""Axis → gain of true over false."""


def trend(space: Space) -> Floats:
    """The usual gain (log throughput) of each point over the middle of its axes."""
    gain = np.zeros(space.size)
    for place, axis in enumerate(space.axes):
        levels = np.array(_gains(axis))
        gain += (levels - levels.mean())[space.levels[:, place]]
    return gain


def _gains(axis: Axis) -> list[float]:
    """The gain of each of the axis's values."""
    name = axis.name.strip("-").replace("-", "_").lower()
    if name in SWITCHES:
        return [SWITCHES[name] if value in ("true", "True", "1", "on") else 0.0 for value in axis.values]
    if name not in RISING:
        return [0.0] * len(axis.values)
    if axis.positions is not None:
        return [RISING[name] * min(position, 1.0) for position in axis.positions]
    try:
        numbers = [float(value) for value in axis.values]
    except ValueError:
        return [0.0] * len(axis.values)
    top, bottom = max(numbers), min(numbers)
    return [RISING[name] * (number - bottom) / (top - bottom) if top > bottom else 0.0 for number in numbers]
