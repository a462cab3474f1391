"""Budget of a search: how much of a machine's time it may use."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.records import Plan
from tokenpeak.search.history import Outcome
from tokenpeak.spec.search import SearchSpec


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on the sum of the trials' durations over one plan's nodes; None: no limit."""

    node_s: float | None = None
    """Seconds of nodes' time, all nodes together."""
    limit: str = ""
    """The limit in the user's words."""

    @classmethod
    def of(cls, search: SearchSpec, plan: Plan) -> "Budget":
        """The tighter of `time` (on each node) and `gpu_hours` (over all)."""
        limits = []
        if search.time is not None:
            limits.append((search.time * max(1, len(plan.nodes)), f"time: {search.time:g} s"))
        if search.gpu_hours is not None:
            limits.append((search.gpu_hours * 3600 / plan.gpus, f"gpu_hours: {search.gpu_hours:g}"))
        if not limits:
            return cls()
        node_s, limit = min(limits)
        return cls(node_s=node_s, limit=limit)

    def spent(self, done: Sequence[Outcome], pending: Collection[tuple[str, int]]) -> str | None:
        """Why no further trial fits, taking each running one to last as long as the mean; None when one fits."""
        if self.node_s is None or not done:
            return None
        mean_s = fmean(outcome.duration_s for outcome in done)
        if mean_s * (len(done) + len(pending) + 1) <= self.node_s:
            return None
        return f"another trial of about {mean_s:.0f} s would exceed {self.limit}"
