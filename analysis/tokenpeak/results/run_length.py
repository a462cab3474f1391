"""Length that a run needs: to say whether the engine holds a fixed rate, and for an energy figure. Pure.

Three things need requests: the steady-state test, which separates an overload of RUN_MARGIN from a steady state; the
SLO's percentiles, each of which rests on as many as would assure it were all within the limit; and the time that the
engine takes to fill, for which its first requests say nothing. An energy figure needs a run that is long for its
boards' sensor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from tokenpeak.node.probe.sampler import PERIOD_S, WHOLE_EVERY
from tokenpeak.predict.demand import Demand, demands
from tokenpeak.predict.hardware import gpu_facts
from tokenpeak.predict.memory_plan import MemoryPlan, plan_memory
from tokenpeak.predict.model import ModelFacts
from tokenpeak.predict.prediction import steady_state
from tokenpeak.ranking.slo_confidence import requests_needed as requests_to_assure
from tokenpeak.ranking.slo_confidence import share
from tokenpeak.records import NodeFacts, Plan
from tokenpeak.results.energy import WIDEST
from tokenpeak.results.energy_estimate import LASTS_S, MOST, EnergyEstimate, missed_j2_per_s
from tokenpeak.results.power_sensor import PowerSensor, boards_sensor
from tokenpeak.results.steady_state import RUN_MARGIN, requests_needed
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import ClosedLoad, OpenLoad

SERVICE_VARIANCE = 1.0
"""Squared variation of service times: that of an exponential one, more than engines show whose answers have one
length."""


@dataclass(frozen=True, kw_only=True)
class ShortRun:
    """A level whose run would be too short, and the requests that would do."""

    workload: str
    level: OpenLoad
    requests: int
    needed: int

    @property
    def words(self) -> str:
        """The hint, with what to write."""
        seconds = self.needed / self.level.rate_per_s
        return (
            f"workload {self.workload!r}, level {self.level.label}: {self.requests} requests are too few to show an "
            f"overload of {RUN_MARGIN:.0%}, or to assure the SLO. "
            f"Set requests: {self.needed} ({seconds:.0f} s), or use max_rate_under"
        )


def open_loop_requests(level: OpenLoad, slo: Slo) -> int:
    """The measured and warm-up requests that a run at this rate needs."""
    spread = {"constant": 0.0, "poisson": 1.0, "gamma": 1 / level.burstiness}[level.arrivals]
    state = requests_needed(RUN_MARGIN, spread + SERVICE_VARIANCE)
    percentiles = [requests_to_assure(share(percentile)) for _, percentile, _ in slo.limits()]
    return max([state + filling_requests(level, slo), *percentiles])


def filling_requests(level: OpenLoad, slo: Slo) -> int:
    """Requests that come while the first one is served, where the SLO limits how long that takes."""
    limits = [limit for metric, _, limit in slo.limits() if metric in ("ttft_s", "latency_s")]
    return int(level.rate_per_s * max(limits, default=0.0))


def short_runs(spec: SweepSpec) -> list[ShortRun]:
    """The levels at a fixed rate whose runs would be too short, in the spec's order."""
    found = []
    for plan in spec.workloads:
        for level in plan.levels:
            if not isinstance(level, OpenLoad):
                continue
            given = level.requests if level.requests is not None else int((level.duration_s or 0) * level.rate_per_s)
            needed = open_loop_requests(level, spec.slo)
            if given + level.warmup_requests < needed:
                found.append(ShortRun(workload=plan.workload.name, level=level, requests=given, needed=needed))
    return found


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
