"""Worker of one node: trial after trial, and production restored at the end whatever happened."""

import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tokenpeak.errors import ArchiveError, FencedError, TokenpeakError
from tokenpeak.files import refusal
from tokenpeak.loadgen.workers.remote import LoadHost
from tokenpeak.node.guard import lease
from tokenpeak.node.production.answering import standing
from tokenpeak.node.protocol.parts import Overlap
from tokenpeak.node.protocol.requests import limits
from tokenpeak.paths import inside
from tokenpeak.records import TrialRecord
from tokenpeak.results.board_readings import ASKED_S
from tokenpeak.search.history import Finished, Proposal, Wait
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.ansible.heartbeat_channel import LeaseChannel
from tokenpeak.sweep.ansible.result import Event, Login, restored_by, unknown
from tokenpeak.sweep.archive_keeper import AnswersKeeper, KeptArchive
from tokenpeak.sweep.downtime_budget import DowntimeBudget, Granted, Later, Never
from tokenpeak.sweep.limits import ConcurrencyLimiter, NodeFailures, lease_offset_s
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.progress import Notifier, ProgressDisplay
from tokenpeak.sweep.terminal_summary import trial_words
from tokenpeak.sweep.trial.execution import TrialResult, TrialSite, run_trial
from tokenpeak.sweep.trial.request import RequestFiles, TrialRequest
from tokenpeak.sweep.trial_queue import TrialQueue

_MOST_FAILURES = 2
_CLOCK_POLL_S = 20.0
"""A pause ends by the time of day, which may be set meanwhile."""
_WRITE_AGAIN_S = 5.0
_HEARD_WITHIN_S = 30.0
"""A connection and a login of a slow node."""
_HEARD_POLL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """Parts of a sweep that the workers of all nodes share."""

    spec: SweepSpec
    site: TrialSite
    trial_queue: TrialQueue
    budget: DowntimeBudget
    limiter: ConcurrencyLimiter
    node_failures: NodeFailures
    archive: KeptArchive
    answers: AnswersKeeper
    progress: ProgressDisplay
    notifier: Notifier


class Worker(threading.Thread, ABC):
    """A thread that makes the trials of one node. When it has ended, `problems` and `restore_pending` say how.

    It holds a slot of the concurrency limiter while its production is down and while a playbook runs.
    """

    gives_back = True
    """Whether it borrows the node from production."""

    def __init__(self, shared: SharedParts, *, node: str, ready: ReadyNode, restore_pending: bool) -> None:
        super().__init__(name=f"node {node}")
        self.node = node
        self.problems: list[str] = []
        self.restore_pending = restore_pending
        """Whether production must still be brought back: a trial had the node, and production is not known to serve."""
        self.is_left_out = False
        """Whether the sweep goes on without the node, which failed too often."""
        self._shared = shared
        self._ready = ready
        self._has_slot = False
        self._is_down = False
        """Whether production may be down for a trial of this session."""
        self._is_unrestored = False
        """Whether production was not seen back after the last attempt to restore it."""
        self._held: str | None = None
        """What the node said once a person had given it back from the sweep."""
        self._failures = 0
        self._is_idle_known = False
        """Whether a trial of this session has measured the node's idle power."""

    def run(self) -> None:
        """Work until the search stops, the user stops it, or the node fails; then restore the node."""
        try:
            while (later := self._session()) is not None:
                self._pause(later)
        except FencedError:
            self._shared.site.interrupt.asked.set()  # the controller says why, once, at the end
        except Exception as error:  # whatever it was, the other nodes go on and the sweep says so at its end
            words = refusal(error) if isinstance(error, OSError) else None
            if words or isinstance(error, TokenpeakError):
                go_on = f"Then go on with: tokenpeak sweep --resume {self._shared.site.claim.sweep_id}"
                self._complain(f"{self.node}: its trials ended: {words or error} {go_on}")
            else:
                crash = f"{self.node}: this node's worker crashed: {type(error).__name__}: {error}"
                self._complain(f"{crash}\n{''.join(traceback.format_exception(error))}")
        finally:
            self._shared.trial_queue.leave(self.node)

    def _session(self) -> Later | None:
        """Trials in a row; when to go on, if that is another day."""
        try:
            return self._work()
        finally:
            self._set_free()

    def _set_free(self) -> None:
        """Give the node back, and free its slot."""
        try:
            if self.restore_pending:
                self._acquire_slot(to_restore=True)
                self._restore()
        finally:
            self._release_slot()

    def _acquire_slot(self, *, to_restore: bool = False) -> str | None:
        """Wait for a slot, unless the node has one; why it can have none, where its group has too few that serve."""
        reason = None if self._has_slot else self._shared.limiter.acquire(self.node, to_restore=to_restore)
        self._has_slot = reason is None
        return reason

    def _release_slot(self) -> None:
        """Free the slot, if this node has one."""
        if self._has_slot:
            is_down = self._is_unrestored or (self._is_down and self.restore_pending)
            self._shared.limiter.release(self.node, serves=not is_down)
        self._has_slot = self._is_down = False

    def _restore(self) -> None:
        """Give the node back for good."""
        self.restore_pending = False

    def _hindrance(self) -> str | None:
        """Why no trial may begin on the node now; None when one may."""
        return None

    @abstractmethod
    def _carry_out(self, request: TrialRequest, on_event: Callable[[Event], None]) -> TrialResult:
        """Make one trial; returns in every case."""

    def _pause(self, later: Later) -> None:
        """Wait for the window to open, or for the user to end the sweep; production serves meanwhile."""
        self._shared.progress.say(f"{self.node} pauses until {later.until:%Y-%m-%d %H:%M} UTC: {later.reason}")
        while (left := later.until - datetime.now(UTC)) > timedelta(0):
            if self._shared.site.interrupt.asked.wait(min(_CLOCK_POLL_S, left.total_seconds())):
                return

    def _work(self) -> Later | None:
        hardware = self._shared.trial_queue.hardware_of(self.node)
        while True:
            refused = self._acquire_slot()
            if self._shared.site.interrupt.gentle():
                return None
            if refused is not None:
                self._complain(f"{self.node}: no trial begins there, its production serves on: {refused}.")
                return None
            if self._shared.node_failures.too_many:
                self._shared.trial_queue.close()
                return None
            # Asked before a trial is claimed, so that a node that may not begin keeps none from another.
            allowed = self._shared.budget.ask(self.node, hardware)
            if isinstance(allowed, Later):
                return None if self._shared.trial_queue.is_finished(hardware) else allowed
            if isinstance(allowed, Never):
                return None
            seen = self._shared.trial_queue.changes(hardware)
            claim = self._shared.trial_queue.claim(hardware, self.node)
            if isinstance(claim, Finished | Wait):
                self._shared.budget.settle(self.node, None)
                if isinstance(claim, Finished):
                    return None
                if claim.gives_back and self._is_down:
                    self._set_free()
                elif not self._is_down:
                    self._release_slot()
                self._shared.trial_queue.wait(hardware, seen)
                continue
            trouble = self._hindrance()
            if trouble:
                self._shared.budget.settle(self.node, None)
                self._shared.trial_queue.abandon(hardware, claim[0])
                if self._shared.site.interrupt.gentle():
                    return None
            else:
                with self._shared.site.load_hosts.held(self._shared.site.interrupt.gentle) as hosts:
                    trouble = self._trial(hardware, *claim, allowed, hosts)
            if not self._is_down:
                self._release_slot()
            if self._held is not None:
                held = lease.typed_for(self._held, self._shared.site.inventory.name)
                self._complain(f"{self.node} is left out from here on: {held}")
                self.is_left_out = True
                return None
            self._failures = self._failures + 1 if trouble else 0
            self._shared.node_failures.count(self.node, trouble)
            if trouble:
                self._complain(trouble)
            if self._failures >= _MOST_FAILURES:
                self._complain(f"{self.node} is left out from here on: {self._failures} failures in a row.")
                self.is_left_out = True
                self._shared.notifier.left_out(self.node, self._failures)
                return None

    def _trial(
        self, hardware: str, proposal: Proposal, trial_id: str, allowed: Granted, hosts: tuple[LoadHost, ...]
    ) -> str | None:
        """Make one trial, with the load of these hosts, and record it; what is wrong with the node, if anything."""
        deadlines = self._shared.spec.deadlines
        most_s = limits(dict(self._ready.declaration))["trial_deadline_max_s"]
        request = TrialRequest(
            sweep_id=self._shared.site.claim.sweep_id,
            trial_id=trial_id,
            spec=self._shared.spec,
            node=self._shared.site.inventory.node(self.node),
            facts=self._ready.facts,
            hardware=hardware,
            declaration=self._ready.declaration,
            planned=self._shared.trial_queue.planned(hardware, proposal.config_id),
            proposal=proposal,
            restore_production=self._shared.spec.restore == "per_trial",
            keep_lock=True,
            trial_deadline_s=min(allowed.deadline_s, most_s - deadlines.engine_stop_s - deadlines.production_ready_s),
            load_hosts=hosts,
            lease_offset_s=lease_offset_s(self._shared.site.inventory, self.node),
            quality=self._shared.answers.job(hardware, proposal.config_id),
            idle_s=ASKED_S if self._ready.facts.power_meters and not self._is_idle_known else 0.0,
        )
        files = RequestFiles(folder=inside(self._shared.site.folder, trial_id))
        self._shared.progress.trial_begins(self.node, trial_id, request.config.name, proposal.reason)
        self._shared.progress.follow(self.node, files.progress)
        made: TrialRecord | None = None
        kept = False
        try:
            try:
                result = self._carry_out(request, self._shared.progress.phase)
                made = result.record
                self._is_idle_known = self._is_idle_known or bool(made.idle_power)
            finally:
                # Before the trial queue's, so that whoever waits for this trial finds what it held back released.
                self._shared.budget.settle(self.node, made)
            self._keep(result)
            kept = True
            self._shared.answers.settle(result.record)
            self._shared.trial_queue.settle(proposal, result.record)
        finally:
            if not kept:
                self._shared.trial_queue.abandon(hardware, proposal)
        self._held = result.held
        judged = self._shared.answers.judged(result.record)
        value, best = trial_words(self._shared.spec, judged, self._shared.trial_queue.records)
        self._shared.progress.trial_ended(judged, value, best, self._shared.trial_queue.count())
        return result.node_trouble

    def _keep(self, result: TrialResult) -> None:
        """Write the trial to the archive; on a full disk it waits for room, while production serves."""
        is_shown = False
        while True:
            is_ending = self._shared.site.interrupt.gentle()
            try:
                kept = result.record, result.requests_parquet, result.log_text, result.answers
                self._shared.archive.write_trial(*kept)
                return
            except ArchiveError as error:
                if is_ending:
                    raise
                if not is_shown:
                    self._shared.progress.say(
                        f"PROBLEM {self.node} {result.record.trial_id}: {error} The trial is kept until it can be "
                        "written; to end the sweep before is to lose it."
                    )
                    is_shown = True
                    self._set_free()
                self._shared.site.interrupt.asked.wait(_WRITE_AGAIN_S)

    def _complain(self, problem: str) -> None:
        self.problems.append(problem)
        self._shared.progress.say(f"PROBLEM {problem.splitlines()[0]}")


class NodeWorker(Worker):
    """Drives a node that is borrowed: leased from its first trial on, given back after each row of trials."""

    _channel: LeaseChannel | None = None
    _trial_id: str | None = None
    _is_overlapped = False
    _over: frozenset[str] = frozenset()
    """Trials whose outage is over and counted: a node that could not note it reports it again."""

    def _session(self) -> Later | None:
        # The lease goes on while the node waits for a slot, so that no other sweep takes the node.
        try:
            return super()._session()
        finally:
            self._let_lapse()

    def _hindrance(self) -> str | None:
        """Production that is not back, or a lease that could not be renewed: in either case nothing is stopped."""
        if self._is_unrestored:
            self._restore()
            if self.restore_pending:
                return f"{self.node}: no trial begins there before its production is seen back"
        if self._channel is None:
            node = self._shared.site.inventory.node(self.node)
            self._channel = LeaseChannel(
                self._ready.lease,
                self._shared.site.claim.holder,
                self._shared.spec.deadlines.lease_s,
                self._warn_of_lease,
                self._take_overlap,
                Login.of(node.name, node.variables),
                claim=self._shared.site.claim.on_node,
                on_fenced=self._shared.site.claim.lose,
            )
            self._channel.__enter__()
        until_s = time.monotonic() + _HEARD_WITHIN_S
        while (problem := self._channel.problem(_HEARD_POLL_S)) is not None:
            if time.monotonic() >= until_s or self._shared.site.interrupt.gentle():
                break
        if problem is None:
            return None
        return f"{self.node}: its lease could not be renewed, so no trial begins there: {problem}"

    def _let_lapse(self) -> float | None:
        """Renew the lease no more; when the node last answered a renewal, in seconds since the epoch."""
        channel, self._channel = self._channel, None
        if channel is None:
            return None
        channel.__exit__()
        return channel.heard_at_unix_s

    def _carry_out(self, request: TrialRequest, on_event: Callable[[Event], None]) -> TrialResult:
        self._trial_id, self._is_overlapped = request.trial_id, False
        self.restore_pending = self._is_down = True
        result = run_trial(
            request,
            self._shared.site,
            on_event=on_event,
            is_overlapped=lambda: self._is_overlapped,
            let_lapse=self._let_lapse,
        )
        if result.drifted is not None:
            self._shared.progress.say(f"NOTE {self.node} {request.trial_id}: {result.drifted}")
        restoration = result.record.restoration
        self._is_down = restoration is None or not restoration.restored
        self._is_unrestored = restoration is not None and not restoration.restored
        if restoration is not None:
            self._shared.notifier.production(self.node, is_back=bool(restoration.restored))
            self._over |= {request.trial_id} if restoration.restored else set()
        return result

    def _take_overlap(self, noted: Overlap) -> None:
        """The node has seen production run in the midst of a trial: end the trial, if it is still the one."""
        if self._is_overlapped or (noted.trial_id, noted.holder) != (self._trial_id, self._shared.site.claim.holder):
            return
        self._is_overlapped = True
        self._shared.progress.say(
            f"PROBLEM {self.node} {self._trial_id}: somebody started production during the trial. The engine is ended, "
            "production is left to run, and the trial is made again."
        )

    def _warn_of_lease(self, words: str) -> None:
        lease_s = self._shared.spec.deadlines.lease_s + lease_offset_s(self._shared.site.inventory, self.node)
        self._shared.progress.say(
            f"WARNING {self.node}: the connection that renews its lease ended: {words}. It is opened anew; should that "
            f"go on for {lease_s:g} s, the node gives itself back and the trial is lost."
        )

    def _restore(self) -> None:
        """Give the node back for good: production as recorded, lock released.

        A node that is free, or that another sweep or controller has, stays as it is. Should this not get through, the
        guard acts.
        """
        self._let_lapse()
        if self._shared.site.claim.is_lost:
            return
        try:
            result = self._shared.site.restore(self._shared.site.inventory.node(self.node))
            if result.fenced is not None:
                return
            outcome = restored_by(result, self._shared.site.claim.holder, self._trial_id if self._is_down else None)
        except TokenpeakError as error:
            outcome = unknown(str(error))
        is_counted = outcome.trial_id in self._over
        self._shared.budget.add_downtime(
            self.node, None if is_counted else outcome.downtime_s, is_over=bool(outcome.restored)
        )
        self.restore_pending = self._is_unrestored = not outcome.restored
        self._shared.notifier.production(self.node, is_back=bool(outcome.restored))
        if self.restore_pending:
            self._complain(f"{self.node}: {standing(outcome.restored)}: {outcome.message}")
