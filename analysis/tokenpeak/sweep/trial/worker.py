"""Worker of one node: trial after trial, and production restored at the end whatever happened."""

import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tokenpeak.errors import ArchiveError, FencedError, TokenpeakError
from tokenpeak.loadgen.workers.remote import LoadHost
from tokenpeak.names import inside
from tokenpeak.node.protocol.requests import limits
from tokenpeak.records import TrialRecord
from tokenpeak.results.board_readings import ASKED_S
from tokenpeak.search.history import Finished, Proposal, Wait
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.storage import refusal
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.archive_keeper import AnswersKeeper, KeptArchive
from tokenpeak.sweep.downtime_budget import DowntimeBudget, Granted, Later, Never
from tokenpeak.sweep.limits import ConcurrencyLimiter, NodeFailures, lease_offset_s
from tokenpeak.sweep.notification import Notifier
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.terminal_summary import trial_words
from tokenpeak.sweep.trial.execution import TrialResult, TrialSite
from tokenpeak.sweep.trial.request import RequestFiles, TrialRequest
from tokenpeak.sweep.trial_queue import TrialQueue

_MOST_FAILURES = 2
_CLOCK_POLL_S = 20.0
"""A pause ends by the time of day, which may be set meanwhile."""
_WRITE_AGAIN_S = 5.0


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """Parts of a sweep that the workers of all nodes share."""

    spec: SweepSpec
    sweep_id: str
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
            later = self._session()
            while later is not None:
                self._pause(later)
                later = self._session()
        except FencedError:
            self._shared.site.interrupt.asked.set()  # the controller says why, once, at the end
        except TokenpeakError as error:
            self._complain(f"{self.node}: its trials ended: {error} {self._go_on}")
        except OSError as error:
            if (words := refusal(error)) is None:
                self._crashed(error)
            else:
                self._complain(f"{self.node}: its trials ended: {words} {self._go_on}")
        except Exception as error:  # whatever it was, the other nodes go on and the sweep says so at its end
            self._crashed(error)
        finally:
            self._shared.trial_queue.leave(self.node)

    def _crashed(self, error: Exception) -> None:
        words = f"{self.node}: this node's worker crashed: {type(error).__name__}: {error}"
        self._complain(words + "\n" + "".join(traceback.format_exception(error)))

    @property
    def _go_on(self) -> str:
        return f"Then go on with: tokenpeak sweep --resume {self._shared.sweep_id}"

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
        if self._has_slot:
            return None
        reason = self._shared.limiter.acquire(self.node, to_restore=to_restore)
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
            if isinstance(claim, Wait):
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
                self._complain(f"{self.node} is left out from here on: {self._held}")
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

    def _show_step(self, event: Event) -> None:
        if event.kind == "started" and event.step is not None:
            self._shared.progress.phase(self.node, event.step)

    def _trial(
        self, hardware: str, proposal: Proposal, trial_id: str, allowed: Granted, hosts: tuple[LoadHost, ...]
    ) -> str | None:
        """Make one trial, with the load of these hosts, and record it; what is wrong with the node, if anything."""
        deadlines = self._shared.spec.deadlines
        most_s = limits(dict(self._ready.declaration))["trial_deadline_max_s"]
        request = TrialRequest(
            sweep_id=self._shared.sweep_id,
            trial_id=trial_id,
            spec=self._shared.spec,
            node=self._shared.site.inventory.node(self.node),
            facts=self._ready.facts,
            hardware=hardware,
            declaration=self._ready.declaration,
            planned=self._shared.trial_queue.planned(hardware, proposal.config_id),
            replicate=proposal.replicate,
            restore_production=self._shared.spec.restore == "per_trial",
            keep_lock=True,
            trial_deadline_s=min(allowed.deadline_s, most_s - deadlines.engine_stop_s - deadlines.production_ready_s),
            load_hosts=hosts,
            lease_offset_s=lease_offset_s(self._shared.site.inventory, self.node),
            holdout=proposal.holdout,
            quality=self._shared.answers.job(hardware, proposal.config_id),
            early_stop_threshold=proposal.early_stop_threshold,
            idle_s=ASKED_S if self._ready.facts.power_meters and not self._is_idle_known else 0.0,
        )
        files = RequestFiles(folder=inside(self._shared.site.folder, trial_id))
        self._shared.progress.trial_begins(self.node, trial_id, request.config.name, proposal.reason)
        self._shared.progress.follow(self.node, files.progress)
        made: TrialRecord | None = None
        kept = False
        try:
            try:
                result = self._carry_out(request, self._show_step)
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
            asked = self._shared.site.interrupt.gentle()
            try:
                self._shared.archive.write_trial(
                    result.record, result.requests_parquet, result.log_text, result.answers
                )
            except ArchiveError as error:
                if asked:
                    raise
                if not is_shown:
                    self._shared.progress.say(
                        f"PROBLEM {self.node} {result.record.trial_id}: {error} The trial is kept until it can be "
                        "written; to end the sweep before is to lose it."
                    )
                    is_shown = True
                    self._set_free()
                self._shared.site.interrupt.asked.wait(_WRITE_AGAIN_S)
            else:
                return

    def _complain(self, problem: str) -> None:
        self.problems.append(problem)
        self._shared.progress.say(f"PROBLEM {problem.splitlines()[0]}")
