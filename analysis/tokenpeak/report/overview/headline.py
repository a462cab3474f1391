"""Headline of the overview: what to run, how much better it is, and what a reader must not miss beside it.

Gains are at equal precision and with a change of it; nodes may disagree on one, or be slow.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any, Literal

import polars as pl

from tokenpeak.ranking.decision_words import Words, current_words, faster_words, headline, reasons
from tokenpeak.ranking.nodes import NODES_DIFFER, NodeAgreement, node_agreement
from tokenpeak.ranking.precision import precision_of
from tokenpeak.records import Config
from tokenpeak.report.blocks.block import (
    Badge,
    Badges,
    Part,
    Sentence,
    answer,
    code,
    link,
    note,
    open_answer,
    strong,
    warning,
)
from tokenpeak.report.blocks.digits import number, percent
from tokenpeak.report.config_energy import ESTIMATED, JOULE, OF_ENERGY
from tokenpeak.report.load.load_levels import hidden_loss
from tokenpeak.report.load.production_replay import not_shown, production_words
from tokenpeak.report.ranking.standings import Ranking, choices
from tokenpeak.report.view import SweepView


@lru_cache(maxsize=32)
def agreement(view: SweepView, hardware: str, config_id: str, baseline_id: str | None) -> NodeAgreement:
    """Gain of a config over the baseline on each node of a kind of hardware; holdout runs take no part."""
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
    if not usual or ranked.baseline is None or ranked.baseline.config_id is None:
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
    if ranked.chosen is None or len(view.nodes_of(ranked.hardware)) < 2:
        return None
    return agreement(view, ranked.hardware, str(ranked.chosen["config_id"]), _compared_with(ranked))


def _compared_with(ranked: Ranking) -> str | None:
    """The baseline's id; None where it is the recommended config itself, or no config."""
    known = ranked.baseline.config_id if ranked.baseline else None
    return known if ranked.chosen and known != ranked.chosen["config_id"] else None


@dataclass(frozen=True, kw_only=True)
class PrecisionGain:
    """Changes of precision from the baseline to the recommended config, and the best config that changes nothing."""

    changes: tuple[str, ...]
    """In words, such as `fp8 weights`; empty: the whole gain is at equal precision."""
    best: dict[str, Any]
    """The row of the best config at the baseline's precision; it may be the baseline itself."""
    others: int
    """How many configs other than the baseline gave a result at its precision."""
    perplexity_ratio: float | None = None
    """Perplexity of the texts to it ÷ to the reference."""


def planned_configs(view: SweepView, hardware: str) -> dict[str, Config]:
    """The configs that were planned for this hardware, by their id; of an import without a plan, none."""
    plan = view.plan_for(hardware)
    return {planned.config.config_id: planned.config for planned in plan.feasible} if plan is not None else {}


def precision_gain(view: SweepView, ranked: Ranking) -> PrecisionGain | None:
    """The gain by precision; None where the baseline is no config, or what configs ask for is not known."""
    recommended, baseline = ranked.chosen, ranked.baseline
    known = planned_configs(view, ranked.hardware)
    if recommended is None or baseline is None or baseline.config_id not in known or view.record.imported is not None:
        return None
    if baseline.config_id != ranked.decision.current:
        return None
    ours = known.get(str(recommended["config_id"]))
    if ours is None or ours.endpoint is not None:
        return None
    theirs = precision_of(known[baseline.config_id])
    equal = [config_id for config_id, config in known.items() if precision_of(config) == theirs]
    rows = ranked.frame.filter(pl.col("state") == "ok", pl.col("config_id").is_in(equal))
    (best, *_) = rows.iter_rows(named=True)
    found = view.trials.filter(pl.col("config_id") == ours.config_id, pl.col("quality").is_not_null())
    ratio = found["quality_perplexity_ratio"].drop_nulls()
    return PrecisionGain(
        changes=precision_of(ours).changes(theirs),
        best=best,
        others=rows.filter(pl.col("config_id") != baseline.config_id).height,
        perplexity_ratio=float(ratio[0]) if ratio.len() else None,
    )


def chosen_config(view: SweepView, ranked: Ranking) -> Config | None:
    """The decision's config; None where it names none, or an import has no plan of it."""
    return planned_configs(view, ranked.hardware).get(ranked.decision.config or "")


def random_weights(view: SweepView, ranked: Ranking) -> bool:
    """Whether the recommended config was measured with random numbers for weights."""
    config = chosen_config(view, ranked)
    return config is not None and str(config.flags.get("load_format")) == "dummy"


def recommendation(view: SweepView, ranked: Ranking) -> Sentence:
    """The headline: what to do on one kind of hardware, and what launches show of it."""
    decision, chosen = ranked.decision, ranked.chosen
    if not decision.measured.standings:
        why = link("ranking", "ranking.html")
        return warning(f"On {ranked.hardware}, no config gave a result that may be ranked; the ", why, " says why.")
    now = current_phrase(ranked)
    parts: list[Part] = [f"On {ranked.hardware}: ", *in_parts(view, ranked, headline(decision, now))]
    if chosen is not None:
        parts += [": ", strong(f"{number(chosen['shown'])} {view.metric.unit}"), f" {view.objective_at}"]
        parts += [f" (the lowest launch; each: {chosen['each_launch']})"] if chosen["each_launch"] else []
    return (answer if ranked.is_known else open_answer)(*parts, ".")


def current_phrase(ranked: Ranking) -> str:
    """What runs now as sentences name it."""
    names = dict(ranked.frame.select("config_id", "config_name").iter_rows())
    return current_words(names.get(ranked.decision.current))


def in_parts(view: SweepView, ranked: Ranking, words: Words) -> list[Part]:
    """Words of the decision with each config as code."""
    rows = {row["config_id"]: row for row in ranked.frame.iter_rows(named=True)}
    return [part if isinstance(part, str) else code(choices(view, rows[part.config])) for part in words]


def cautions(view: SweepView, ranked: Ranking) -> list[Sentence]:
    """Cautions beside the headline, such as a broken SLO, or a node that disagrees."""
    recommended = ranked.chosen
    if recommended is None:
        return []
    found = []
    if ranked.decision.outcome == "keep" and recommended.get("slo_met") is False and not view.spec.objective.is_rate:
        found.append(warning(f"It does not hold the SLO at {view.objective_place} ({view.slo_words})."))
    if view.spec.objective.metric in (JOULE, *OF_ENERGY) and ESTIMATED in view.runs["energy_source"]:
        found.append(warning("Energy is estimated, rated power ÷ throughput: this is the order of throughput per GPU."))
    if (gained := gain_by_precision(view, ranked)) is not None:
        found.append(gained)
    if random_weights(view, ranked):
        found.append(
            warning("Measured with random weights: speed is real, answers are not. Measure quality before you deploy.")
        )
    if (loss := hidden_loss(view, ranked)) is not None:
        found.append(loss)
    if (own := production_words(view)) is not None:
        found.append(own)
    if (disagreed := disagreement(view, ranked)) is not None:
        found.append(disagreed)
    if (slow := slow_nodes(view, ranked)) is not None:
        found.append(slow)
    return found


def assurance(view: SweepView, ranked: Ranking) -> Badges | None:
    """What launches show of noise, and what speaks against running the config, as badges with all that qualifies it.

    None where nothing was measured.
    """
    if not ranked.decision.measured.standings:
        return None
    badges = [_noise(view, ranked), *([_safety(view, ranked)] if ranked.chosen is not None else [])]
    return Badges(badges=tuple(badges), sentences=(*cautions(view, ranked), *qualifications(view, ranked)))


def _noise(view: SweepView, ranked: Ranking) -> Badge:
    noise, spread = ranked.decision.measured.noise, ranked.spread
    if noise is not None:
        return Badge(label="Noise", value=f"launches vary by {math.expm1(noise):.1%}")
    known = view.lone_words("one launch each") if spread is None else f"launches differ by {spread:.0%}"
    return Badge(label="Noise", value=f"not known, {known}", tone="open")


def _safety(view: SweepView, ranked: Ranking) -> Badge:
    """The worst of what is known against running the config."""
    config, is_rate = ranked.chosen or {}, view.spec.objective.is_rate
    against = {
        "breaks the SLO": config.get("slo_met") is False and not is_rate,
        "answers not measured: random weights": random_weights(view, ranked),
    }
    unsure = {
        "SLO not proven": not ranked.decision.is_hold_proven,
        "far behind at another load": hidden_loss(view, ranked) is not None,
        "nodes differ": disagreement(view, ranked) is not None or slow_nodes(view, ranked) is not None,
        "workload not shown to be production's": not_shown(view),
        "precision changes": gain_by_precision(view, ranked) is not None,
        "no SLO set": not view.slo_words,
    }
    words = [word for word, holds in (against | unsure).items() if holds]
    tone: Literal["", "open", "worse"] = "worse" if any(against.values()) else "open" if words else ""
    return Badge(label="Safety", value="; ".join(words) or "SLO held", tone=tone)


def gain_by_precision(view: SweepView, ranked: Ranking) -> Sentence | None:
    """The gain at equal precision and what the change of precision costs; None where no gain needs a change."""
    gain = precision_gain(view, ranked) if ranked.decision.outcome in ("run", "ahead") else None
    return warning(*_precision_words(ranked, gain)) if gain is not None and gain.changes else None


def _precision_words(ranked: Ranking, gain: PrecisionGain) -> list[Part]:
    """That the recommended config changes precision, what is best without that, and what its quality is."""
    assert ranked.baseline is not None, "a change of precision is against a baseline"
    what = " and ".join(gain.changes)
    if not gain.others:
        best: list[Part] = [" At equal precision, no other config was tried. "]
    elif gain.best["config_id"] == ranked.baseline.config_id:
        best = [f" At equal precision, nothing tried beats {ranked.baseline.phrase}. "]
    else:
        best = [" At equal precision, ", code(gain.best["label"]), f" gives {percent(gain.best['gain'])}. "]
    return [f"The gain comes with {what}.", *best, f"Its answers passed{_perplexity(gain)}."]


def _perplexity(gain: PrecisionGain) -> str:
    """How much worse texts are predicted, in brackets; empty where that is not known."""
    return "" if gain.perplexity_ratio is None else f" (perplexity {percent(gain.perplexity_ratio - 1, digits=2)})"


def qualifications(view: SweepView, ranked: Ranking) -> list[Sentence]:
    """Qualifications of the headline: its reasons, on which nodes, and the holdout run; then what may not be run."""
    parts: list[Part] = []
    for words in _reasons(view, ranked):
        parts += [*in_parts(view, ranked, words), ". "]
    if ranked.chosen is not None:
        parts += [*holds_on(view, ranked), *_holdout_words(view, ranked)]
    faster = faster_words(ranked.decision.faster, higher_is_better=view.higher_is_better)
    return [
        *([note(*parts)] if parts else []),
        *(note(*in_parts(view, ranked, words), ".") for words in faster),
    ]


def _reasons(view: SweepView, ranked: Ranking) -> list[Words]:
    """The reasons for the decision; none where nothing gave a result."""
    if not ranked.decision.measured.standings:
        return []
    launch_s = view.trials.filter(hardware=ranked.hardware, status="ok")["duration_s"].mean()
    return reasons(
        ranked.decision,
        current_phrase(ranked),
        higher_is_better=view.higher_is_better,
        launch_s=float(launch_s) if isinstance(launch_s, int | float) else None,
    )


def _holdout_words(view: SweepView, ranked: Ranking) -> list[Part]:
    """The result of the holdout run, which selected nothing."""
    parts: list[Part] = []
    for row in ranked.frame.filter(pl.col("objective_holdout").is_not_null()).iter_rows(named=True):
        if ranked.chosen and row["config_id"] == ranked.chosen["config_id"]:
            parts.append(" Holdout run on fresh requests: ")
        else:
            parts += [" Holdout run of the search's choice, ", code(choices(view, row)), ", on fresh requests: "]
        broke = row["holdout_slo_met"] is False and not view.spec.objective.is_rate
        parts.append(strong(f"{number(row['objective_holdout'])} {view.metric.unit}"))
        parts.append(f" (n=1 launch, which selected nothing{'; it broke the SLO' if broke else ''}).")
    return parts
