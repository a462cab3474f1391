"""One trial from its order to its record: launch, load, finish in one Ansible run, whatever happens in between.

Measured on two cores with a local node, three playbook runs cost 5.3 s of Ansible and one run of the same three tasks
2.3 s; over SSH the difference grows. So a trial is one run of trial.yml, whose finish task always runs. When that run
is cut short (a signal, Ansible's death, a network that went), the lease is renewed no more, so that the node's guard
gives production back should nobody else; finish.yml is run by itself until it gets through, then restore.yml.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenpeak.drive.inventory import Inventory
from tokenpeak.drive.order import RequestFiles, TrialOrder, at_start, write_finish, write_requests
from tokenpeak.drive.probe import install
from tokenpeak.drive.recording import Evidence, failed_before_launch, trial_record
from tokenpeak.drive.restoration import restored_by
from tokenpeak.drive.runner import Event, NodeResult, run_playbook
from tokenpeak.drive.secret import MasterSecret
from tokenpeak.drive.stop import Stop
from tokenpeak.drive.version import is_another, renewal
from tokenpeak.errors import NodeError, PlanError
from tokenpeak.names import inside
from tokenpeak.records import Production, Provenance, TrialRecord

_AGAIN_S = 3.0
_LONGEST_WAIT_S = 600.0
"""For a node that is out of reach, besides what its attempts take."""


@dataclass(frozen=True, kw_only=True)
class TrialSite:
    """What all trials of a sweep share on this controller. `folder` is private and outside the archive."""

    inventory: Inventory
    folder: Path
    secret: MasterSecret
    holder: str
    provenance: Provenance
    stop: Stop
    production_at_start: Mapping[str, Production]
    """What production was on each node when the sweep began: decided once, whatever happens to it since."""

    def restore_extravars(self, node: str) -> dict[str, Any]:
        """What restore.yml needs: for whom the node is given back, and what it served when the sweep began."""
        return {
            "tokenpeak_restore_holder": self.holder,
            "tokenpeak_production_at_start": at_start(self.production_at_start.get(node)),
        }


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial's record with the large files that belong to it."""

    record: TrialRecord
    requests_parquet: Path | None
    log_text: str
    node_trouble: str | None
    """What went wrong with the node itself rather than with the config; None when nothing did."""


def run_trial(
    order: TrialOrder,
    site: TrialSite,
    *,
    on_files: Callable[[RequestFiles], None],
    on_event: Callable[[Event], None],
    is_overlapped: Callable[[], bool] = lambda: False,
    let_lapse: Callable[[], None] = lambda: None,
) -> TrialResult:
    """Carry the trial out; returns in every case, with production as the order wants it or the reason why not.

    Once `is_overlapped` answers True, somebody has started production, and the trial is cut short. `let_lapse` is
    called when the trial's own end did not get through: from then on the lease must not be renewed.
    """
    evidence = Evidence(order=order, started_at=datetime.now(UTC), started_mono_s=time.monotonic())
    try:
        argv = order.argv()
        files = write_requests(
            order,
            inside(site.folder, order.trial_id),
            argv=argv,
            started_at_unix_s=evidence.started_at.timestamp(),
            secret=site.secret,
            holder=site.holder,
            production_at_start=site.production_at_start.get(order.node.name),
        )
    except PlanError as error:
        return TrialResult(
            record=failed_before_launch(evidence, str(error), site.provenance),
            requests_parquet=None,
            log_text="",
            node_trouble=None,
        )
    on_files(files)

    def is_cut_short() -> bool:
        return site.stop.gentle() or is_overlapped()

    main = _play("trial.yml", order, site, files, _without_skipped_load(on_event), is_cut_short)
    if _is_refused(main):
        _renew(order, site)
        main = _play("trial.yml", order, site, files, _without_skipped_load(on_event), is_cut_short)
    launch, finished, failure = _of_this_version(main, order, site)
    evidence = replace(
        evidence,
        argv=tuple(argv),
        output=files.output,
        launch=launch,
        finish=finished or {},
        spans=dict(main.spans),
        failure=failure,
        unreachable=main.unreachable,
        cancelled=site.stop.gentle() and finished is None,
        overlapped=is_overlapped(),
    )
    if finished is None:
        let_lapse()
        evidence = _give_back(evidence, site, files, on_event)
    record, log_text = trial_record(evidence, site.provenance)
    parquet = files.output / "requests.parquet"
    return TrialResult(
        record=record,
        requests_parquet=parquet if parquet.is_file() else None,
        log_text=log_text,
        node_trouble=_node_trouble(evidence, record),
    )


def _is_refused(result: NodeResult) -> bool:
    """Whether the node refused the launch, touching nothing, because its script is of another version."""
    error = result.answers.get("launch", {}).get("error")
    return isinstance(error, Mapping) and error.get("code") == "version"


def _renew(order: TrialOrder, site: TrialSite) -> None:
    """Put this controller's node script on the node again, where a trial has the rights for that."""
    if not order.node.guard_command:
        install(site.inventory, nodes=[order.node.name], cancelled=site.stop.gentle)


def _of_this_version(
    result: NodeResult, order: TrialOrder, site: TrialSite
) -> tuple[dict[str, Any], dict[str, Any] | None, str | None]:
    """The launch's and the finish's answers, and what failed; of another version's, only how production stands."""
    launch, finish = result.answers.get("launch", {}), _answer(result, "finish")
    if not any(answer and is_another(answer) for answer in (launch, finish)):
        return launch, finish, result.failure
    restoration = {"restoration": finish["restoration"]} if finish and "restoration" in finish else None
    return {}, restoration, renewal(site.inventory, order.node.name)


def _give_back(evidence: Evidence, site: TrialSite, files: RequestFiles, on_event: Callable[[Event], None]) -> Evidence:
    """Tear down a trial whose own finish did not answer: finish.yml until the guard must have acted, else restore.yml.

    Either answers for the guard too, with how long production was down.
    """
    _end_client(files)
    order = evidence.order
    write_finish(order, files, holder=site.holder, restore_production=True, keep_lock=False)
    deadlines = order.spec.deadlines
    longest_s = deadlines.lease_s + deadlines.engine_stop_s + deadlines.production_ready_s
    until_s = time.monotonic() + min(_LONGEST_WAIT_S, longest_s)
    while True:
        again = _play("finish.yml", order, site, files, on_event, site.stop.abrupt)
        if (answer := _answer(again, "finish")) is not None:
            return replace(evidence, finish=answer, spans={**evidence.spans, **again.spans})
        if site.stop.abrupt() or time.monotonic() >= until_s:
            break
        time.sleep(_AGAIN_S)
    restored = _play("restore.yml", order, site, files, on_event, site.stop.let_go)
    restoration = restored_by(restored, site.holder, order.trial_id)
    if not restoration.restored and restoration.downtime_s is None:
        restoration = restoration.model_copy(update={"downtime_s": _down_so_far_s(evidence)})
    return replace(
        evidence,
        finish={"restoration": restoration.model_dump()},
        spans={**evidence.spans, **restored.spans},
    )


def _answer(result: NodeResult, command: str) -> dict[str, Any] | None:
    """What the node's command answered; None when it gave no answer, or an error."""
    answer = result.answers.get(command)
    return None if answer is None or "error" in answer else answer


def _down_so_far_s(evidence: Evidence) -> float | None:
    """How long production has been down by what is known here; None where it may never have been stopped."""
    if not (evidence.launch.get("production") or {}).get("running"):
        return None
    began = next((span for task, span in evidence.spans.items() if task.endswith("node | launch")), None)
    stops = [phase for phase in evidence.launch.get("phases", ()) if phase["name"] == "production_stop"]
    if began is None or not stops:
        return None
    return max(0.0, time.time() - began[0] - float(stops[0]["started_s"]))


def _without_skipped_load(on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """`on_event`, less the start of a load that Ansible announces and then skips because the engine is not ready."""
    ready = False

    def hear(event: Event) -> None:
        nonlocal ready
        if event.task == "node | launch" and event.answer is not None:
            ready = bool(event.answer.get("ready"))
        if ready or event.task != "load | run":
            on_event(event)

    return hear


def _end_client(files: RequestFiles) -> None:
    """End the load client that a killed Ansible left behind: the process here that was started with this job's path.

    Without /proc nothing is ended, and the client's requests fail one by one once the engine has gone.
    """
    for command_line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(files.job).encode() in command_line.read_bytes().split(b"\0"):
                os.kill(int(command_line.parent.name), signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def _play(
    playbook: str,
    order: TrialOrder,
    site: TrialSite,
    files: RequestFiles,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> NodeResult:
    """The playbook on the order's node; an Ansible that could not run is a failure of the node's."""
    if cancelled():
        return NodeResult(failure=f"{playbook} was not run: the sweep was told to end at once")
    try:
        done = run_playbook(
            playbook,
            site.inventory,
            nodes=[order.node.name],
            extravars={**files.extravars(), **site.restore_extravars(order.node.name)},
            on_event=on_event,
            cancelled=cancelled,
        )
    except NodeError as error:
        return NodeResult(failure=str(error))
    return done.nodes[order.node.name]


def _node_trouble(evidence: Evidence, record: TrialRecord) -> str | None:
    if evidence.unreachable:
        return f"{record.node} became unreachable: {evidence.unreachable}"
    if record.restoration is not None and not record.restoration.restored:
        return f"{record.node}: production is not back: {record.restoration.message}"
    if evidence.launch.get("production_found_down"):
        return (
            f"{record.node}: production had ended by itself before trial {record.trial_id}, though it served when the "
            "sweep began; it is back: see its log"
        )
    if record.status == "interrupted" and not evidence.cancelled and record.failure is not None:
        return f"{record.node}: {record.failure.message}"
    return None
