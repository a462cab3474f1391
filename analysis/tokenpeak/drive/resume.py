"""Picking up a sweep whose controller left it: nodes that it still holds, and what it has cost production so far."""

import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tokenpeak.drive.inventory import Inventory
from tokenpeak.drive.probe import ReadyNode
from tokenpeak.drive.progress import Progress
from tokenpeak.drive.runner import run_playbook
from tokenpeak.drive.secret import master_secret
from tokenpeak.drive.stop import Stop
from tokenpeak.errors import NodeError
from tokenpeak.records import EndRecord, SweepRecord, TrialRecord
from tokenpeak.store.raw import Archive


def holder(sweep_id: str) -> str:
    """Who has a node, in words for whoever finds it locked; the same after a resume by this controller.

    Its last word is of this controller's secret: host names repeat, and an archive can be copied.
    """
    return f"sweep {sweep_id} from {socket.gethostname()} ({master_secret().name.removeprefix('secret-')})"


def release(
    inventory: Inventory, archive: Archive, trials: Sequence[TrialRecord], progress: Progress, stop: Stop
) -> None:
    """Give back the nodes that this sweep still holds from when its controller died, and note what that time cost."""
    told = run_playbook("status.yml", inventory, cancelled=stop.gentle)
    answers = {name: result.answers.get("status", {}) for name, result in told.nodes.items()}
    ours = holder(archive.path.name)
    held = [name for name, answer in answers.items() if answer.get("holder") == ours]
    open_s = open_before_s(archive, trials)
    over_s = _given_back_meanwhile_s(answers, archive, trials, open_s)
    if held:
        progress.say(f"Giving back {', '.join(held)}, held since this sweep was cut off")
        given = run_playbook(
            "restore.yml",
            inventory,
            nodes=held,
            extravars={"tokenpeak_restore_holder": ours},
            cancelled=stop.abrupt,
        )
        for name in held:
            outcome = given.nodes[name].answers.get("restore", {}).get("restoration", {})
            if outcome.get("restored") and outcome.get("downtime_s") is not None:
                over_s[name] = over_s.get(name, 0.0) + float(outcome["downtime_s"])
    if not over_s:
        return
    # What was known of an outage gives way to the whole of it.
    downtime_s = downtime_before_s(archive, trials)
    for name, seconds in over_s.items():
        downtime_s[name] = downtime_s.get(name, 0.0) - open_s.pop(name, 0.0) + seconds
    archive.write_end(
        EndRecord(
            sweep_id=archive.path.name,
            status="interrupted",
            ended_at=datetime.now(UTC),
            trials=len(trials),
            production_downtime_s=downtime_s,
            open_downtime_s=open_s,
            problems=("Its controller died; production was given back by the node's guard, or when it was resumed.",),
        )
    )


def _given_back_meanwhile_s(
    answers: Mapping[str, Mapping[str, Any]],
    archive: Archive,
    trials: Sequence[TrialRecord],
    open_s: Mapping[str, float],
) -> dict[str, float]:
    """How long production was down for a trial of which nobody recorded the end, where the node was given back."""
    before = archive.read_end()
    since_unix_s = before.ended_at.timestamp() if before else 0.0
    ours = holder(archive.path.name)
    recorded = {trial.trial_id for trial in trials if trial.restoration is not None and trial.restoration.restored}
    found = {}
    for name, answer in answers.items():
        last = answer.get("last_restoration") or {}
        is_ours = last.get("holder") == ours and last.get("restored") and last["trial_id"] not in recorded
        if is_ours and (name in open_s or last["at_unix_s"] > since_unix_s):
            found[name] = float(last.get("downtime_s") or 0.0)
    return found


def downtime_before_s(archive: Archive, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """What production was down on each node so far, by the last end record or, where higher, by the trials."""
    before = archive.read_end()
    total_s = dict(before.production_downtime_s) if before else {}
    by_trials_s: dict[str, float] = {}
    for trial in trials:
        if trial.restoration is not None:
            by_trials_s[trial.node] = by_trials_s.get(trial.node, 0.0) + (trial.restoration.downtime_s or 0.0)
    return {node: max(total_s.get(node, 0.0), by_trials_s.get(node, 0.0)) for node in {*total_s, *by_trials_s}}


def open_before_s(archive: Archive, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """The part of it that belongs to outages that were not seen to end."""
    before = archive.read_end()
    if before is not None:
        return dict(before.open_downtime_s)
    last = {trial.node: trial.restoration for trial in trials if trial.restoration is not None}
    return {node: found.downtime_s or 0.0 for node, found in last.items() if not found.restored}


def unchanged(usable: Mapping[str, ReadyNode], record: SweepRecord, progress: Progress) -> dict[str, ReadyNode]:
    """The nodes that are still the hardware they were planned as; raises NodeError when none is."""
    planned = {name: plan.hardware for plan in record.plans for name in plan.nodes}
    same = {}
    for name, ready in usable.items():
        if ready.facts.hardware == planned[name]:
            same[name] = ready
        else:
            progress.say(
                f"PROBLEM {name} was planned as {planned[name]} and is now {ready.facts.hardware}; it is left out."
            )
    if not same:
        raise NodeError(f"No node of sweep {record.sweep_id} is what it was; start a new sweep.")
    return same
