"""Traffic of production: each node's own counts, read for a while by a playbook. Nothing is stopped or sent."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.traffic.traffic import Traffic, traffic_of
from tokenpeak.node.protocol.answers import ObserveAnswer
from tokenpeak.node.protocol.requests import ObserveRequest, as_json
from tokenpeak.records import NodeFacts
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.trial.request import write_private

PERIOD_S = 0.1
READINGS = 18_000
"""Over a long time readings are further apart."""


@dataclass(frozen=True, kw_only=True)
class ObservedTraffic:
    """What was seen on each node, and why nothing was on each other one."""

    nodes: dict[str, Traffic]
    problems: dict[str, str]


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
