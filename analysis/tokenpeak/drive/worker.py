"""One node's part of a sweep: trial after trial, and production given back at the end whatever happened."""

import threading
import traceback
from collections.abc import Callable

from tokenpeak.drive.lease import LeaseChannel, lease_command
from tokenpeak.drive.ledger import Ledger
from tokenpeak.drive.order import TrialOrder
from tokenpeak.drive.probe import ReadyNode
from tokenpeak.drive.progress import Progress
from tokenpeak.drive.runner import run_playbook
from tokenpeak.drive.trial import TrialSite, restoration_of, run_trial
from tokenpeak.errors import TokenpeakError
from tokenpeak.plan.spec import SweepSpec
from tokenpeak.records import Restoration, TrialRecord
from tokenpeak.search.history import Proposal, Stop
from tokenpeak.store.raw import Archive

_TROUBLES_ALLOWED = 2


class NodeWorker(threading.Thread):
    """A thread that drives one node. When it has ended, `problems` and `restoration` say how."""

    def __init__(
        self,
        *,
        node: str,
        ready: ReadyNode,
        spec: SweepSpec,
        sweep_id: str,
        site: TrialSite,
        ledger: Ledger,
        archive: Archive,
        progress: Progress,
        describe: Callable[[TrialRecord], tuple[str, str]],
    ) -> None:
        super().__init__(name=f"node {node}")
        self.node = node
        self.problems: list[str] = []
        self.restoration: Restoration | None = None
        self.downtime_s = 0.0
        self._ready = ready
        self._spec = spec
        self._sweep_id = sweep_id
        self._site = site
        self._ledger = ledger
        self._archive = archive
        self._progress = progress
        self._describe = describe

    def run(self) -> None:
        """Work until the search stops, the user stops it, or the node is in trouble; then restore the node."""
        try:
            argv = lease_command(self._site.inventory.node(self.node), dict(self._ready.declaration))
            with LeaseChannel(argv, self._spec.deadlines.lease_s):
                try:
                    self._work()
                finally:
                    self._restore()
        except Exception as error:  # whatever it was, the other nodes go on and the sweep says so at its end
            self._complain(f"{self.node}: this node's worker crashed: {type(error).__name__}: {error}")
            self.problems.append("".join(traceback.format_exception(error)))

    def _work(self) -> None:
        troubles = 0
        hardware = self._ready.facts.hardware
        while not self._site.stop.gentle():
            claim = self._ledger.claim(hardware)
            if isinstance(claim, Stop):
                return
            trouble = self._trial(hardware, *claim)
            troubles = troubles + 1 if trouble else 0
            if trouble:
                self._complain(trouble)
            if troubles >= _TROUBLES_ALLOWED:
                self._complain(f"{self.node} is left out from here on: {troubles} troubles in a row.")
                return

    def _trial(self, hardware: str, proposal: Proposal, trial_id: str) -> str | None:
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
        )
        self._progress.trial_begins(self.node, trial_id, order.config.name, proposal.reason)
        settled = False
        try:
            result = run_trial(
                order,
                self._site,
                on_files=lambda files: self._progress.follow(self.node, files.progress),
                on_event=lambda event: self._progress.phase(self.node, event.task) if event.kind == "started" else None,
            )
            self._archive.write_trial(result.record, result.requests_parquet, result.log_text)
            self._ledger.settle(proposal, result.record)
            settled = True
        finally:
            if not settled:
                self._ledger.abandon(hardware, proposal)
        self._progress.trial_ended(result.record, *self._describe(result.record))
        if result.record.restoration is not None:
            self.downtime_s += result.record.restoration.downtime_s or 0.0
        return result.node_trouble

    def _restore(self) -> None:
        """Give the node back for good: production as recorded, lock released. A node that is free stays as it is."""
        try:
            result = run_playbook(
                "restore.yml", self._site.inventory, nodes=[self.node], cancelled=self._site.stop.let_go
            ).nodes[self.node]
        except TokenpeakError as error:
            self.restoration = restoration_of(None, str(error))
            return
        reason = result.unreachable or result.failure or "restore.yml gave no answer"
        self.restoration = restoration_of(result.answers.get("restore"), reason)
        self.downtime_s += self.restoration.downtime_s or 0.0
        if not self.restoration.restored:
            self._complain(f"{self.node}: production is not back: {self.restoration.message}")

    def _complain(self, problem: str) -> None:
        self.problems.append(problem)
        self._progress.say(f"PROBLEM {problem}")
