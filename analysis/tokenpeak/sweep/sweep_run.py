"""Run of a sweep that is ready: its workers from the first missing trial to the end record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenpeak.errors import ArchiveError, FencedError
from tokenpeak.files import refusal, write_atomically
from tokenpeak.records import EndRecord, SweepRecord, TrialRecord
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep.archive_keeper import AnswersKeeper, KeptArchive
from tokenpeak.sweep.claim import SweepClaim
from tokenpeak.sweep.downtime_budget import DowntimeBudget
from tokenpeak.sweep.installation import master_secret, read_provenance
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.limits import ConcurrencyLimiter, NodeFailures, StoreLimiter, group_limits
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.progress import Notifier, ProgressDisplay, lacking
from tokenpeak.sweep.resume import downtime_before_s, open_before_s
from tokenpeak.sweep.trial.endpoint import EndpointWorker
from tokenpeak.sweep.trial.execution import TrialSite
from tokenpeak.sweep.trial.load_hosts import (
    PreparedHost,
    scheduler,
)
from tokenpeak.sweep.trial.play import TrialPlay
from tokenpeak.sweep.trial.worker import NodeWorker, SharedParts, Worker
from tokenpeak.sweep.trial_queue import TrialQueue, last_number

_JOIN_POLL_S = 0.25


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


@dataclass(frozen=True, kw_only=True)
class Job:
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


def carry_out(job: Job, folder: Path, progress: ProgressDisplay, interrupt: Interrupt) -> SweepOutcome:
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
        raise ArchiveError(f"{words} Then go on with: tokenpeak sweep --resume {job.record.sweep_id}") from error
    except BaseException as error:
        notifier.aborted(error)
        raise
    notifier.ended(outcome.end)
    return outcome


def _trials(
    job: Job, folder: Path, progress: ProgressDisplay, interrupt: Interrupt, notifier: Notifier
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
    progress.expect(count, tuple(job.usable), at_once, job.inventory.idle)
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
    before_s = downtime_before_s(job.archive, job.earlier)
    budget = DowntimeBudget(job.spec, earlier=job.earlier, before_s=before_s)
    limits = group_limits(job.inventory)
    for limit in limits:
        progress.say(f"At most {limit.most} of the {len(limit.nodes)} nodes of {limit.group} are unavailable at a time")
    limiter = ConcurrencyLimiter(at_once, limits, job.not_serving)
    node_failures = NodeFailures(job.spec.max_node_failures)
    worker_of = NodeWorker if job.spec.endpoint is None else EndpointWorker
    shared = SharedParts(
        spec=job.spec,
        site=site,
        trial_queue=trial_queue,
        budget=budget,
        limiter=limiter,
        node_failures=node_failures,
        archive=kept,
        answers=answers,
        progress=progress,
        notifier=notifier,
    )
    pending = job.is_resumed and job.spec.endpoint is None
    workers: list[Worker] = [
        worker_of(shared, node=name, ready=ready, restore_pending=pending) for name, ready in job.usable.items()
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
        return f"How the sweep ended is not recorded: {error} Then go on with: tokenpeak sweep --resume {end.sweep_id}"
    return None


def _join(workers: Sequence[Worker], trial_queue: TrialQueue, kept: KeptArchive, interrupt: Interrupt) -> None:
    """Wait for every worker, waking up often enough that signals are heard and a deleted archive is noticed."""
    for worker in workers:
        while worker.is_alive():
            worker.join(_JOIN_POLL_S)
            kept.check()
            if interrupt.gentle():
                trial_queue.close()
