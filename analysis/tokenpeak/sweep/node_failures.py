"""Node failures of a whole sweep: beyond a share of its trials no further one begins, whatever node it would be on.

One bad node is left out by itself. Where trials fail on one node after another, what they share is broken (a driver, a
model store, the network), and each further trial would only stop one more production.
"""

import threading

FEWEST_TRIALS = 10
"""Of fewer trials no share is taken: one bad node of a few says nothing of the others."""
FEWEST_NODES = 3
"""On fewer nodes it is these nodes that are broken, and each is left out by itself."""


class NodeFailures:
    """Counts trials and those that failed for the node's own reasons; safe to use from several threads."""

    def __init__(self, most_share: float) -> None:
        self._most_share = most_share
        self._trials = 0
        self._failed: dict[str, int] = {}
        self._lock = threading.Lock()

    def count(self, node: str, trouble: str | None) -> None:
        """A trial on the node has ended, or could not begin there; `trouble` is what was wrong with the node."""
        with self._lock:
            self._trials += 1
            if trouble is not None:
                self._failed[node] = self._failed.get(node, 0) + 1

    @property
    def too_many(self) -> str | None:
        """Why no further trial begins; None while the share is not exceeded."""
        with self._lock:
            failed, trials, nodes = sum(self._failed.values()), self._trials, len(self._failed)
        if trials < FEWEST_TRIALS or nodes < FEWEST_NODES or failed <= self._most_share * trials:
            return None
        return (
            f"No further trial begins: {failed} of {trials} trials, on {nodes} nodes, failed for reasons of the nodes; "
            f"max_node_failures is {self._most_share:.0%}. See what these nodes share, then resume the sweep."
        )
