"""One trial from its request to its record: launch, load, finish, whatever happens in between.

Its steps are tasks of trial.yml (see trial_play). The finish always follows. When the node cannot be reached, or the
trial is cut short (a signal, production that somebody started), the lease is renewed no more, so that the node's guard
gives production back should nobody else; the finish is tried until it gets through, then a restore.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tokenpeak.errors import PlanError
from tokenpeak.node.machine import clock
from tokenpeak.node.production.answering import standing
from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.node.protocol.parts import RestoreOutcome
from tokenpeak.node.protocol.requests import RestoreRequest, as_json
from tokenpeak.paths import inside
from tokenpeak.records import Production, Provenance, TrialRecord
from tokenpeak.sweep.ansible.result import Event, NodeResult, restored_by
from tokenpeak.sweep.claim import SweepClaim
from tokenpeak.sweep.installation import MasterSecret, install, is_another, renewal
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.limits import StoreLimiter
from tokenpeak.sweep.trial.load_hosts import LoadHostScheduler
from tokenpeak.sweep.trial.play import Assignment, TrialPlay
from tokenpeak.sweep.trial.record import TrialEvidence, trial_record
from tokenpeak.sweep.trial.request import RequestFiles, TrialRequest, at_start, write_finish, write_requests

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
    load_hosts: LoadHostScheduler
    provenance: Provenance
    interrupt: Interrupt
    play: TrialPlay
    production_at_start: Mapping[str, Production]
    """What production was on each node when the sweep began: decided once, whatever happens to it since."""

    def on_node(
        self,
        node: Node,
        assignment: Assignment,
        on_event: Callable[[Event], None],
        *,
        let_go: Callable[[], bool],
        cut_short: Callable[[], bool] = lambda: False,
    ) -> NodeResult:
        """Carry the assignment out on the node, where the sweep is still this controller's."""
        if let_go() or cut_short():
            return NodeResult(failure=f"{', '.join(assignment)} was not asked for: the sweep was interrupted")
        result = self.play.carry_out(node.name, assignment, on_event=on_event, cut_short=cut_short, let_go=let_go)
        if result.fenced is not None:
            self.claim.lose(result.fenced)
        return result

    def restore(self, node: Node, on_event: Callable[[Event], None] = lambda _: None) -> NodeResult:
        """Ask the node to give itself back: for whom, and as what it served when the sweep began."""
        began = at_start(self.production_at_start.get(node.name))
        request = RestoreRequest(holder=self.claim.holder, claim=self.claim.on_node, production_at_start=began)
        with self.stores.restoring(node.name, self.interrupt.let_go):
            return self.on_node(node, {"restore": as_json(request)}, on_event, let_go=self.interrupt.let_go)


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
    held: str | None = None
    """The node's sentence where a person has given it back from the sweep, and no trial begins there any more."""
    drifted: str | None = None
    """How production is back where somebody has changed its definition meanwhile."""


def run_trial(
    request: TrialRequest,
    site: TrialSite,
    *,
    on_event: Callable[[Event], None],
    is_overlapped: Callable[[], bool] = lambda: False,
    let_lapse: Callable[[], float | None] = lambda: None,
) -> TrialResult:
    """Carry the trial out; returns in every case, with production as the request says or the reason why not.

    Once `is_overlapped` answers True, somebody has started production, and the trial is cut short. `let_lapse` is
    called when the trial's own end did not get through: from then on the lease must not be renewed. It says when the
    node was last heard, in seconds since the epoch.
    """
    evidence = TrialEvidence(request=request, started_at=datetime.now(UTC), started_boot_s=clock.boot_s())
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
            record=trial_record(evidence, site.provenance, refused=str(error))[0],
            requests_parquet=None,
            log_text="",
            node_trouble=None,
        )

    def is_cut_short() -> bool:
        return site.interrupt.gentle() or is_overlapped()

    def steps() -> NodeResult:
        """Launch, load where the engine is ready, finish; no further than to a trial that is cut short."""
        assignment = {"launch": str(files.launch), "job": str(files.job), "finish": str(files.finish)}
        abrupt = site.interrupt.abrupt
        return site.on_node(request.node, assignment, on_event, let_go=abrupt, cut_short=is_cut_short)

    main = steps()
    if _is_refused(main):
        _renew(request, site)
        main = steps()
    launch, finished, failure = _of_this_version(main, request, site)
    evidence = replace(
        evidence,
        argv=tuple(argv),
        output=files.output,
        launch=launch,
        finish=finished or FinishAnswer(),
        spans=dict(main.spans),
        failure=failure,
        own_task_failed=main.is_own_task,
        unreachable=main.unreachable,
        cancelled=site.interrupt.gentle() and finished is None,
        overlapped=is_overlapped(),
    )
    if finished is None:
        evidence = _give_back(evidence, site, files, on_event, heard_at_unix_s=let_lapse())
    elif finished.given_back_by == "another":
        evidence = _with_own_account(evidence, heard_at_unix_s=let_lapse())
    record, log_text = trial_record(evidence, site.provenance)
    parquet = files.output / "requests.parquet"
    return TrialResult(
        record=record,
        requests_parquet=parquet if parquet.is_file() else None,
        log_text=log_text,
        answers=files.answers,
        node_trouble=_node_trouble(evidence, record),
        held=main.held,
        drifted=_drifted(evidence.finish.restoration),
    )


def _drifted(outcome: RestoreOutcome | None) -> str | None:
    return outcome.message if outcome is not None and outcome.definition == "changed" else None


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
    """Tear down a trial whose own finish did not answer: ask for it until the guard must have acted, else restore.

    Either answers for the guard too, with how long production was down.
    """
    request = evidence.request
    write_finish(request, files, claim=site.claim, restore_production=True, keep_lock=False)
    deadlines = request.spec.deadlines
    longest_s = request.lease_s + deadlines.engine_stop_s + deadlines.production_ready_s
    until_s = time.monotonic() + min(_LONGEST_WAIT_S, longest_s)
    while True:
        with site.stores.restoring(request.node.name, site.interrupt.abrupt):
            again = site.on_node(request.node, {"finish": str(files.finish)}, on_event, let_go=site.interrupt.abrupt)
        if (answer := again.answer(FinishAnswer)) is not None:
            return replace(evidence, finish=answer, spans={**evidence.spans, **again.spans})
        if site.interrupt.abrupt() or time.monotonic() >= until_s:
            break
        time.sleep(_AGAIN_S)
    restored = site.restore(request.node, on_event)
    outcome = restored_by(restored, site.claim.holder, request.trial_id)
    if not outcome.restored and outcome.downtime_s is None:
        outcome = replace(outcome, downtime_s=_down_at_least_s(evidence, heard_at_unix_s))
    return replace(
        evidence,
        finish=FinishAnswer(restoration=outcome),
        spans={**evidence.spans, **restored.spans},
    )


def _with_own_account(evidence: TrialEvidence, *, heard_at_unix_s: float | None) -> TrialEvidence:
    """The outage of a trial whose node another has now, as far as it was seen here, where the node cannot say more."""
    outcome = evidence.finish.restoration
    if outcome is None or outcome.downtime_s is not None:
        return evidence
    seen = replace(outcome, downtime_s=_down_at_least_s(evidence, heard_at_unix_s))
    return replace(evidence, finish=replace(evidence.finish, restoration=seen))


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


def _node_trouble(evidence: TrialEvidence, record: TrialRecord) -> str | None:
    if evidence.unreachable:
        return f"{record.node} became unreachable: {evidence.unreachable}"
    outcome = evidence.finish.restoration
    if outcome is not None and not outcome.restored:
        return f"{record.node}: {standing(outcome.restored)}: {outcome.message}"
    if evidence.launch.production_found_down:
        return (
            f"{record.node}: production had ended by itself before trial {record.trial_id}, though it served when the "
            "sweep began; it is back: see its log"
        )
    if record.status == "interrupted" and not evidence.cancelled and record.failure is not None:
        return f"{record.node}: {record.failure.message}"
    return None
