"""Simulated landscapes: the predictor's own physics, bent by effects that it does not know, drawn for each seed.

Prior and truth share the physics but not the effects: each axis, each pair of axes and each config adds something of
its own, and the predictor's scale is off. Launches differ by noise, and some regions of the space crash.
"""

import itertools
import math
from functools import lru_cache
from pathlib import Path

import numpy as np

from tokenpeak.plan.matrix import build_plan
from tokenpeak.records import Gpu, NodeFacts, Plan
from tokenpeak.search.replay import Landscape
from tokenpeak.search.space import Axis, space_of
from tokenpeak.spec.sweep import parse_spec

V100 = "V100"
HARDWARE = ("V100", "A100", "H100", "H200")
MODEL_32B, MODEL_70B = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "meta-llama/Llama-3.1-70B-Instruct"
BATCHES: list[object] = [32, 64, 128, 256]
_SETUPS: dict[str, tuple[str, str, int, int, str, str, dict[str, list[object]]]] = {
    "V100": ("Tesla V100-PCIE-32GB", "7.0", 32, 4, "0.8.5", MODEL_32B, {
        "gpu_memory_utilization": [0.80, 0.85, 0.90, 0.95],
        "max_num_seqs": [32, 64, 128],
        "max_model_len": [8192, 16384, 32768],
    }),
    "A100": ("NVIDIA A100-SXM4-80GB", "8.0", 80, 1, "0.32.0", "meta-llama/Llama-3.1-8B-Instruct", {
        "max_num_seqs": [16, *BATCHES],
        "max_num_batched_tokens": [512, 1024, 2048, 4096],
        "enforce_eager": [True, False],
    }),
    "H100": ("NVIDIA H100 80GB HBM3", "9.0", 80, 4, "0.32.0", MODEL_70B, {
        "max_num_seqs": BATCHES,
        "max_num_batched_tokens": [1024, 2048, 4096, 8192],
        "kv_cache_dtype": ["auto", "fp8"],
        "enforce_eager": [True, False],
    }),
    "H200": ("NVIDIA H200", "9.0", 141, 2, "0.32.0", MODEL_70B, {
        "max_num_seqs": BATCHES,
        "max_num_batched_tokens": [2048, 4096, 8192, 16384],
        "gpu_memory_utilization": [0.85, 0.92],
        "enable_prefix_caching": [True, False],
    }),
}  # fmt: skip


@lru_cache
def plan_of(hardware: str) -> Plan:
    """The plan of a sweep over at least 36 configs on this hardware, with predictions."""
    gpu, capability, vram_gib, count, version, model, axes = _SETUPS[hardware]
    flags = {"dtype": "float16" if hardware == V100 else "bfloat16", "tensor_parallel_size": count}
    spec = parse_spec(
        {
            "model": {"name": model},
            "axes": axes,
            "fixed": {"name": "fixed", "flags": flags},
            "workloads": [
                {
                    "workload": {"kind": "synthetic", "name": "w", "input_tokens": 1024, "output_tokens": 256},
                    "levels": [{"concurrency": 64, "requests": 400}],
                }
            ],
        },
        Path("landscape.yml"),
    )
    gpus = tuple(
        Gpu(index=index, name=gpu, vram_bytes=vram_gib * 2**30, compute_capability=capability) for index in range(count)
    )
    return build_plan(spec, [NodeFacts(node="node", source="declared", gpus=gpus, engine_version=version)])[0]


def landscape(
    hardware: str, seed: int, *, effect: float = 0.03, noise: float = 0.005, crash: float = 0.0, launches: int = 12
) -> Landscape:
    """The landscape of this seed.

    `effect` is the size (log) of what an axis adds to the prediction, a third of it for pairs, a tenth for each config;
    `noise` is between launches; `crash` is the share of configs that fail.
    """
    plan = plan_of(hardware)
    space = space_of(plan)
    generator = np.random.default_rng([seed, HARDWARE.index(hardware)])
    predicted = np.where(np.isnan(space.expected), np.nanmin(space.expected), space.expected)
    level = generator.uniform(0.7, 1.2) * np.log(predicted)
    for place, axis in enumerate(space.axes):
        level = level + effect * _shape(axis, generator)[space.levels[:, place]]
    for one, other in itertools.combinations(range(len(space.axes)), 2):
        both = np.outer(_shape(space.axes[one], generator), _shape(space.axes[other], generator))
        level = level + effect / 3 * both[space.levels[:, one], space.levels[:, other]]
    level = level + generator.normal(0, effect / 10, space.size)
    crashes = _crashing(space.axes, space.levels, crash, generator)
    launches_of: dict[str, tuple[float | None, ...]] = {}
    for point, config_id in enumerate(space.configs):
        values = np.exp(level[point] + generator.normal(0, noise, launches))
        launches_of[config_id] = (None,) * launches if crashes[point] else tuple(float(value) for value in values)
    return Landscape(name=f"{hardware} {seed}", plan=plan, metric="output_tok_per_s", launches=launches_of)


def _shape(axis: Axis, generator: np.random.Generator) -> np.ndarray:
    """What an axis adds: a slope and a bend along ordered values, anything for others; about unit size."""
    count = len(axis.values)
    if axis.positions is None:
        return generator.normal(0, 1, count)
    along = 2 * np.array(axis.positions) - 1
    return generator.normal() * along + generator.normal() * 0.6 * (along**2 - 0.4) + generator.normal(0, 0.25, count)


def _crashing(axes: tuple[Axis, ...], levels: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
    """The configs that ask for most, by a weighing of the axes that the search does not know."""
    if share <= 0:
        return np.zeros(len(levels), dtype=bool)
    heights = [axis.positions or tuple(range(len(axis.values))) for axis in axes]
    ask = np.array([[heights[place][value] for place, value in enumerate(row)] for row in levels])
    weight = np.abs(generator.normal(size=len(axes)))
    demand = ask @ weight
    return demand >= np.quantile(demand, 1 - share) - math.ulp(1.0)
