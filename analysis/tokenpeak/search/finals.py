"""The end of a search: the best are launched again in randomized blocks, and the choice once more.

Blocks are fresh launches that no finalist was picked by, in an order drawn anew for each block, so that what changes on
the node meanwhile favours none of them. The last launch of all tells what the choice is worth: it is asked other
requests, and the choice was not made by it.
"""

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.plan.spec import SearchSpec
from tokenpeak.search.history import Outcome, Proposal, Stop, Wait, by_own_fault

FINALISTS = 3
"""Finalists of an adaptive search, where the spec does not say."""
FINAL_LAUNCHES = 3
"""Fresh launches of each finalist, at least."""


@dataclass(frozen=True, kw_only=True)
class Finals:
    """Launches of finalists, from replicate number `first` on; `sign` is −1 where the objective is to be low."""

    search: SearchSpec
    seed: str
    first: int
    sign: float

    def step(
        self, finalists: Sequence[str], why: str, done: Sequence[Outcome], pending: Collection[tuple[str, int]]
    ) -> Proposal | Wait | Stop:
        """The next launch of a finalist, of the choice, or the end; `why` is why the search went no further."""
        if not finalists:
            return Stop(reason=f"{why}; no config ran within the SLO")
        blocks = max(self.search.replicates, FINAL_LAUNCHES) if len(finalists) > 1 else 0
        final = range(self.first, self.first + blocks)
        taken = {(outcome.config_id, outcome.replicate) for outcome in done} | set(pending)
        failed = by_own_fault(done)
        for block, replicate in enumerate(final):
            order = random.Random(f"{self.seed} block {block}").sample(finalists, len(finalists))  # noqa: S311
            for config_id in order:
                if (config_id, replicate) not in taken and config_id not in failed:
                    reason = f"finalist, block {block + 1} of {blocks} ({why})"
                    return Proposal(config_id=config_id, replicate=replicate, reason=reason)
        if any(config_id in finalists and replicate in final for config_id, replicate in pending):
            return Wait(reason="the choice depends on finalists that are running")
        choice = self._choice(finalists, final, done)
        if choice is None:
            return Stop(reason=f"{why}; every finalist failed in a further launch")
        if (choice, final.stop) not in taken:
            reason = "the choice once more, asked other requests: a launch that it was not picked by"
            return Proposal(config_id=choice, replicate=final.stop, reason=reason, other_requests=True)
        return Wait(reason="the choice is being measured once more") if pending else Stop(reason=why)

    def _choice(self, finalists: Sequence[str], final: range, done: Sequence[Outcome]) -> str | None:
        """The finalist with the best mean over the blocks alone; None when all failed."""
        failed = by_own_fault(done)
        means: dict[str, float] = {}
        for config_id in finalists:
            values = [
                self.sign * math.log(outcome.value)
                for outcome in done
                if outcome.config_id == config_id
                and outcome.replicate in final
                and outcome.feasible
                and outcome.value is not None
            ]
            if config_id not in failed and (values or not final):
                means[config_id] = fmean(values) if values else 0.0
        return max(means, key=means.__getitem__, default=None)
