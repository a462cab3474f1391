"""Controller of a sweep: one spec carried out on one inventory, from probing to the end record, new or resumed."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenpeak import paths
from tokenpeak.atomic import write_atomically
from tokenpeak.errors import ArchiveError, FencedError, NodeError
from tokenpeak.loadgen.calibration.network_path import calibration_record, checked
from tokenpeak.loadgen.datasets import read_samples, read_trace
from tokenpeak.names import inside
from tokenpeak.quality.measure import read_tasks
from tokenpeak.records import EndRecord, SweepRecord, TrialRecord
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import DatasetWorkload, TraceWorkload
from tokenpeak.storage import refusal
from tokenpeak.store.archive import Archive, archive_below
from tokenpeak.sweep import own_sweeps
from tokenpeak.sweep.archive_keeper import AnswersKeeper, KeptArchive, recorded
from tokenpeak.sweep.claim import SweepClaim, alone, begin
from tokenpeak.sweep.downtime_budget import DowntimeBudget, require_deadlines
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory
from tokenpeak.sweep.limits import ConcurrencyLimiter, NodeFailures, StoreLimiter, group_limits, lease_offset_s
from tokenpeak.sweep.notification import Notifier, lacking
from tokenpeak.sweep.probe import Probe, ReadyNode, not_serving, prepare
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.provenance import read_provenance
from tokenpeak.sweep.resume import downtime_before_s, give_back, open_before_s, taken_over, unchanged
from tokenpeak.sweep.secret import master_secret
from tokenpeak.sweep.sweep_plan import SweepPlan
from tokenpeak.sweep.terminal_summary import Describer
from tokenpeak.sweep.trial.endpoint import EndpointWorker, endpoint_inventory, look_at
from tokenpeak.sweep.trial.execution import TrialSite
from tokenpeak.sweep.trial.load_hosts import (
    PreparedHost,
    calibrate_command,
    network_paths,
    prepare_load_hosts,
    scheduler,
)
from tokenpeak.sweep.trial.node_worker import NodeWorker
from tokenpeak.sweep.trial.play import TrialPlay
from tokenpeak.sweep.trial.request import load_runs
from tokenpeak.sweep.trial.worker import Worker
from tokenpeak.sweep.trial_queue import TrialQueue, last_number

_JOIN_POLL_S = 0.25
_RANDOM_BYTES = 3


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """How a sweep stands now that its controller leaves it."""

    archive: Archive
    record: SweepRecord
    spec: SweepSpec
    end: EndRecord
    trials: tuple[TrialRecord, ...]
    complaints: tuple[str, ...]
    """What went wrong on the way; a node that was left out from the start is none."""

    @property
    def is_success(self) -> bool:
        """It completed, no node was lost on the way, and production is back everywhere."""
        return self.end.status == "completed" and not self.end.unrestored and not self.complaints


def new_sweep(
    planned: SweepPlan,
    inventory: Inventory,
    found: Probe,
    *,
    parallel: int,
    progress: ProgressDisplay,
    interrupt: Interrupt,
    results: Path = paths.RESULTS,
) -> SweepOutcome:
    """Carry out the plan on the probed nodes, `parallel` of them at once, into a new archive below `results`."""
    spec = planned.spec
    _check_files(spec, inventory)
    hosts = prepare_load_hosts(inventory, say=progress.say, cancelled=interrupt.gentle)
    calibrations, doubts = checked(
        network_paths(inventory, spec.endpoint), [(run.workload, run.level) for run in load_runs(spec)]
    )
    for doubt in doubts:
        progress.say(f"WARNING {doubt} {calibrate_command(inventory, spec.endpoint)}")
    started_at = datetime.now(UTC)
    archive = new_archive(results, f"{started_at:%Y%m%d-%H%M%S}-{spec.name}-{inventory.name}")
    usable = found.usable
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
        calibration=calibration_record(calibrations),
    )
    claim = begin(archive.path, interrupt)
    archive = Archive(archive.path, claim.require)
    archive.write_sweep(record)
    own_sweeps.note(archive.path)
    job = _Job(
        record=record,
        spec=spec,
        inventory=inventory,
        load_hosts=hosts,
        usable=usable,
        archive=archive,
        claim=claim,
        earlier=(),
        parallel=parallel,
        left_out=tuple(found.complaints()),
        not_serving=not_serving(inventory, found.answered),
    )
    with alone(record.sweep_id) as folder, claim.kept():
        return _carry_out(job, folder, progress, interrupt)


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
    record, spec, digest = own_sweeps.opened(archive.path)
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
    is_noted = own_sweeps.is_noted(archive.path, digest)
    own = spec if is_noted else own_sweeps.own_spec_of(sweep_id, spec, own_spec or record.name)
    _check_files(spec, inventory)
    with alone(sweep_id) as folder, taken_over(archive.path, spec, inventory, progress, interrupt) as (claim, answers):
        archive = Archive(archive.path, claim.require)
        trials = tuple(archive.trials())
        for malformed in archive.malformed:
            progress.say(f"PROBLEM {malformed} Its trial is made again.")
        if spec.endpoint is not None:
            found = look_at(spec.endpoint)
        else:
            give_back(inventory, archive, trials, answers, claim, progress, interrupt)
            found = prepare(inventory, progress, interrupt)
            for name, ready in found.usable.items():
                require_deadlines(spec, name, ready.declaration, lease_offset_s(inventory, name))
        usable = unchanged(found.usable, record, progress)
        if not is_noted:
            if spec.endpoint is None:
                own_sweeps.require_planned(sweep_id, record, own, [ready.facts for ready in usable.values()])
            own_sweeps.note(archive.path, digest)
        hosts = prepare_load_hosts(inventory, say=progress.say, cancelled=interrupt.gentle)
        job = _Job(
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
            not_serving=not_serving(inventory, found.answered),
            left_out=tuple(found.complaints()),
        )
        return _carry_out(job, folder, progress, interrupt)


def _check_files(spec: SweepSpec, inventory: Inventory) -> None:
    """Raise LoadError for a workload's file that the load client could not read; load hosts have files of their own.

    Tasks and a reference of answers are read too; raises ArchiveError for a reference that cannot be.
    """
    if spec.quality is not False and spec.endpoint is None:
        recorded(spec.quality)
        if spec.quality.tasks is not None:
            read_tasks(paths.HOME / spec.quality.tasks)
    if inventory.load_hosts:
        return
    for workload in (plan.workload for plan in spec.workloads):
        if isinstance(workload, DatasetWorkload | TraceWorkload):
            here = workload.model_copy(update={"path": str(paths.HOME / Path(workload.path).expanduser())})
            read_samples(here) if isinstance(here, DatasetWorkload) else read_trace(here)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A sweep that is ready to go on: its record, the nodes that are there, and the trials that were made before."""

    record: SweepRecord
    spec: SweepSpec
    inventory: Inventory
    load_hosts: tuple[PreparedHost, ...]
    usable: Mapping[str, ReadyNode]
    archive: Archive
    claim: SweepClaim
    earlier: tuple[TrialRecord, ...]
    parallel: int
    left_out: tuple[str, ...]
    not_serving: frozenset[str]
    """Nodes whose production does not serve although no trial has stopped it."""
    is_resumed: bool = False


def _carry_out(job: _Job, folder: Path, progress: ProgressDisplay, interrupt: Interrupt) -> SweepOutcome:
    """Make the trials that are missing, write how the sweep ended, and notify whom the inventory names."""
    for lack in lacking(job.inventory):
        progress.say(f"WARNING {lack}")
    notifier = Notifier(job.inventory, job.record.sweep_id)
    try:
        outcome = _trials(job, folder, progress, interrupt, notifier)
    except FencedError:
        raise  # the sweep goes on elsewhere, and that controller notifies
    except OSError as error:
        notifier.aborted(error)
        if (words := refusal(error)) is None:
            raise
        raise ArchiveError(f"{words} Then go on with: make sweep RESUME={job.record.sweep_id}") from error
    except BaseException as error:
        notifier.aborted(error)
        raise
    notifier.ended(outcome.end)
    return outcome


def _trials(
    job: _Job, folder: Path, progress: ProgressDisplay, interrupt: Interrupt, notifier: Notifier
) -> SweepOutcome:
    """Make the trials that are missing, one worker for each node, and write how it ended."""
    sweep_id = job.record.sweep_id
    counter = folder / "last-number"
    counted = int(counter.read_text()) if counter.exists() else 0
    kept = KeptArchive(job.archive, job.record, job.earlier, progress.say)
    answers = AnswersKeeper(job.spec, sweep_id, job.record.plans, kept, job.earlier, progress.say)
    trial_queue = TrialQueue(
        job.spec,
        job.record.plans,
        job.earlier,
        last_number=max(counted, last_number(job.archive.path)),
        on_number=lambda number: write_atomically(counter, str(number)),
        judged=answers.judged,
        there=tuple(job.usable),
    )
    count = trial_queue.count()
    progress.say(f"Sweep {sweep_id}: {count.ended} trials recorded, about {count.total} in all")
    load_hosts = scheduler(job.load_hosts, job.spec, min(job.parallel, len(job.usable)))
    at_once = load_hosts.trials_at_once
    if at_once < len(job.usable):
        bound = "--parallel" if at_once == job.parallel else "the load hosts have room for no more"
        progress.say(f"{at_once} of {len(job.usable)} nodes work at once ({bound}); the others serve meanwhile")
    progress.expect(count, tuple(job.usable), at_once)
    site = TrialSite(
        inventory=job.inventory,
        folder=folder,
        secret=master_secret(),
        claim=job.claim,
        stores=StoreLimiter(job.inventory),
        load_hosts=load_hosts,
        provenance=read_provenance(),
        interrupt=interrupt,
        play=TrialPlay(job.inventory, tuple(job.usable)),
        production_at_start={facts.node: facts.production for facts in job.record.nodes if facts.production},
    )
    describer = Describer(job.spec, trial_queue)
    before_s = downtime_before_s(job.archive, job.earlier)
    budget = DowntimeBudget(job.spec, earlier=job.earlier, before_s=before_s)
    limits = group_limits(job.inventory)
    for limit in limits:
        progress.say(f"At most {limit.most} of the {len(limit.nodes)} nodes of {limit.group} are unavailable at a time")
    limiter = ConcurrencyLimiter(at_once, limits, job.not_serving)
    node_failures = NodeFailures(job.spec.max_node_failures)
    worker_of = NodeWorker if job.spec.endpoint is None else EndpointWorker
    workers: list[Worker] = [
        worker_of(
            node=name,
            ready=ready,
            spec=job.spec,
            sweep_id=sweep_id,
            site=site,
            trial_queue=trial_queue,
            budget=budget,
            limiter=limiter,
            node_failures=node_failures,
            restore_pending=job.is_resumed and job.spec.endpoint is None,
            archive=kept,
            answers=answers,
            progress=progress,
            notifier=notifier,
            describe=describer.describe,
        )
        for name, ready in job.usable.items()
    ]
    with progress.shown(), site.play:
        for worker in workers:
            worker.start()
        _join(workers, trial_queue, kept, interrupt)
    job.claim.require()
    complaints = list(dict.fromkeys(problem for worker in workers for problem in worker.problems))
    if node_failures.too_many is not None:
        complaints.insert(0, node_failures.too_many)
        progress.say(f"PROBLEM {node_failures.too_many}")
    unfinished = [plan.hardware for plan in job.record.plans if not trial_queue.is_finished(plan.hardware)]
    if unfinished and not interrupt.gentle() and not budget.refused:
        complaints.append(f"Not all trials were made on {', '.join(unfinished)}.")
    if kept.problem is not None:
        complaints.append(kept.problem)
    carried_s = {name: s for name, s in open_before_s(job.archive, job.earlier).items() if name not in job.usable}
    end = EndRecord(
        sweep_id=sweep_id,
        status="interrupted" if unfinished and not budget.refused else "completed",
        ended_at=datetime.now(UTC),
        trials=len(trial_queue.records),
        production_downtime_s={
            name: round(budget.downtime_s.get(name, 0.0), 3)
            for name in sorted({*before_s, *(worker.node for worker in workers if worker.gives_back)})
        },
        open_downtime_s={name: round(s, 3) for name, s in {**carried_s, **budget.open_s}.items()},
        unrestored=tuple(worker.node for worker in workers if worker.restore_pending),
        left_out_nodes=tuple(worker.node for worker in workers if worker.is_left_out),
        problems=(*job.left_out, *complaints, *([budget.refused] if budget.refused else [])),
    )
    if (unwritten := end_problem(kept, end)) is not None:
        complaints.append(unwritten)
        end = end.model_copy(update={"problems": (*end.problems, unwritten)})
    return SweepOutcome(
        archive=job.archive,
        record=job.record,
        spec=job.spec,
        end=end,
        trials=trial_queue.records,
        complaints=tuple(complaints),
    )


def end_problem(kept: KeptArchive, end: EndRecord) -> str | None:
    """Write how the sweep ended; why that is not on disk, with what to do, or None where it is."""
    try:
        kept.write_end(end)
    except ArchiveError as error:
        return f"How the sweep ended is not recorded: {error} Then go on with: make sweep RESUME={end.sweep_id}"
    return None


def _join(workers: Sequence[Worker], trial_queue: TrialQueue, kept: KeptArchive, interrupt: Interrupt) -> None:
    """Wait for every worker, waking up often enough that signals are heard and a deleted archive is noticed."""
    for worker in workers:
        while worker.is_alive():
            worker.join(_JOIN_POLL_S)
            kept.check()
            if interrupt.gentle():
                trial_queue.close()


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
