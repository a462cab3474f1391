"""On how many nodes the recommended config's gain was seen, which nodes disagree, and which are slow."""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

import polars as pl

from tokenpeak.ranking.choice import precision_of
from tokenpeak.ranking.nodes import NODES_DIFFER, NodeAgreement, node_agreement
from tokenpeak.records import Config
from tokenpeak.report.blocks.block import Part, Sentence, warning
from tokenpeak.report.blocks.digits import percent
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView


@lru_cache(maxsize=32)
def agreement(view: SweepView, hardware: str, config_id: str, baseline_id: str | None) -> NodeAgreement:
    """What a config gains over the baseline on each node of a kind of hardware; holdout runs take no part."""
    of_hardware = pl.col("hardware") == hardware
    launches = view.trials.filter(of_hardware, ~pl.col("holdout"), pl.col("objective") > 0)
    return node_agreement(launches.select("node", "config_id", "objective").iter_rows(), config_id, baseline_id)


def holds_on(view: SweepView, ranked: Ranking) -> list[Part]:
    """On how many nodes the recommended config was launched, and its gain there; nothing of a single node."""
    found = _found(view, ranked)
    if found is None or not found.nodes:
        return []
    words = f" It was launched on {len(found.nodes)} of {len(view.nodes_of(ranked.hardware))} nodes"
    usual = [each.gain for each in found.gains if not each.is_apart] or [each.gain for each in found.gains]
    if not usual or ranked.baseline is None:
        return [f"{words}."]
    ends = percent(min(usual)), percent(max(usual))
    span = f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ends[0]
    where = f"{len(usual)} that launched both" if len(usual) > 1 else "the one that launched both"
    return [f"{words}; over {ranked.baseline.phrase} it gives {span} on {where}."]


def disagreement(view: SweepView, ranked: Ranking) -> Sentence | None:
    """The nodes on which the gain is another one; or that no node launched both configs. None where neither is so."""
    found = _found(view, ranked)
    if found is None or ranked.baseline is None or _compared_with(ranked) is None:
        return None
    if not found.gains:
        return warning(
            f"No node launched both this config and {ranked.baseline.phrase}: what nodes differ by is in the gain."
        )
    if not found.apart:
        return None
    nodes = ", ".join(f"{each.node} ({percent(each.gain)})" for each in found.apart)
    verb = "disagrees" if len(found.apart) == 1 else "disagree"
    return warning(f"{nodes} {verb}: the gain over {ranked.baseline.phrase} there differs by more than launches do.")


def slow_nodes(view: SweepView, ranked: Ranking) -> Sentence | None:
    """The nodes whose effect is worse than that of the others by more than nodes or launches differ; None: none is."""
    effects, sign = ranked.node_effects, 1 if view.higher_is_better else -1
    usual = max(2 * NODES_DIFFER, math.log1p(ranked.spread or 0.0))
    away = {node: own - median([effects[other] for other in effects if other != node]) for node, own in effects.items()}
    slow = [f"{node} ({percent(math.expm1(away[node]))})" for node in away if sign * away[node] < -usual]
    if not slow:
        return None
    return warning(
        f"Worse than others of its kind, whatever the config: {', '.join(slow)}. Ranks and intervals are without that. "
        "Look at its heat and power limit, or leave it out: tokenpeak sweep --node names the others."
    )


def _found(view: SweepView, ranked: Ranking) -> NodeAgreement | None:
    """The agreement of nodes; None where there is one node, or nothing is recommended."""
    if ranked.recommended is None or len(view.nodes_of(ranked.hardware)) < 2:
        return None
    return agreement(view, ranked.hardware, str(ranked.recommended["config_id"]), _compared_with(ranked))


def _compared_with(ranked: Ranking) -> str | None:
    """The baseline's id; None where it is the recommended config itself, or no config."""
    known = ranked.baseline.config_id if ranked.baseline else None
    return known if ranked.recommended and known != ranked.recommended["config_id"] else None


@dataclass(frozen=True, kw_only=True)
class PrecisionGain:
    """What the recommended config changes of the baseline's precision, and the best config that changes nothing."""

    changes: tuple[str, ...]
    """In words, such as `fp8 weights`; empty: the whole gain is at equal precision."""
    best: dict[str, Any]
    """The row of the best config at the baseline's precision; it may be the baseline itself."""
    others: int
    """How many configs other than the baseline gave a result at its precision."""
    quality: str | None
    """The verdict on the recommended config's answers: pass, fail, unknown; None: not measured."""
    perplexity_ratio: float | None = None
    """Perplexity of the texts to it ÷ to the reference."""


def planned_configs(view: SweepView, hardware: str) -> dict[str, Config]:
    """The configs that were planned for this hardware, by their id; of an import without a plan, none."""
    plan = view.plan_for(hardware)
    return {planned.config.config_id: planned.config for planned in plan.feasible} if plan is not None else {}


def precision_gain(view: SweepView, ranked: Ranking) -> PrecisionGain | None:
    """The gain by precision; None where the baseline is no config, or what configs ask for is not known."""
    recommended, baseline = ranked.recommended, ranked.baseline
    known = planned_configs(view, ranked.hardware)
    if recommended is None or baseline is None or baseline.config_id not in known or view.record.imported is not None:
        return None
    ours = known.get(str(recommended["config_id"]))
    if ours is None or ours.endpoint is not None:
        return None
    theirs = precision_of(known[baseline.config_id])
    equal = [config_id for config_id, config in known.items() if precision_of(config) == theirs]
    rows = ranked.frame.filter(pl.col("state") == "ok", pl.col("config_id").is_in(equal))
    (best, *_) = rows.iter_rows(named=True)
    found = view.trials.filter(pl.col("config_id") == ours.config_id, pl.col("quality").is_not_null())
    quality, ratio = found["quality"], found["quality_perplexity_ratio"].drop_nulls()
    return PrecisionGain(
        changes=precision_of(ours).changes(theirs),
        best=best,
        others=rows.filter(pl.col("config_id") != baseline.config_id).height,
        quality=str(quality[0]) if quality.len() else None,
        perplexity_ratio=float(ratio[0]) if ratio.len() else None,
    )


def random_weights(view: SweepView, ranked: Ranking) -> bool:
    """Whether the recommended config was measured with random numbers for weights."""
    choice = ranked.choice
    return choice is not None and str(choice.config.flags.get("load_format")) == "dummy"
