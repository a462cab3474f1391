"""Node screening of a sweep: whether the nodes of a group are compared before configs are."""

from typing import Literal

from pydantic import PositiveInt

from tokenpeak.spec.workload import Declaration

FEW_NODES = 6
"""In groups of fewer, nodes are compared by the spread between launches of a node, where there are several."""


class NodeScreeningSpec(Declaration):
    """Before the search each node of a group launches the same config, so that a slow node is no slow config.

    It is the first baseline, under the objective's run alone. Its launches rank no config, and come on top of
    `search.trials`, `search.time` and `search.gpu_hours`.
    """

    outliers: Literal["exclude", "keep"] = "exclude"
    """What becomes of a node that is slow or throttles: `exclude` makes no further trial there and gives it back to
    production; `keep` names it and goes on."""
    launches: PositiveInt = 2
    """Launches on each node. With one, groups of fewer than six nodes show little."""
