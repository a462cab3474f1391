"""Traffic of production: each node's own counts, read for a while by a playbook. Nothing is stopped or sent.

A sweep with a workload from production observes before its first trial. From then on that workload is a trace in the
sweep's own archive, so that a resumed sweep replays the same.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpeak.errors import NodeError, StoppedError, WorkloadError
from tokenpeak.files import write_atomically
from tokenpeak.loadgen.traffic.traffic import Traffic, as_text, traffic_of
from tokenpeak.node.protocol.answers import ObserveAnswer
from tokenpeak.node.protocol.requests import ObserveRequest, as_json
from tokenpeak.records import NodeFacts
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import ProductionWorkload, TraceWorkload
from tokenpeak.store.archive import TRAFFIC_FILE
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.probe import Probe
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.trial.request import write_private

PERIOD_S = 0.1
READINGS = 18_000
"""Over a long time readings are further apart."""


@dataclass(frozen=True, kw_only=True)
class ObservedTraffic:
    """What was seen on each node, and why nothing was on each other one."""

    nodes: dict[str, Traffic]
    problems: dict[str, str]

    @property
    def busiest(self) -> Traffic | None:
        """The traffic of the node with most requests; None where nothing was seen anywhere."""
        return max(self.nodes.values(), key=lambda traffic: traffic.figures.requests, default=None)


def traffic_for(
    spec: SweepSpec, inventory: Inventory, probed: Probe, progress: ProgressDisplay, interrupt: Interrupt
) -> Traffic | None:
    """What a sweep's workloads from production are made of; None for a sweep without one.

    Raises NodeError where no node shows any traffic, StoppedError when the user ends it.
    """
    asked = [plan.workload for plan in spec.workloads if isinstance(plan.workload, ProductionWorkload)]
    if not asked:
        return None
    over_s = max(workload.over for workload in asked)
    facts = [ready.facts for ready in probed.usable.values()]
    progress.say(f"Workload {asked[0].name}: reading production's metrics for {over_s:g} s; it goes on serving")
    seen = observe_traffic(inventory, facts, over_s, cancelled=interrupt.gentle)
    if interrupt.gentle():
        raise StoppedError("Ended while production was observed; it was not touched.")
    traffic = seen.busiest
    if traffic is None:
        reasons = "\n  ".join(f"{node}: {problem}" for node, problem in seen.problems.items())
        raise NodeError(
            f"No traffic of production could be read for workload {asked[0].name}; nothing was stopped.\n  {reasons}"
        )
    progress.say(f"Traffic of {traffic.words()}")
    return traffic


def with_traffic(spec: SweepSpec, traffic: Traffic, folder: Path) -> SweepSpec:
    """Write the traffic into an archive's folder; the spec with traces of it in place of workloads from production."""
    path = folder / TRAFFIC_FILE
    write_atomically(path, as_text(traffic))
    return replayed(spec, str(path), traffic.figures.prefix_hit_rate)


def replayed(spec: SweepSpec, path: str, hit_rate: float | None) -> SweepSpec:
    """The spec with its workloads from production as traces of that file."""
    plans = tuple(
        plan.model_copy(update={"workload": plan.workload.as_trace(path, hit_rate)})
        if isinstance(plan.workload, ProductionWorkload)
        else plan
        for plan in spec.workloads
    )
    return spec.model_copy(update={"workloads": plans})


def relocated(spec: SweepSpec, folder: Path) -> SweepSpec:
    """The spec with its own archive's traffic where that lies now: an archive may have been moved."""
    path = folder / TRAFFIC_FILE
    plans = tuple(
        plan.model_copy(update={"workload": plan.workload.model_copy(update={"path": str(path)})})
        if isinstance(plan.workload, TraceWorkload) and Path(plan.workload.path).name == TRAFFIC_FILE and path.is_file()
        else plan
        for plan in spec.workloads
    )
    return spec.model_copy(update={"workloads": plans})


def observe_traffic(
    inventory: Inventory, facts: Sequence[NodeFacts], seconds: float, *, cancelled: Callable[[], bool]
) -> ObservedTraffic:
    """Observe the nodes that were probed, all at once."""
    serving = {each.node: each for each in facts if each.production is not None and each.production.running}
    problems = {
        each.node: "no production serves there, so that it has no traffic" for each in facts if each.node not in serving
    }
    if not serving:
        return ObservedTraffic(nodes={}, problems=problems)
    request = ObserveRequest(seconds=seconds, period_s=max(PERIOD_S, seconds / READINGS), traffic=True)
    nodes: dict[str, Traffic] = {}
    with tempfile.TemporaryDirectory(prefix="tokenpeak-observe-") as folder:
        path = Path(folder) / "request.json"
        write_private(path, json.dumps(as_json(request)))
        results = run_playbook(
            "observe.yml",
            inventory,
            nodes=list(serving),
            extravars={"tokenpeak_apply_request": str(path)},
            cancelled=cancelled,
        ).nodes
    for name, result in results.items():
        answer = result.answer(ObserveAnswer)
        if answer is None or answer.unusable:
            refusal = result.answers.get("observe")
            error = refusal.error.text if refusal is not None and refusal.error is not None else None
            problems[name] = error or result.unreachable or result.failure or "it was not observed to the end"
            continue
        try:
            production = serving[name].production
            nodes[name] = traffic_of(
                answer.readings, answer.histograms, node=name, model=production.model if production else None
            )
        except WorkloadError as reason:
            problems[name] = " ".join(filter(None, (str(reason), answer.ended)))
    return ObservedTraffic(nodes=nodes, problems=problems)
