"""Node worker: the lease, the trials and the restore of a node that is borrowed from production."""

import time
from collections.abc import Callable

from tokenpeak.errors import TokenpeakError
from tokenpeak.node.production.answering import standing
from tokenpeak.node.protocol.parts import Overlap
from tokenpeak.sweep.ansible.heartbeat_channel import LeaseChannel
from tokenpeak.sweep.ansible.login_failures import Login
from tokenpeak.sweep.ansible.result import Event, restored_by, unknown
from tokenpeak.sweep.downtime_budget import Later
from tokenpeak.sweep.limits import lease_offset_s
from tokenpeak.sweep.trial.execution import TrialResult, run_trial
from tokenpeak.sweep.trial.request import TrialRequest
from tokenpeak.sweep.trial.worker import Worker

_HEARD_WITHIN_S = 30.0
"""A connection and a login of a slow node."""
_HEARD_POLL_S = 2.0


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
