"""One node's part of a sweep: trial after trial, and production given back at the end whatever happened."""

import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from tokenpeak.drive.allowance import Allowance, Granted, Later, Never
from tokenpeak.drive.lease import LeaseChannel, lease_command
from tokenpeak.drive.ledger import Ledger
from tokenpeak.drive.load_hosts import load_hosts
from tokenpeak.drive.order import RequestFiles, TrialOrder
from tokenpeak.drive.probe import ReadyNode
from tokenpeak.drive.progress import Progress
from tokenpeak.drive.runner import Event, run_playbook
from tokenpeak.drive.trial import TrialResult, TrialSite, restoration_of, run_trial
from tokenpeak.drive.turns import Turns
from tokenpeak.errors import ArchiveError, TokenpeakError
from tokenpeak.node.protocol import limits
from tokenpeak.plan.spec import SweepSpec
from tokenpeak.records import TrialRecord
from tokenpeak.search.history import Proposal, Stop, Wait
from tokenpeak.store.raw import Archive

_TROUBLES_ALLOWED = 2
_CLOCK_POLL_S = 20.0
"""A pause ends by the time of day, which may be set meanwhile."""
_WRITE_AGAIN_S = 5.0


class Worker(threading.Thread, ABC):
    """A thread that makes the trials of one node. When it has ended, `problems` and `owes` say how.

    It has a turn while its production is down and while a playbook runs; without one it waits.
    """

    gives_back = True
    """Whether it borrows the node from production."""

    def __init__(
        self,
        *,
        node: str,
        ready: ReadyNode,
        spec: SweepSpec,
        sweep_id: str,
        site: TrialSite,
        ledger: Ledger,
        allowance: Allowance,
        turns: Turns,
        owes: bool,
        archive: Archive,
        progress: Progress,
        describe: Callable[[TrialRecord], tuple[str, str]],
    ) -> None:
        super().__init__(name=f"node {node}")
        self.node = node
        self.problems: list[str] = []
        self.owes = owes
        """Whether the node has yet to be given back: a trial had it, and its production is not known to serve."""
        self._ready = ready
        self._spec = spec
        self._sweep_id = sweep_id
        self._site = site
        self._ledger = ledger
        self._allowance = allowance
        self._turns = turns
        self._has_turn = False
        self._is_down = False
        """Whether production may be down for a trial of this turn."""
        self._troubles = 0
        self._archive = archive
        self._progress = progress
        self._describe = describe

    def run(self) -> None:
        """Work until the search stops, the user stops it, or the node is in trouble; then restore the node."""
        try:
            later = self._session()
            while later is not None:
                self._pause(later)
                later = self._session()
        except Exception as error:  # whatever it was, the other nodes go on and the sweep says so at its end
            words = f"{self.node}: this node's worker crashed: {type(error).__name__}: {error}"
            self._complain(words + "\n" + "".join(traceback.format_exception(error)))

    def _session(self) -> Later | None:
        """Trials in a row; when to go on, if that is another day."""
        try:
            return self._work()
        finally:
            self._set_free()

    def _set_free(self) -> None:
        """Give the node back, and let another have the turn."""
        try:
            if self.owes:
                self._take_turn()
                self._restore()
        finally:
            self._end_turn()

    def _take_turn(self) -> None:
        """Wait for a turn, unless the node has one."""
        if not self._has_turn:
            self._turns.take()
            self._has_turn = True

    def _end_turn(self) -> None:
        """Let another node have the turn, if this one has it."""
        if self._has_turn:
            self._turns.give_back()
        self._has_turn = self._is_down = False

    def _restore(self) -> None:
        """Give the node back for good."""
        self.owes = False

    @abstractmethod
    def _carry_out(
        self, order: TrialOrder, on_files: Callable[[RequestFiles], None], on_event: Callable[[Event], None]
    ) -> TrialResult:
        """Make one trial; returns in every case."""

    def _pause(self, later: Later) -> None:
        """Wait for the window to open, or for the user to end the sweep; production serves meanwhile."""
        self._progress.say(f"{self.node} pauses until {later.until:%Y-%m-%d %H:%M} UTC: {later.reason}")
        while (left := later.until - datetime.now(UTC)) > timedelta(0):
            if self._site.stop.asked.wait(min(_CLOCK_POLL_S, left.total_seconds())):
                return

    def _work(self) -> Later | None:
        hardware = self._ready.facts.hardware
        while True:
            self._take_turn()
            if self._site.stop.gentle():
                return None
            # Asked before a trial is claimed, so that a node that may not begin keeps none from another.
            allowed = self._allowance.ask(self.node, hardware)
            if isinstance(allowed, Later):
                return None if self._ledger.is_finished(hardware) else allowed
            if isinstance(allowed, Never):
                return None
            seen = self._ledger.changes(hardware)
            claim = self._ledger.claim(hardware)
            if isinstance(claim, Stop | Wait):
                self._allowance.settle(self.node, None)
            if isinstance(claim, Stop):
                return None
            if isinstance(claim, Wait):
                if not self._is_down:
                    self._end_turn()
                self._ledger.wait(hardware, seen)
                continue
            trouble = self._trial(hardware, *claim, allowed)
            if not self._is_down:
                self._end_turn()
            self._troubles = self._troubles + 1 if trouble else 0
            if trouble:
                self._complain(trouble)
            if self._troubles >= _TROUBLES_ALLOWED:
                self._complain(f"{self.node} is left out from here on: {self._troubles} troubles in a row.")
                return None

    def _trial(self, hardware: str, proposal: Proposal, trial_id: str, allowed: Granted) -> str | None:
        """Make one trial and record it; what is wrong with the node, if anything."""
        order = TrialOrder(
            sweep_id=self._sweep_id,
            trial_id=trial_id,
            spec=self._spec,
            node=self._site.inventory.node(self.node),
            facts=self._ready.facts,
            declaration=self._ready.declaration,
            planned=self._ledger.planned(hardware, proposal.config_id),
            replicate=proposal.replicate,
            engine_version=self._site.inventory.engine_version,
            restore_production=self._spec.restore == "per_trial",
            keep_lock=True,
            trial_deadline_s=min(allowed.deadline_s, limits(dict(self._ready.declaration))["trial_deadline_max_s"]),
            load_hosts=load_hosts(self._site.inventory),
            other_requests=proposal.other_requests,
            hopeless_beyond=proposal.hopeless_beyond,
        )
        self._progress.trial_begins(self.node, trial_id, order.config.name, proposal.reason)
        made: TrialRecord | None = None
        kept = False
        try:
            try:
                result = self._carry_out(
                    order,
                    lambda files: self._progress.follow(self.node, files.progress),
                    lambda event: self._progress.phase(self.node, event.task) if event.kind == "started" else None,
                )
                made = result.record
            finally:
                # Before the ledger's, so that whoever waits for this trial finds what it held back released.
                self._allowance.settle(self.node, made)
            self._keep(result)
            kept = True
            self._ledger.settle(proposal, result.record)
        finally:
            if not kept:
                self._ledger.abandon(hardware, proposal)
        self._progress.trial_ended(result.record, *self._describe(result.record))
        return result.node_trouble

    def _keep(self, result: TrialResult) -> None:
        """Write the trial to the archive; on a full disk it waits for room, while production serves."""
        told = False
        while True:
            asked = self._site.stop.gentle()
            try:
                self._archive.write_trial(result.record, result.requests_parquet, result.log_text)
            except ArchiveError as error:
                if asked:
                    raise
                if not told:
                    self._progress.say(
                        f"PROBLEM {self.node} {result.record.trial_id}: {error} The trial is kept until it can be "
                        "written; to end the sweep before is to lose it."
                    )
                    told = True
                    self._set_free()
                self._site.stop.asked.wait(_WRITE_AGAIN_S)
            else:
                return

    def _complain(self, problem: str) -> None:
        self.problems.append(problem)
        self._progress.say(f"PROBLEM {problem.splitlines()[0]}")


class NodeWorker(Worker):
    """Drives a node that is borrowed: leased from its first trial on, given back after each row of trials."""

    _is_leased = False

    def _session(self) -> Later | None:
        # The lease goes on between turns, so that no other sweep takes the node.
        with ExitStack() as self._lease:
            self._is_leased = False
            return super()._session()

    def _carry_out(
        self, order: TrialOrder, on_files: Callable[[RequestFiles], None], on_event: Callable[[Event], None]
    ) -> TrialResult:
        if not self._is_leased:
            argv = lease_command(self._site.inventory.node(self.node), dict(self._ready.declaration))
            self._lease.enter_context(LeaseChannel(argv, self._spec.deadlines.lease_s, self._warn_of_lease))
            self._is_leased = True
        self.owes = self._is_down = True
        result = run_trial(order, self._site, on_files=on_files, on_event=on_event)
        restoration = result.record.restoration
        self._is_down = restoration is None or not restoration.restored
        return result

    def _warn_of_lease(self, words: str) -> None:
        lease_s = self._spec.deadlines.lease_s
        self._progress.say(
            f"WARNING {self.node}: the connection that renews its lease ended: {words}. It is opened anew; should that "
            f"go on for {lease_s:g} s, the node gives itself back and the trial is lost."
        )

    def _restore(self) -> None:
        """Give the node back for good: production as recorded, lock released.

        A node that is free, or that another sweep has, stays as it is.
        """
        try:
            result = run_playbook(
                "restore.yml",
                self._site.inventory,
                nodes=[self.node],
                extravars={"tokenpeak_restore_holder": self._site.holder},
                cancelled=self._site.stop.let_go,
            ).nodes[self.node]
            reason = result.unreachable or result.failure or "restore.yml gave no answer"
            restoration = restoration_of(result.answers.get("restore"), reason)
        except TokenpeakError as error:
            restoration = restoration_of(None, str(error))
        self._allowance.add_downtime(self.node, restoration.downtime_s or 0.0)
        self.owes = not restoration.restored
        if self.owes:
            self._complain(f"{self.node}: production is not back: {restoration.message}")
