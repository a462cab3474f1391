"""Controller of a sweep: one spec carried out on one inventory, from probing to the end record, new or resumed."""

import secrets
from datetime import UTC, datetime
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import NodeError
from tokenpeak.loadgen.calibration import calibration_record, checked
from tokenpeak.loadgen.traffic.traffic import Traffic
from tokenpeak.paths import inside
from tokenpeak.records import SweepRecord
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.archive import Archive, archive_below
from tokenpeak.sweep import resume
from tokenpeak.sweep.check_spec import unreadable_files
from tokenpeak.sweep.claim import alone, begin
from tokenpeak.sweep.downtime_budget import require_deadlines
from tokenpeak.sweep.installation import read_provenance
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory
from tokenpeak.sweep.limits import lease_offset_s
from tokenpeak.sweep.probe import Probe, not_serving, prepare
from tokenpeak.sweep.production_traffic import with_traffic
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.resume import give_back, taken_over, unchanged
from tokenpeak.sweep.sweep_plan import SweepPlan
from tokenpeak.sweep.sweep_run import Job, SweepOutcome, carry_out
from tokenpeak.sweep.trial.endpoint import endpoint_inventory, look_at
from tokenpeak.sweep.trial.load_hosts import (
    calibrate_command,
    network_paths,
    prepare_load_hosts,
)
from tokenpeak.sweep.trial.request import load_runs

_RANDOM_BYTES = 3


def new_sweep(
    planned: SweepPlan,
    inventory: Inventory,
    probed: Probe,
    *,
    parallel: int,
    progress: ProgressDisplay,
    interrupt: Interrupt,
    traffic: Traffic | None = None,
    results: Path = paths.RESULTS,
) -> SweepOutcome:
    """Carry out the plan on the probed nodes, `parallel` of them at once, into a new archive below `results`.

    `traffic` is what workloads from production replay.
    """
    spec = planned.spec
    _check_files(spec, inventory)
    hosts = prepare_load_hosts(inventory, say=progress.say, cancelled=interrupt.gentle)
    started_at = datetime.now(UTC)
    archive = new_archive(results, f"{started_at:%Y%m%d-%H%M%S}-{spec.name}-{inventory.name}")
    if traffic is not None:
        spec = with_traffic(spec, traffic, archive.path)
    calibrations, doubts = checked(
        network_paths(inventory, spec.endpoint), [(run.workload, run.level) for run in load_runs(spec)]
    )
    for doubt in doubts:
        progress.say(f"WARNING {doubt} {calibrate_command(inventory, spec.endpoint)}")
    usable = probed.usable
    record = SweepRecord(
        sweep_id=archive.path.name,
        name=spec.name,
        inventory=inventory.name,
        started_at=started_at,
        simulated=any(ready.facts.simulated for ready in usable.values()),
        study=spec.study,
        spec=spec.model_dump(mode="json"),
        nodes=tuple(ready.facts for ready in usable.values()),
        plans=planned.plans,
        provenance=read_provenance(),
        load_hosts=tuple(host.name for host in inventory.load_hosts),
        production_traffic=None if traffic is None else traffic.record(),
        calibration=calibration_record(calibrations),
    )
    claim = begin(archive.path, interrupt)
    archive = Archive(archive.path, claim.require)
    archive.write_sweep(record)
    resume.note(archive.path)
    job = Job(
        record=record,
        spec=spec,
        inventory=inventory,
        load_hosts=hosts,
        usable=usable,
        archive=archive,
        claim=claim,
        earlier=(),
        parallel=parallel,
        left_out=tuple(probed.complaints()),
        not_serving=not_serving(inventory, probed.answered),
    )
    with alone(record.sweep_id) as folder, claim.kept():
        return carry_out(job, folder, progress, interrupt)


def resume_sweep(
    sweep_id: str,
    *,
    parallel: int,
    progress: ProgressDisplay,
    interrupt: Interrupt,
    own_spec: str | None = None,
    results: Path = paths.RESULTS,
) -> SweepOutcome:
    """Go on with a sweep that was interrupted: its own spec and plan, without the trials that are recorded.

    Its controller may have been another machine's; raises FencedError where that one lives. `own_spec` is what the
    operator's spec is called, if not as the sweep: it vouches for a sweep that was not begun here (`own_sweeps`).
    """
    archive = archive_below(results, sweep_id)
    record, spec, digest = resume.opened(archive.path)
    planned = {name for plan in record.plans for name in plan.nodes}
    if spec.endpoint is not None:
        inventory = endpoint_inventory(spec.endpoint)
    else:
        inventory = read_inventory(record.inventory)
        there = tuple(node.name for node in inventory.nodes if node.name in planned)
        if not there:
            raise NodeError(
                f"Inventory {inventory.name} has none of the nodes of sweep {sweep_id} any more "
                f"({', '.join(sorted(planned))}): put one back, or start a new sweep."
            )
        inventory = inventory.limited_to(there)
    is_noted = resume.is_noted(archive.path, digest)
    own = spec if is_noted else resume.own_spec_of(sweep_id, spec, own_spec or record.name)
    _check_files(spec, inventory)
    with alone(sweep_id) as folder, taken_over(archive.path, spec, inventory, progress, interrupt) as (claim, answers):
        archive = Archive(archive.path, claim.require)
        trials = tuple(archive.trials())
        for malformed in archive.malformed:
            progress.say(f"PROBLEM {malformed} Its trial is made again.")
        if spec.endpoint is not None:
            probed = look_at(spec.endpoint)
        else:
            give_back(inventory, archive, trials, answers, claim, progress, interrupt)
            probed = prepare(inventory, progress, interrupt)
            for name, ready in probed.usable.items():
                require_deadlines(spec, name, ready.declaration, lease_offset_s(inventory, name))
        usable = unchanged(probed.usable, record, progress)
        if not is_noted:
            if spec.endpoint is None:
                resume.require_planned(sweep_id, record, own, [ready.facts for ready in usable.values()])
            resume.note(archive.path, digest)
        hosts = prepare_load_hosts(inventory, say=progress.say, cancelled=interrupt.gentle)
        job = Job(
            record=record,
            spec=spec,
            inventory=inventory,
            load_hosts=hosts,
            usable=usable,
            archive=archive,
            claim=claim,
            earlier=trials,
            parallel=parallel,
            is_resumed=True,
            not_serving=not_serving(inventory, probed.answered),
            left_out=tuple(probed.complaints()),
        )
        return carry_out(job, folder, progress, interrupt)


def _check_files(spec: SweepSpec, inventory: Inventory) -> None:
    """Raise LoadError, or ArchiveError for a reference of answers, where a file of the spec cannot be read here."""
    for error, _ in unreadable_files(spec, workloads=not inventory.load_hosts, is_fetched=True):
        raise error


def new_archive(results: Path, words: str) -> Archive:
    """An archive in a new folder, named by `words` and at random: sweeps elsewhere may begin in the same second."""
    results.mkdir(parents=True, exist_ok=True)
    while True:
        path = inside(results, f"{words}-{secrets.token_hex(_RANDOM_BYTES)}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return Archive(path)
