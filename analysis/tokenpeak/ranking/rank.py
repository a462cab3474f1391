"""Ranking of configs by the geometric mean of the objective over their launches, without what nodes differ by.

The one ranking: ties, the terminal, the site's pages and its CSVs, and the column `rank` of the configs in exports and
in Postgres take it from here.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenpeak.ranking.nodes import NodeEffects, node_effects

NOTHING = "a launch achieved nothing"
"""Why a config with a value has no rank: a launch gave 0, as a goodput may be."""


@dataclass(frozen=True, kw_only=True)
class RankedConfig:
    """One config with a value. `rank` is None where a launch gave 0, which has no logarithm; `mean` is 0 then."""

    config: str
    rank: int | None
    mean: float
    launches: int


def ranks(
    launches: Mapping[str, Sequence[float]],
    *,
    effects: NodeEffects[str] | None = None,
    higher_is_better: bool = True,
) -> tuple[RankedConfig, ...]:
    """The configs that have values, best first and those without a rank last, by each launch's value of the objective.

    With `effects` of the nodes means are on the mean of all nodes. Equal means keep the order in which the configs are
    given, which is that of their first launches.
    """
    sign = -1.0 if higher_is_better else 1.0
    logs = {
        config: fmean(math.log(value) for value in values) for config, values in launches.items() if _is_ranked(values)
    }
    if effects is not None:
        logs = {config: effects.means[config] for config in logs}
    ranked = [
        RankedConfig(config=config, rank=rank, mean=math.exp(logs[config]), launches=len(launches[config]))
        for rank, config in enumerate(sorted(logs, key=lambda config: sign * logs[config]), start=1)
    ]
    ranked += [
        RankedConfig(config=config, rank=None, mean=0.0, launches=len(values))
        for config, values in launches.items()
        if len(values) and config not in logs
    ]
    return tuple(ranked)


def effects_of(
    launches: Mapping[str, Sequence[float]], nodes: Mapping[str, Sequence[str]] | None
) -> NodeEffects[str] | None:
    """The effects of the nodes on which the launches of ranked configs were made; None where nothing shows them.

    `nodes` are those of each config's launches, in their order, all of one kind of hardware.
    """
    if nodes is None or len({node for own in nodes.values() for node in own}) < 2:
        return None
    return node_effects(
        [
            (node, config, math.log(value))
            for config, values in launches.items()
            if _is_ranked(values)
            for node, value in zip(nodes[config], values, strict=True)
        ]
    )


def _is_ranked(values: Sequence[float]) -> bool:
    return len(values) > 0 and min(values) > 0


CLOSED = ("output_tok_per_s", "ttft_s_p95", "tpot_s_p95")
OPEN = ("ttft_s_p95", "tpot_s_p95")
"""Of an open load the throughput is what was offered, with any engine that keeps up."""
SEARCHED = ("max_rate_per_s",)
"""Of a search for the highest rate: its other figures are those of whichever rate it ended at."""


POOLED = ("input_tok_per_s", "latency_s_p95")
"""Of a load of a pooling model, which writes no tokens; of an open one only the latter."""


def figures_of(workload: str, level_kind: str, level_label: str) -> tuple[str, ...]:
    """The metrics' columns of a load, by its `workload` (JSON), `level_kind` and `level_label` of the frame of runs."""
    if level_label == "max_rate":
        return SEARCHED
    is_open = level_kind == "open"
    if json.loads(workload).get("kind") == "pooling":
        return POOLED[1:] if is_open else POOLED
    return OPEN if is_open else CLOSED
