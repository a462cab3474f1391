"""One trial from its request to its record: launch, load, finish in one Ansible run, whatever happens in between.

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

from tokenpeak.errors import NodeError, PlanError
from tokenpeak.names import inside
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.records import Production, Provenance, TrialRecord
from tokenpeak.sweep.claim import SweepClaim
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory import Inventory
from tokenpeak.sweep.model_store import StoreLimiter
from tokenpeak.sweep.probe import install
from tokenpeak.sweep.restoration import restored_by
from tokenpeak.sweep.runner import Event, NodeResult, run_playbook
from tokenpeak.sweep.secret import MasterSecret
from tokenpeak.sweep.trial_failure import TrialEvidence
from tokenpeak.sweep.trial_record import failed_before_launch, trial_record
from tokenpeak.sweep.trial_request import RequestFiles, TrialRequest, at_start, write_finish, write_requests
from tokenpeak.sweep.version import is_another, renewal

_AGAIN_S = 3.0
_LONGEST_WAIT_S = 600.0
"""For a node that is out of reach, besides what its attempts take."""


@dataclass(frozen=True, kw_only=True)
class TrialSite:
    """What all trials of a sweep share on this controller. `folder` is private and outside the archive."""

    inventory: Inventory
    folder: Path
    secret: MasterSecret
    claim: SweepClaim
    stores: StoreLimiter
    provenance: Provenance
    interrupt: Interrupt
    production_at_start: Mapping[str, Production]
    """What production was on each node when the sweep began: decided once, whatever happens to it since."""

    def restore_extravars(self, node: str) -> dict[str, Any]:
        """What restore.yml needs: for whom the node is given back, and what it served when the sweep began."""
        return {
            "tokenpeak_restore_holder": self.claim.holder,
            "tokenpeak_claim": self.claim.on_node,
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
    answers: Path | None = None
    """What its launch answered, where that was measured."""


def run_trial(
    request: TrialRequest,
    site: TrialSite,
    *,
    on_files: Callable[[RequestFiles], None],
    on_event: Callable[[Event], None],
    is_overlapped: Callable[[], bool] = lambda: False,
    let_lapse: Callable[[], float | None] = lambda: None,
) -> TrialResult:
    """Carry the trial out; returns in every case, with production as the request says or the reason why not.

    Once `is_overlapped` answers True, somebody has started production, and the trial is cut short. `let_lapse` is
    called when the trial's own end did not get through: from then on the lease must not be renewed. It says when the
    node was last heard, in seconds since the epoch.
    """
    evidence = TrialEvidence(request=request, started_at=datetime.now(UTC), started_mono_s=time.monotonic())
    try:
        argv = request.argv()
        files = write_requests(
            request,
            inside(site.folder, request.trial_id),
            argv=argv,
            started_at_unix_s=evidence.started_at.timestamp(),
            secret=site.secret,
            claim=site.claim,
            production_at_start=site.production_at_start.get(request.node.name),
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
        return site.interrupt.gentle() or is_overlapped()

    main = _play("trial.yml", request, site, files, _without_skipped_load(on_event), is_cut_short)
    if _is_refused(main):
        _renew(request, site)
        main = _play("trial.yml", request, site, files, _without_skipped_load(on_event), is_cut_short)
    launch, finished, failure = _of_this_version(main, request, site)
    evidence = replace(
        evidence,
        argv=tuple(argv),
        output=files.output,
        launch=launch,
        finish=finished or FinishAnswer(),
        spans=dict(main.spans),
        failure=failure,
        unreachable=main.unreachable,
        cancelled=site.interrupt.gentle() and finished is None,
        overlapped=is_overlapped(),
    )
    if finished is None:
        evidence = _give_back(evidence, site, files, on_event, heard_at_unix_s=let_lapse())
    record, log_text = trial_record(evidence, site.provenance)
    parquet = files.output / "requests.parquet"
    return TrialResult(
        record=record,
        requests_parquet=parquet if parquet.is_file() else None,
        log_text=log_text,
        answers=files.answers,
        node_trouble=_node_trouble(evidence, record),
    )


def _is_refused(result: NodeResult) -> bool:
    """Whether the node refused the launch, touching nothing, because its script is of another version."""
    launch = result.answers.get("launch")
    return launch is not None and launch.error is not None and launch.error.code == "version"


def _renew(request: TrialRequest, site: TrialSite) -> None:
    """Put this controller's node script on the node again, where a trial has the rights for that."""
    if not request.node.guard_command:
        install(site.inventory, nodes=[request.node.name], cancelled=site.interrupt.gentle)


def _of_this_version(
    result: NodeResult, request: TrialRequest, site: TrialSite
) -> tuple[LaunchAnswer, FinishAnswer | None, str | None]:
    """The launch's and the finish's answers, and what failed; of another version's, only how production stands."""
    finish = result.answer(FinishAnswer)
    if not any(map(is_another, result.answers.values())):
        return result.answer(LaunchAnswer) or LaunchAnswer(), finish, result.failure
    restored = FinishAnswer(restoration=finish.restoration) if finish and finish.restoration else None
    return LaunchAnswer(), restored, renewal(site.inventory, request.node.name)


def _give_back(
    evidence: TrialEvidence,
    site: TrialSite,
    files: RequestFiles,
    on_event: Callable[[Event], None],
    *,
    heard_at_unix_s: float | None,
) -> TrialEvidence:
    """Tear down a trial whose own finish did not answer: finish.yml until the guard must have acted, else restore.yml.

    Either answers for the guard too, with how long production was down.
    """
    _end_client(files)
    request = evidence.request
    write_finish(request, files, claim=site.claim, restore_production=True, keep_lock=False)
    deadlines = request.spec.deadlines
    longest_s = request.lease_s + deadlines.engine_stop_s + deadlines.production_ready_s
    until_s = time.monotonic() + min(_LONGEST_WAIT_S, longest_s)
    while True:
        with site.stores.restoring(request.node.name, site.interrupt.abrupt):
            again = _play("finish.yml", request, site, files, on_event, site.interrupt.abrupt)
        if (answer := again.answer(FinishAnswer)) is not None:
            return replace(evidence, finish=answer, spans={**evidence.spans, **again.spans})
        if site.interrupt.abrupt() or time.monotonic() >= until_s:
            break
        time.sleep(_AGAIN_S)
    with site.stores.restoring(request.node.name, site.interrupt.let_go):
        restored = _play("restore.yml", request, site, files, on_event, site.interrupt.let_go)
    outcome = restored_by(restored, site.claim.holder, request.trial_id)
    if not outcome.restored and outcome.downtime_s is None:
        outcome = replace(outcome, downtime_s=_down_at_least_s(evidence, heard_at_unix_s))
    return replace(
        evidence,
        finish=FinishAnswer(restoration=outcome),
        spans={**evidence.spans, **restored.spans},
    )


def _down_at_least_s(evidence: TrialEvidence, heard_at_unix_s: float | None) -> float | None:
    """How long production was down until the node was last heard; None where it may never have been stopped.

    What came after is not known here: the node's guard gives back without being asked.
    """
    if evidence.launch.production is None or not evidence.launch.production.running:
        return None
    began = evidence.spans.get("launch")
    stops = [phase for phase in evidence.launch.phases if phase.name == "production_stop"]
    if began is None or not stops:
        return None
    return max(0.0, max(began[1], heard_at_unix_s or 0.0) - began[0] - stops[0].started_s)


def _without_skipped_load(on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """`on_event`, less the start of a load that Ansible announces and then skips because the engine is not ready."""
    ready = False

    def hear(event: Event) -> None:
        nonlocal ready
        if isinstance(event.answer, LaunchAnswer):
            ready = bool(event.answer.ready)
        if ready or event.step != "load":
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
    request: TrialRequest,
    site: TrialSite,
    files: RequestFiles,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> NodeResult:
    """The playbook on the request's node; an Ansible that could not run is a failure of the node's."""
    if cancelled():
        return NodeResult(failure=f"{playbook} was not run: the sweep was interrupted")
    try:
        done = run_playbook(
            playbook,
            site.inventory,
            nodes=[request.node.name],
            extravars={**files.extravars(), **site.restore_extravars(request.node.name)},
            on_event=on_event,
            cancelled=cancelled,
        )
    except NodeError as error:
        return NodeResult(failure=str(error))
    result = done.nodes[request.node.name]
    if result.fenced is not None:
        site.claim.lose(result.fenced)
    return result


def _node_trouble(evidence: TrialEvidence, record: TrialRecord) -> str | None:
    if evidence.unreachable:
        return f"{record.node} became unreachable: {evidence.unreachable}"
    if record.restoration is not None and not record.restoration.restored:
        return f"{record.node}: production is not back: {record.restoration.message}"
    if evidence.launch.production_found_down:
        return (
            f"{record.node}: production had ended by itself before trial {record.trial_id}, though it served when the "
            "sweep began; it is back: see its log"
        )
    if record.status == "interrupted" and not evidence.cancelled and record.failure is not None:
        return f"{record.node}: {record.failure.message}"
    return None
