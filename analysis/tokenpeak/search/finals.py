"""Finals: the finalists are launched again in randomized blocks, and the choice in a holdout run.

Blocks are fresh launches that did not select the finalists, in an order drawn anew for each block, so that what changes
on the node meanwhile favours none of them. Of several nodes each is given the finalist that it launched least often, so
that every finalist meets fast and slow ones; what they differ by is not in its mean. The holdout run measures the
choice on fresh requests, which did not select it.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.ranking.nodes import node_effects
from tokenpeak.records import Plan
from tokenpeak.search.history import Finished, Outcome, Proposal, Wait, by_own_fault, compares
from tokenpeak.spec.sweep import SearchSpec

FINALISTS = 3
"""Finalists of an adaptive search, where the spec does not say."""
SCREENING_LAUNCHES = 2
"""An adaptive search launches a config at most so often before; later launches have replicate numbers from here on."""
FINAL_LAUNCHES = 3
"""Fresh launches of each finalist, at least."""


def lone_launches(search: SearchSpec, plan: Plan) -> int:
    """Further launches of a finalist that stands alone: one launch may have been lucky. None where nothing compares."""
    return FINAL_LAUNCHES - 1 if compares(search, plan) else 0


@dataclass(frozen=True, kw_only=True)
class Finals:
    """Launches of finalists, from replicate number `first` on; `sign` is −1 where the objective is to be low."""

    search: SearchSpec
    seed: str
    first: int
    sign: float
    alike: Mapping[str, str]
    """Which configs answer alike; see `alike_by_answers`."""
    lone: int
    """Further launches of a lone finalist; see `lone_launches`."""

    def step(
        self,
        finalists: Sequence[str],
        why: str,
        done: Sequence[Outcome],
        pending: Collection[tuple[str, int]],
        node: str,
    ) -> Proposal | Wait | Finished:
        """The next launch of a finalist by `node`, of the choice, or the end.

        `why` is why the search went no further.
        """
        if not finalists:
            return Finished(reason=f"{why}; no config ran within the SLO")
        final = self._final(len(finalists))
        blocks = len(final)
        used = {(outcome.config_id, outcome.replicate) for outcome in done} | set(pending)
        failed = by_own_fault(done, self.alike)
        here = Counter(outcome.config_id for outcome in done if outcome.node == node and outcome.replicate in final)
        missing = [
            (block, replicate, config_id)
            for block, replicate in enumerate(final)
            for config_id in random.Random(f"{self.seed} block {block}").sample(finalists, len(finalists))  # noqa: S311
            if (config_id, replicate) not in used and config_id not in failed
        ]
        if missing:
            block, replicate, config_id = min(missing, key=lambda launch: here[launch[2]])
            reason = f"finalist, block {block + 1} of {blocks} ({why})"
            return Proposal(config_id=config_id, replicate=replicate, reason=reason)
        if any(config_id in finalists and replicate in final for config_id, replicate in pending):
            return Wait(reason="the choice depends on finalists that are running")
        choice = self._choice(finalists, final, done)
        if choice is None:
            return Finished(reason=f"{why}; every finalist failed in a further launch")
        if (choice, final.stop) not in used:
            reason = "holdout run of the choice: requests that did not select it"
            return Proposal(config_id=choice, replicate=final.stop, reason=reason, holdout=True)
        return Wait(reason="the holdout run of the choice is running") if pending else Finished(reason=why)

    def remaining(self, finalists: Sequence[str], unknown: int, done: Sequence[Outcome]) -> int:
        """How many launches are still to come of these finalists and of so many that are not known yet."""
        failed = by_own_fault(done, self.alike)
        alive = [config_id for config_id in finalists if config_id not in failed]
        if not (alive or unknown) or any(outcome.holdout for outcome in done):
            return 0
        final = self._final(len(finalists) + unknown)
        used = {(outcome.config_id, outcome.replicate) for outcome in done}
        launches = sum((config_id, replicate) not in used for config_id in alive for replicate in final)
        return launches + unknown * len(final) + 1

    def _final(self, finalists: int) -> range:
        """The numbers of each finalist's launches; one alone is chosen already, and has three launches."""
        launches = max(self.search.replicates, FINAL_LAUNCHES)
        return range(self.first, self.first + (launches if finalists > 1 else self.lone))

    def _choice(self, finalists: Sequence[str], final: range, done: Sequence[Outcome]) -> str | None:
        """The finalist with the best mean over the blocks alone, without what nodes differ by; None when all failed."""
        failed = by_own_fault(done, self.alike)
        launches = [
            (outcome.node, outcome.config_id, self.sign * math.log(outcome.value))
            for outcome in done
            if outcome.replicate in final and outcome.feasible and outcome.value is not None and not outcome.holdout
        ]
        effects = node_effects(launches)
        means: dict[str, float] = {}
        for config_id in finalists:
            values = [value for _, launched, value in launches if launched == config_id]
            if config_id in failed or (final and not values):
                continue
            means[config_id] = effects.means[config_id] if effects and values else fmean(values or [0.0])
        return max(means, key=means.__getitem__, default=None)
