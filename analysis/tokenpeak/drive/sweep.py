"""A sweep: one spec carried out on one inventory, from probing to the end record, new or resumed."""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenpeak import paths
from tokenpeak.drive.inventory import Inventory, read_inventory
from tokenpeak.drive.ledger import Ledger, last_number
from tokenpeak.drive.probe import Probe, ReadyNode, node_secret, probe
from tokenpeak.drive.progress import Progress
from tokenpeak.drive.provenance import read_provenance
from tokenpeak.drive.runner import run_playbook
from tokenpeak.drive.stop import Stop
from tokenpeak.drive.summary import Describer
from tokenpeak.drive.trial import TrialSite
from tokenpeak.drive.worker import NodeWorker
from tokenpeak.errors import ArchiveError, NodeError, PlanError, suggestion
from tokenpeak.plan.matrix import build_plan
from tokenpeak.plan.spec import SweepSpec, parse_spec
from tokenpeak.records import EndRecord, Plan, SweepRecord, TrialRecord
from tokenpeak.store.raw import Archive

_JOIN_POLL_S = 0.25
_IDS_TRIED = 100


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """How a sweep stands now that its controller leaves it."""

    archive: Archive
    record: SweepRecord
    spec: SweepSpec
    end: EndRecord
    trials: tuple[TrialRecord, ...]

    @property
    def is_success(self) -> bool:
        """It completed, no node was lost on the way, and production is back everywhere."""
        return self.end.status == "completed" and not self.end.unrestored and not self.end.problems


def prepare(inventory: Inventory, progress: Progress, stop: Stop) -> Probe:
    """Probe the nodes and say what is wrong with them; raises NodeError when none is left to work on."""
    progress.say(f"Probing {', '.join(node.name for node in inventory.nodes)}")
    found = probe(inventory, on_event=None, cancelled=stop.gentle)
    for complaint in found.complaints():
        progress.say(f"PROBLEM {complaint}")
    if not found.usable:
        lines = "\n  ".join(found.complaints())
        raise NodeError(f"No node of inventory {inventory.name} can run a trial; nothing was stopped.\n  {lines}")
    return found


def plan_sweep(spec: SweepSpec, inventory: Inventory, found: Probe) -> tuple[Plan, ...]:
    """The matrix for the nodes that can be worked on; raises PlanError when nothing is feasible anywhere."""
    facts = [ready.facts for ready in found.usable.values()]
    plans = build_plan(spec, facts, inventory.model, inventory.engine_version)
    if not any(plan.feasible for plan in plans):
        reasons = sorted({f"{dropped.rule}: {dropped.reason}" for plan in plans for dropped in plan.dropped})
        raise PlanError("No config of the matrix can work on these nodes.\n  " + "\n  ".join(reasons))
    return tuple(plan for plan in plans if plan.feasible)


def new_sweep(
    spec: SweepSpec,
    inventory: Inventory,
    found: Probe,
    plans: Sequence[Plan],
    *,
    progress: Progress,
    stop: Stop,
    results: Path = paths.RESULTS,
) -> SweepOutcome:
    """Carry out `spec` on the probed nodes, into a new archive below `results`."""
    started_at = datetime.now(UTC)
    archive = _new_archive(results, f"{started_at:%Y%m%d-%H%M%S}-{spec.name}-{inventory.name}")
    usable = found.usable
    record = SweepRecord(
        sweep_id=archive.path.name,
        name=spec.name,
        inventory=inventory.name,
        started_at=started_at,
        simulated=any(ready.facts.simulated for ready in usable.values()),
        spec=spec.model_dump(mode="json"),
        nodes=tuple(ready.facts for ready in usable.values()),
        plans=tuple(plans),
        provenance=read_provenance(),
    )
    archive.write_sweep(record)
    return _carry_out(record, spec, inventory, usable, archive, (), progress=progress, stop=stop)


def resume_sweep(sweep_id: str, *, progress: Progress, stop: Stop, results: Path = paths.RESULTS) -> SweepOutcome:
    """Go on with a sweep that was interrupted: its own spec and plan, without the trials that are recorded."""
    archive = Archive(results / sweep_id)
    if not (archive.path / "sweep.json").is_file():
        known = sorted(path.parent.name for path in results.glob("*/sweep.json"))
        raise ArchiveError(f"No sweep {sweep_id!r} in {results}. {suggestion(sweep_id, known)}")
    record = archive.read_sweep()
    spec = parse_spec(record.spec, archive.path / "sweep.json")
    trials = tuple(archive.trials())
    for malformed in archive.malformed:
        progress.say(f"PROBLEM {malformed} Its trial is made again.")
    planned = {name for plan in record.plans for name in plan.nodes}
    inventory = read_inventory(record.inventory)
    inventory = inventory.limited_to(tuple(node.name for node in inventory.nodes if node.name in planned))
    with _alone(sweep_id):
        _release(inventory, sweep_id, progress, stop)
        found = prepare(inventory, progress, stop)
        usable = _unchanged(found.usable, record, progress)
    return _carry_out(record, spec, inventory, usable, archive, trials, progress=progress, stop=stop)


def _carry_out(
    record: SweepRecord,
    spec: SweepSpec,
    inventory: Inventory,
    usable: dict[str, ReadyNode],
    archive: Archive,
    earlier: tuple[TrialRecord, ...],
    *,
    progress: Progress,
    stop: Stop,
) -> SweepOutcome:
    ledger = Ledger(spec, record.plans, earlier, last_number(archive.path))
    describer = Describer(spec, ledger)
    progress.say(f"Sweep {record.sweep_id}: {len(earlier)} trials recorded, about {ledger.expected_trials()} in all")
    progress.expect(ledger.expected_trials() - len(earlier), tuple(usable))
    with _alone(record.sweep_id) as folder:
        site = TrialSite(
            inventory=inventory,
            folder=folder,
            secret=node_secret().read_text().strip(),
            holder=holder(record.sweep_id),
            provenance=read_provenance(),
            stop=stop,
        )
        workers = [
            NodeWorker(
                node=name,
                ready=ready,
                spec=spec,
                sweep_id=record.sweep_id,
                site=site,
                ledger=ledger,
                archive=archive,
                progress=progress,
                describe=describer.describe,
            )
            for name, ready in usable.items()
        ]
        with progress.shown():
            for worker in workers:
                worker.start()
            _join(workers, ledger, stop)
    end = _end_record(record, archive, ledger, workers, earlier, stop)
    archive.write_end(end)
    return SweepOutcome(archive=archive, record=record, spec=spec, end=end, trials=tuple(ledger.records))


def _join(workers: Sequence[NodeWorker], ledger: Ledger, stop: Stop) -> None:
    """Wait for every worker, waking up often enough that signals are heard."""
    for worker in workers:
        while worker.is_alive():
            worker.join(_JOIN_POLL_S)
            if stop.gentle():
                ledger.close()


def _end_record(
    record: SweepRecord,
    archive: Archive,
    ledger: Ledger,
    workers: Sequence[NodeWorker],
    earlier: Sequence[TrialRecord],
    stop: Stop,
) -> EndRecord:
    before = archive.read_end()
    downtime_s: dict[str, float] = dict(before.production_downtime_s) if before else {}
    for trial in earlier:
        told = sum(
            other.restoration.downtime_s or 0.0
            for other in earlier
            if other.node == trial.node and other.restoration is not None
        )
        downtime_s[trial.node] = max(downtime_s.get(trial.node, 0.0), told)
    for worker in workers:
        downtime_s[worker.node] = round(downtime_s.get(worker.node, 0.0) + worker.downtime_s, 3)
    problems = [problem for worker in workers for problem in worker.problems]
    unfinished = [plan.hardware for plan in record.plans if not ledger.is_finished(plan.hardware)]
    if unfinished and not stop.gentle():
        problems.append(f"Not all trials were made on {', '.join(unfinished)}.")
    return EndRecord(
        sweep_id=record.sweep_id,
        status="interrupted" if unfinished else "completed",
        ended_at=datetime.now(UTC),
        trials=len(ledger.records),
        production_downtime_s=downtime_s,
        unrestored=tuple(
            worker.node for worker in workers if worker.restoration is None or not worker.restoration.restored
        ),
        problems=tuple(problems),
    )


def holder(sweep_id: str) -> str:
    """Who has a node, in words for whoever finds it locked; the same after a resume."""
    return f"sweep {sweep_id} from {socket.gethostname()}"


def _release(inventory: Inventory, sweep_id: str, progress: Progress, stop: Stop) -> None:
    """Give back the nodes that this sweep still holds from when its controller died."""
    told = run_playbook("status.yml", inventory, cancelled=stop.gentle)
    held = [
        name
        for name, result in told.nodes.items()
        if result.answers.get("status", {}).get("holder") == holder(sweep_id)
    ]
    if held:
        progress.say(f"Giving back {', '.join(held)}, held since this sweep was cut off")
        run_playbook("restore.yml", inventory, nodes=held, cancelled=stop.abrupt)


def _unchanged(usable: dict[str, ReadyNode], record: SweepRecord, progress: Progress) -> dict[str, ReadyNode]:
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


def _new_archive(results: Path, wanted: str) -> Archive:
    """An archive whose folder did not exist; a second sweep in the same second gets `-2`."""
    results.mkdir(parents=True, exist_ok=True)
    for number in range(1, _IDS_TRIED):
        path = results / (wanted if number == 1 else f"{wanted}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return Archive(path)
    raise ArchiveError(f"{results / wanted} and {_IDS_TRIED - 2} numbered ones exist already; wait a second.")


@contextmanager
def _alone(sweep_id: str) -> Iterator[Path]:
    """The private folder of a sweep, emptied, and locked against another controller on this machine."""
    folder = paths.state_dir() / "work" / sweep_id
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NodeError(f"Sweep {sweep_id} is running already; follow or end that one.") from error
        for left in folder.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
