"""Gain at equal precision: how much of the recommended config's gain comes without a change of number formats."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from tokenpeak.ranking.precision import precision_of
from tokenpeak.records import Config
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.view import SweepView


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
