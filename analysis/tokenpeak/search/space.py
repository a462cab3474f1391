"""Search space: a plan's configs as points, one coordinate for each axis, and equivalence classes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.metrics import PER_GPU, metric_of
from tokenpeak.records import Config, Plan, Prediction

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ABSENT = "(absent)"
"""The value of an axis that a config does not have: a conditional axis, or a config outside the grid."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis with its values, and where each lies between 0 and 1; `positions` is None when they have no order."""

    name: str
    values: tuple[str, ...]
    positions: tuple[float, ...] | None


@dataclass(frozen=True, kw_only=True)
class Space:
    """The points to search among, one for each feasible config.

    `levels[point, axis]` is the index of the axis's value; `head[point]` is the first point of its class, whose
    configs cannot differ under the workload if the plan is right. `expected` is what the predictor says of each
    point's objective on a scale of its own, more being better; NaN without a prediction.
    """

    axes: tuple[Axis, ...]
    levels: Integers
    head: Integers
    configs: tuple[str, ...]
    names: tuple[str, ...]
    point_of: Mapping[str, int]
    expected: Floats

    @property
    def size(self) -> int:
        """The number of points."""
        return len(self.configs)


def space_of(plan: Plan, *, metric: str = "output_tok_per_s") -> Space:
    """The space of a plan's feasible configs, in the plan's order."""
    configs = [planned.config for planned in plan.feasible]
    axis_names = list(dict.fromkeys(axis for config in configs for axis in config.choices))
    rows = [[_value(config, axis) for axis in axis_names] for config in configs]
    axes = tuple(axis_of(name, [row[place] for row in rows]) for place, name in enumerate(axis_names))
    levels = [[axis.values.index(value) for axis, value in zip(axes, row, strict=True)] for row in rows]
    heads: dict[str, int] = {}
    for point, planned in enumerate(plan.feasible):
        heads.setdefault(planned.config_class, point)
    return Space(
        axes=axes,
        levels=np.array(levels, dtype=np.int64).reshape(len(rows), len(axes)),
        head=np.array([heads[planned.config_class] for planned in plan.feasible], dtype=np.int64),
        configs=tuple(config.config_id for config in configs),
        names=tuple(config.name for config in configs),
        point_of={config.config_id: point for point, config in enumerate(configs)},
        expected=np.array(
            [_expected(planned.prediction, metric, planned.config.gpus) for planned in plan.feasible], dtype=np.float64
        ),
    )


def _value(config: Config, axis: str) -> str:
    """The config's value on an axis: its choice, else the flag of that name, else absent."""
    if axis in config.choices:
        return config.choices[axis]
    flag = config.flags.get(axis)
    if flag is None:
        return ABSENT
    return str(flag).lower() if isinstance(flag, bool) else str(flag)


def axis_of(name: str, choices: Sequence[str]) -> Axis:
    """The axis over the values found; numbers are placed between 0 and 1, half by rank and half by logarithm."""
    values = tuple(dict.fromkeys(choices))
    numbers = [_number(value) for value in values if value != ABSENT]
    if len(values) < 3 or any(number is None for number in numbers):
        return Axis(name=name, values=values, positions=None)
    ascending = sorted(number for number in numbers if number is not None)
    low, high = ascending[0], ascending[-1]
    placed = []
    for value in values:
        number = _number(value)
        if number is None:
            # An absent value is as far from all others as they are from each other.
            placed.append(2.0)
            continue
        rank = ascending.index(number) / (len(ascending) - 1)
        scale = (math.log(number / low) / math.log(high / low)) if low > 0 else (number - low) / (high - low)
        placed.append((rank + scale) / 2)
    return Axis(name=name, values=values, positions=tuple(placed))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _expected(prediction: Prediction | None, metric: str, gpus: int | None) -> float:
    """What the prediction says of the objective, so that more is better; NaN when it says nothing."""
    entry = metric_of(metric)
    if prediction is None or entry is None:
        return math.nan
    name = entry[0].name
    if name in ("ttft_s", "tpot_s"):
        seconds = prediction.ttft_s if name == "ttft_s" else prediction.tpot_s
        return 1 / seconds if seconds else math.nan
    if name in ("itl_s", "request_output_tok_per_s"):
        return 1 / prediction.tpot_s if prediction.tpot_s else math.nan
    if name == "power_w":
        return math.nan
    # Throughputs of all kinds, and energy and cost per token, which fall as throughput rises.
    return (prediction.output_tok_per_s or math.nan) / (gpus if name in PER_GPU.values() and gpus else 1)


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
