"""What a sweep will cost: hours, GPU-hours, production's downtime and energy, before anything is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenpeak.plan.demand import Demand, demands
from tokenpeak.plan.fit import Fit, device_of, fit
from tokenpeak.plan.highest import as_foreseen, launches_to_find
from tokenpeak.plan.model import ModelFacts
from tokenpeak.plan.predict import steady_state
from tokenpeak.plan.spec import SearchSpec, SweepSpec
from tokenpeak.records import NodeFacts, Plan

ORCHESTRATION_S = 8.0
"""TokenPeak's own share of a trial, at most."""

ENGINE_BASE_START_S, CPU_ENGINE_START_S, SIMULATED_START_S = 25.0, 28.0, 4.0
"""Imports, workers and the first request of an engine, before weights and graphs. [CPU: measured with 0.32, eager.]"""

WEIGHTS_BYTES_PER_S = 1.5e9
"""Reading a checkpoint from local NVMe or a warm page cache into the GPUs of a node."""

COMPILE_S_PER_LAYER, GRAPHS_S = 0.5, 15.0
"""Compiling with a warm cache of kernels, and capturing graphs; neither when eager."""

PRODUCTION_START_S = 60.0
"""Production's own return until it answers, when its start is not known."""

UNKNOWN_TOK_PER_S_PER_REQUEST = 20.0
"""The speed of one request where nothing can be predicted."""

BUSY_POWER = 0.75
"""Mean power of a GPU through a trial as a share of its TDP; start-up and gaps included."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What carrying out a plan takes."""

    trials: int
    duration_s: float
    """Wall-clock, with the nodes of one kind in parallel."""
    gpu_hours: float
    production_downtime_s: float
    """Summed over nodes."""
    energy_kwh: float | None
    """Of the devices, without what cools them; None when their TDP is unknown."""


def load_s(spec: SweepSpec, fitted: Fit | None) -> float:
    """The runs of one trial, one after the other."""
    return sum(_run_s(demand, fitted, spec.deadlines.run_s) for demand in demands(spec.workloads))


def _run_s(demand: Demand, fitted: Fit | None, deadline_s: float) -> float:
    if demand.duration_s is not None:
        return min(deadline_s, demand.duration_s)
    requests = (demand.requests or 1) + demand.warmup_requests
    if fitted is not None and fitted.fits:
        state = steady_state(fitted, demand)
        per_s = state.output_tok_per_s / max(1.0, demand.output_tokens)
        tail = state.latency_s(demand.output_tokens)
    else:
        tail = demand.output_tokens / UNKNOWN_TOK_PER_S_PER_REQUEST
        per_s = demand.rate_per_s or (demand.concurrency or 1) / tail
    arrival = requests / demand.rate_per_s if demand.rate_per_s else 0.0
    return min(deadline_s, max(arrival, requests / per_s) + (tail if demand.rate_per_s else 0.0))


def start_s(node: NodeFacts, fitted: Fit | None) -> float:
    """From exec to the first real completion."""
    if node.simulated:
        return SIMULATED_START_S
    if not node.gpus:
        return CPU_ENGINE_START_S + (0.0 if fitted is None or fitted.deployment.eager else 20.0)
    if fitted is None:
        return 120.0
    deployment = fitted.deployment
    devices = deployment.tensor_parallel * deployment.pipeline_parallel
    weights = deployment.weight_bytes_per_gpu * devices / WEIGHTS_BYTES_PER_S
    layers = 0.0 if not deployment.v1 else COMPILE_S_PER_LAYER * deployment.model.layers
    return ENGINE_BASE_START_S + weights + (0.0 if deployment.eager else GRAPHS_S + layers)


def _trials(search: SearchSpec, plan: Plan) -> int:
    """How many launches the search makes if no budget of time ends it: anchors and finalists included.

    An adaptive search without a number stops by itself; one launch of each class is the most it is thought to need.
    Finding an axis's highest value is part of the number, where one is given; so are a grid's anchors, but not those
    of an adaptive search, which makes one fewer where it launches the anchor again for another reason.
    """
    finding, plan = launches_to_find(plan), as_foreseen(plan)
    if search.strategy == "adaptive":
        heads = len({planned.config_class for planned in plan.feasible})
        count = min(search.trials or heads + finding, len(plan.feasible) + finding)
        has_anchor = any(planned.config.name in search.baseline for planned in plan.feasible)
        count += (count - 1) // search.anchor_every if search.anchor_every and has_anchor else 0
    else:
        count = len(plan.feasible) * search.replicates
        count += _grid_anchors(count, search.anchor_every) + finding
        count = min(search.trials, count) if search.trials is not None else count
    asked = search.finalists if search.finalists is not None else (3 if search.strategy == "adaptive" else 0)
    finalists = min(asked, count, len(plan.feasible))
    # Each finalist is launched anew in every block, and the choice once more; one alone needs no blocks.
    return count + (finalists * max(3, search.replicates) + 1 if finalists > 1 else finalists)


def _grid_anchors(launches: int, every: int | None) -> int:
    """How often a grid launches its anchor between so many others: as each `every`-th launch after the first."""
    if every is None:
        return 0
    return max(0, launches - 1 if every == 1 else (launches - 2) // (every - 1))


def estimate(
    spec: SweepSpec, plan: Plan, nodes: Sequence[NodeFacts], models: Mapping[str, ModelFacts | None]
) -> Estimate:
    """The cost of a plan on these nodes, which share its kind of hardware."""
    node = nodes[0]
    costs = []
    for planned in plan.feasible:
        config = planned.config
        fitted = fit(config, node, models.get(config.model.name), config.engine_version)
        costs.append((start_s(node, fitted), load_s(spec, fitted)))
    trials, devices = _trials(spec.search, plan), max(1, len(node.gpus))
    if not costs:
        return Estimate(trials=0, duration_s=0.0, gpu_hours=0.0, production_downtime_s=0.0, energy_kwh=0.0)
    mean = sum(start + load for start, load in costs) / len(costs)
    back = SIMULATED_START_S if node.simulated else (5.0 if not node.gpus else PRODUCTION_START_S)
    each = mean + ORCHESTRATION_S + (back if spec.restore == "per_trial" else 0.0)
    if spec.search.time is not None:
        trials = min(trials, int(spec.search.time * len(nodes) / each))
    if spec.search.gpu_hours is not None:
        trials = min(trials, int(spec.search.gpu_hours * 3600 / each / devices))
    trials = max(1, trials)
    returns = trials if spec.restore == "per_trial" else min(trials, len(nodes))
    busy_s = trials * (mean + ORCHESTRATION_S) + returns * back
    downtime_s = trials * (mean + ORCHESTRATION_S * 0.5) + returns * back
    device = device_of(node)
    return Estimate(
        trials=trials,
        duration_s=busy_s / min(len(nodes), trials),
        gpu_hours=busy_s * devices / 3600,
        production_downtime_s=downtime_s,
        energy_kwh=busy_s * devices * device.tdp_w * BUSY_POWER / 3.6e6 if device else None,
    )
