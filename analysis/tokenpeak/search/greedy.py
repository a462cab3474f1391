"""Greedy rounds: the adaptive search without regard to pending trials, for comparison in replays."""

from collections.abc import Sequence

from tokenpeak.search.adaptive import Adaptive


class Greedy(Adaptive):
    """As many copies of one adaptive step as there are nodes: each takes the best that no other node launches now.

    What the pending trials may show counts for nothing, so that a round is as one-sided as its first step.
    """

    def _accounted(self, running: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        """The running launches whose unknown results count for the next launch: none."""
        return ()
