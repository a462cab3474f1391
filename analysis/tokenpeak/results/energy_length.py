"""Length that a run needs for an energy figure, by its boards' sensor and before it is made. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from tokenpeak.node.telemetry import PERIOD_S, WHOLE_EVERY
from tokenpeak.predict.demand import Demand, demands
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.memory_plan import MemoryPlan, plan_memory
from tokenpeak.predict.model import ModelFacts
from tokenpeak.predict.prediction import steady_state
from tokenpeak.records import NodeFacts, Plan
from tokenpeak.results.energy import WIDEST
from tokenpeak.results.energy_estimate import EnergyEstimate
from tokenpeak.results.power_changes import LASTS_S, MOST, missed_j2_per_s
from tokenpeak.results.power_sensor import PowerSensor, boards_sensor
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import ClosedLoad, OpenLoad

IDLE_BEFORE = 0.2
"""Of a run's power: what a board draws just before it, with the model loaded and nothing to do."""


@dataclass(frozen=True, kw_only=True)
class ShortEnergyRun:
    """A level whose shortest run would be too short for an energy figure, and the length that would do."""

    workload: str
    level: ClosedLoad | OpenLoad
    run_s: float
    """Of the config with the fastest prediction."""
    needed_s: float

    @property
    def words(self) -> str:
        """The hint, with what to write."""
        asked = f"duration_s: {ceil(self.needed_s)}"
        if self.level.requests is not None:
            requests = ceil(self.level.requests * ceil(self.needed_s) / self.run_s)
            asked = f"requests: {requests} ({ceil(self.needed_s)} s)"
        return (
            f"workload {self.workload!r}, level {self.level.label}: a run of {self.run_s:.1f} s is too short for an "
            f"energy figure within ±{WIDEST:.0%}. Set {asked}"
        )


def figure_needs_s(sensor: PowerSensor, samples_apart_s: float) -> float:
    """How long a run must be for an energy within WIDEST by a counter, with a load that changes as much as any."""
    variance_w2 = MOST**2
    # Both ends, of a power of 1 W: the counter's age, the step at an unseen moment between two samples, the changes.
    aged = sensor.counter_update_s**2 / 12
    step = ((1 - IDLE_BEFORE) * samples_apart_s) ** 2 / 48
    ends = 2 * (aged + step + variance_w2 * samples_apart_s**2 / 24)
    per_s = missed_j2_per_s(variance_w2, LASTS_S, sensor.counter_update_s, sensor.attended)
    return EnergyEstimate(energy_j=1, ends_j2=ends, per_s_j2=per_s, duration_s=1).needed_s(WIDEST)


def node_needs_s(node: NodeFacts) -> float | None:
    """How long a run on this node's boards must be; None where no board is of a known kind."""
    if not any(gpu_facts(gpu.name) for gpu in node.gpus):
        return None
    is_amd = any(gpu.name.startswith("AMD") for gpu in node.gpus)
    return figure_needs_s(boards_sensor(node.gpus), PERIOD_S * WHOLE_EVERY if is_amd else PERIOD_S)


def short_energy_runs(
    spec: SweepSpec, plans: Sequence[tuple[Plan, NodeFacts]], models: Mapping[str, ModelFacts | None]
) -> list[ShortEnergyRun]:
    """The levels with a run too short for an energy figure on one of the nodes, in the spec's order.

    A plan comes with a node of its kind. Where nothing predicts how long a run takes, nothing is said.
    """
    needs = [(plan, node, needed_s) for plan, node in plans if (needed_s := node_needs_s(node)) is not None]
    memories = [
        (memory, needed_s)
        for plan, node, needed_s in needs
        for one in plan.feasible
        if (memory := plan_memory(one.config, node, models.get(one.config.model.name), one.config.engine_version))
        and memory.fits
    ]
    found = []
    levels = [(each.workload.name, level) for each in spec.workloads for level in each.levels]
    for (workload, level), asked in zip(levels, demands(spec.workloads), strict=True):
        if not isinstance(level, ClosedLoad | OpenLoad):
            continue
        runs = [(_measured_s(asked, memory), needed_s) for memory, needed_s in memories]
        run_s, needed_s = min(runs, key=lambda run: run[0] / run[1], default=(1.0, 1.0))
        if run_s < needed_s:
            found.append(ShortEnergyRun(workload=workload, level=level, run_s=run_s, needed_s=needed_s))
    return found


def _measured_s(asked: Demand, memory: MemoryPlan) -> float:
    """How long the measured requests take, at the predicted speed."""
    if asked.duration_s is not None:
        return asked.duration_s
    requests = asked.requests or 1
    if asked.rate_per_s is not None:
        return requests / asked.rate_per_s
    return requests * asked.output_tokens / steady_state(memory, asked).output_tok_per_s
