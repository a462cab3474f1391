"""Cost estimate of a sweep: hours, GPU-hours, downtime of production and energy, before anything is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenpeak.predict.demand import Demand, demands
from tokenpeak.predict.memory_plan import MemoryPlan, device_of, plan_memory
from tokenpeak.predict.model import ModelFacts
from tokenpeak.predict.prediction import slo_rate_per_s, steady_state
from tokenpeak.records import NodeFacts, Plan
from tokenpeak.spec.load import MaxRateLoad, search_time_s
from tokenpeak.spec.sweep import SweepSpec

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

QUALITY_S, SIMULATED_QUALITY_S = 30.0, 3.0
"""Measuring the answers of a launch: some ten thousand tokens of prefill, and the requests of a small batch."""

BUSY_POWER = 0.75
"""Mean power of a GPU through a trial as a share of its TDP; start-up and gaps included."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Cost of carrying out a plan."""

    trials: int
    duration_s: float
    """Wall-clock, with the nodes of one kind in parallel."""
    gpu_hours: float
    production_downtime_s: float
    """Summed over nodes."""
    energy_kwh: float | None
    """Of the devices, without what cools them; None when their TDP is unknown."""


def load_s(spec: SweepSpec, memory: MemoryPlan | None) -> float:
    """The runs of one trial, one after the other."""
    return sum(_run_s(demand, memory, spec.deadlines.run_s) for demand in demands(spec.workloads))


def _run_s(demand: Demand, memory: MemoryPlan | None, deadline_s: float) -> float:
    if demand.duration_s is not None:
        return min(deadline_s, demand.duration_s)
    if demand.search is not None:
        return min(deadline_s, _search_s(demand, demand.search, memory))
    requests = (demand.requests or 1) + demand.warmup_requests
    if memory is not None and memory.fits and demand.generates:
        state = steady_state(memory, demand)
        per_s = state.output_tok_per_s / max(1.0, demand.output_tokens)
        tail = state.latency_s(demand.output_tokens)
    else:
        tail = max(1.0, demand.output_tokens) / UNKNOWN_TOK_PER_S_PER_REQUEST
        per_s = demand.rate_per_s or (demand.concurrency or 1) / tail
    arrival = requests / demand.rate_per_s if demand.rate_per_s else 0.0
    return min(deadline_s, max(arrival, requests / per_s) + (tail if demand.rate_per_s else 0.0))


def _search_s(demand: Demand, level: MaxRateLoad, memory: MemoryPlan | None) -> float:
    """A search for the highest rate; all its time where none is predicted."""
    is_predicted = memory is not None and memory.fits and demand.generates
    rate = slo_rate_per_s(memory, demand, level.max_rate_under) if memory and is_predicted else None
    return search_time_s(rate, level.budget_s) if rate else level.budget_s


def start_s(node: NodeFacts, memory: MemoryPlan | None) -> float:
    """From exec to the first real completion."""
    if node.simulated:
        return SIMULATED_START_S
    if not node.gpus:
        return CPU_ENGINE_START_S + (0.0 if memory is None or memory.deployment.eager else 20.0)
    if memory is None:
        return 120.0
    deployment = memory.deployment
    devices = deployment.tensor_parallel * deployment.pipeline_parallel * deployment.expert_ranks
    weights = deployment.weight_bytes_per_gpu * devices / WEIGHTS_BYTES_PER_S
    layers = 0.0 if not deployment.v1 else COMPILE_S_PER_LAYER * deployment.model.layers
    return ENGINE_BASE_START_S + weights + (0.0 if deployment.eager else GRAPHS_S + layers)


@dataclass(frozen=True, kw_only=True)
class TrialTime:
    """The mean time of one trial of a plan, in parts."""

    own_s: float
    """The engine's start, its load, and TokenPeak's own share."""
    return_s: float
    """Production's return, which not every trial ends with."""
    each_s: float
    """As a budget of time counts it: the return included where each trial gives production back."""


def trial_time(
    spec: SweepSpec, plan: Plan, nodes: Sequence[NodeFacts], models: Mapping[str, ModelFacts | None]
) -> TrialTime | None:
    """How long a trial of this plan takes on these nodes, which share its kind of hardware; None of an empty plan."""
    node = nodes[0]
    costs = []
    for planned in plan.feasible:
        config = planned.config
        memory = plan_memory(config, node, models.get(config.model.name), config.engine_version)
        costs.append(start_s(node, memory) + load_s(spec, memory))
    if not costs:
        return None
    own_s = sum(costs) / len(costs) + ORCHESTRATION_S
    return_s = SIMULATED_START_S if node.simulated else (5.0 if not node.gpus else PRODUCTION_START_S)
    return TrialTime(own_s=own_s, return_s=return_s, each_s=own_s + (return_s if spec.restore == "per_trial" else 0.0))


def quality_s(spec: SweepSpec, plan: Plan, node: NodeFacts) -> float:
    """Measuring answers in the whole sweep: a launch of each group that answers alike, three of the reference."""
    groups = len({planned.answers for planned in plan.feasible})
    if spec.quality is False or groups < 2:
        return 0.0
    return (groups + 2) * (SIMULATED_QUALITY_S if node.simulated else QUALITY_S)


def estimate(
    spec: SweepSpec, time: TrialTime | None, nodes: Sequence[NodeFacts], *, trials: int, measuring_s: float = 0.0
) -> Estimate:
    """The cost of so many trials (`search.remaining` counts them) on these nodes, which share a kind of hardware.

    `measuring_s` is what measuring answers adds to them all.
    """
    if time is None or trials == 0:
        return Estimate(trials=0, duration_s=0.0, gpu_hours=0.0, production_downtime_s=0.0, energy_kwh=0.0)
    devices, device = max(1, len(nodes[0].gpus)), device_of(nodes[0])
    returns = trials if spec.restore == "per_trial" else min(trials, len(nodes))
    busy_s = trials * time.own_s + returns * time.return_s + measuring_s
    return Estimate(
        trials=trials,
        duration_s=busy_s / min(len(nodes), trials),
        gpu_hours=busy_s * devices / 3600,
        production_downtime_s=busy_s - trials * ORCHESTRATION_S * 0.5,
        energy_kwh=busy_s * devices * device.tdp_w * BUSY_POWER / 3.6e6 if device else None,
    )
