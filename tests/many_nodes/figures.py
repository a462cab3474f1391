"""Figures of many nodes: what each command costs, per node and per trial, from samples of /proc and raw trial files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.many_nodes.watched import Cost, Sample

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CommandFigures:
    """A command on `nodes` nodes; load clients apart."""

    nodes: int
    command: str
    wall_s: float
    controller_cpu_s: float
    controller_peak_mib: float
    clients_cpu_s: float
    clients_peak_mib: float
    clients: int
    """Load clients at once."""
    processes: int
    """The controller's at once."""
    left: int
    """Processes that it leaves running."""


@dataclass(frozen=True, kw_only=True)
class SweepFigures:
    """What a sweep's trials cost its controller: from the first one's start to the last one's end."""

    nodes: int
    trials: int
    at_work: int
    """Nodes in a trial at once, by the trials' own times."""
    wall_s: float
    cpu_s: float
    cpu_s_per_trial: float
    whole_cpu_s_per_trial: float
    """All of the sweep's, its probe and its end too."""
    clients_cpu_s_per_trial: float
    idle_mib: float
    """Before the first trial: the controller's last sample."""
    peak_mib: float
    peak_mib_per_node_at_work: float
    clients_mib_per_client: float


def command_figures(nodes: int, command: str, cost: Cost) -> CommandFigures:
    """The figures of a command."""
    return CommandFigures(
        nodes=nodes,
        command=command,
        wall_s=cost.wall_s,
        controller_cpu_s=cost.controller_cpu_s,
        controller_peak_mib=max(each.controller_bytes for each in cost.samples) / MIB,
        clients_cpu_s=cost.clients_cpu_s,
        clients_peak_mib=max(each.clients_bytes for each in cost.samples) / MIB,
        clients=max(each.clients for each in cost.samples),
        processes=max(each.processes for each in cost.samples),
        left=len(cost.left),
    )


def sweep_figures(nodes: int, cost: Cost, archive: Path) -> SweepFigures:
    """The figures of a sweep's trials."""
    trials = [json.loads(path.read_text()) for path in sorted((archive / "trials").glob("[!.]*.json"))]
    began_s = [datetime.fromisoformat(trial["started_at"]).timestamp() for trial in trials]
    spans = [(began, began + trial["duration_s"]) for began, trial in zip(began_s, trials, strict=True)]
    first_s, last_s = min(began for began, _ in spans), max(ended for _, ended in spans)
    before = [each for each in cost.samples if each.at_unix_s <= first_s]
    within = [each for each in cost.samples if first_s < each.at_unix_s <= last_s]
    at_work = max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)
    cpu_s = cpu_s_at(cost.samples, last_s) - cpu_s_at(cost.samples, first_s)
    peak_mib = max(each.controller_bytes for each in within) / MIB
    return SweepFigures(
        nodes=nodes,
        trials=len(trials),
        at_work=at_work,
        wall_s=last_s - first_s,
        cpu_s=cpu_s,
        cpu_s_per_trial=cpu_s / len(trials),
        whole_cpu_s_per_trial=cost.controller_cpu_s / len(trials),
        clients_cpu_s_per_trial=cost.clients_cpu_s / len(trials),
        idle_mib=before[-1].controller_bytes / MIB,
        peak_mib=peak_mib,
        peak_mib_per_node_at_work=peak_mib / at_work,
        clients_mib_per_client=max(each.clients_bytes / max(1, each.clients) for each in within) / MIB,
    )


def cpu_s_at(samples: Sequence[Sample], at_unix_s: float) -> float:
    """The controller's processor time at a moment, between the samples around it."""
    after = next((each for each in samples if each.at_unix_s >= at_unix_s), samples[-1])
    before = next((each for each in reversed(samples) if each.at_unix_s <= at_unix_s), samples[0])
    if after.at_unix_s <= before.at_unix_s:
        return before.controller_cpu_s
    share = (at_unix_s - before.at_unix_s) / (after.at_unix_s - before.at_unix_s)
    return before.controller_cpu_s + share * (after.controller_cpu_s - before.controller_cpu_s)


def mib_per_other_node(sweep: SweepFigures, alone: SweepFigures) -> float:
    """What a node at work takes beside the first: the peak beyond that of a sweep of one node."""
    return (sweep.peak_mib - alone.peak_mib) / (sweep.at_work - alone.at_work)
