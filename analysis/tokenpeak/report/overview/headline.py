"""The sentence that answers each page's question, true to what was measured and to its uncertainty."""

import polars as pl

from tokenpeak.report.blocks.block import Part, Sentence, answer, code, link, note, strong, warning
from tokenpeak.report.blocks.digits import number, percent
from tokenpeak.report.load.load_levels import hidden_loss
from tokenpeak.report.overview.gain import (
    PrecisionGain,
    disagreement,
    holds_on,
    precision_gain,
    random_weights,
    slow_nodes,
)
from tokenpeak.report.ranking.standings import Ranking, choices
from tokenpeak.report.view import SweepView


def recommendation(view: SweepView, ranked: Ranking) -> Sentence:
    """The headline: what to run on one kind of hardware and how much better it is."""
    recommended = ranked.recommended
    if recommended is None:
        why = link("ranking", "ranking.html")
        return warning(f"On {ranked.hardware}, no config gave a result that may be ranked; the ", why, " says why.")
    parts: list[Part] = [f"On {ranked.hardware}, run ", code(choices(view, recommended)), ": "]
    parts += [strong(f"{number(_float(recommended['objective']))} {view.metric.unit}"), f" {view.objective_at}"]
    return answer(*parts, *_gain_words(view, ranked, recommended), ".")


def cautions(view: SweepView, ranked: Ranking) -> list[Sentence]:
    """What nobody may miss beside the headline, such as a simulation, a broken SLO, or a node that disagrees."""
    recommended = ranked.recommended
    if recommended is None:
        return []
    found = []
    if view.record.simulated:
        found.append(warning("Simulated: no GPU was measured, so none of these figures is a GPU's."))
    if recommended.get("slo_met") is False and not view.spec.objective.is_rate:
        found.append(warning(f"It does not hold the SLO at {view.objective_place} ({view.slo_words})."))
    if (gained := gain_by_precision(view, ranked)) is not None:
        found.append(gained)
    if random_weights(view, ranked):
        found.append(
            warning("Measured with random weights: speed is real, answers are not. Measure quality before you deploy.")
        )
    if (loss := hidden_loss(view, ranked)) is not None:
        found.append(loss)
    if (disagreed := disagreement(view, ranked)) is not None:
        found.append(disagreed)
    if (slow := slow_nodes(view, ranked)) is not None:
        found.append(slow)
    return found


def gain_by_precision(view: SweepView, ranked: Ranking) -> Sentence | None:
    """The gain at equal precision and what the change of precision costs; None where the gain needs no change."""
    gain = precision_gain(view, ranked)
    return warning(*_precision_words(ranked, gain)) if gain is not None and gain.changes else None


def _precision_words(ranked: Ranking, gain: PrecisionGain) -> list[Part]:
    """That the recommended config changes precision, what is best without that, and what its quality is."""
    assert ranked.baseline is not None, "a change of precision is against a baseline"
    words = {
        "pass": f"The recommended config's quality passed{_perplexity(gain)}.",
        "fail": "The recommended config's quality failed.",
        "unknown": "The recommended config's quality is not proven.",
    }.get(gain.quality or "", "The recommended config's quality was not measured.")
    what = " and ".join(gain.changes)
    if gain.best["config_id"] == ranked.baseline.config_id:
        best: list[Part] = [f" At equal precision, nothing tried beats {ranked.baseline.phrase}. "]
    else:
        best = [" At equal precision, ", code(gain.best["label"]), f" gives {percent(gain.best['gain'])}. "]
    return [f"The gain comes with {what}.", *best, words]


def _perplexity(gain: PrecisionGain) -> str:
    """How much worse texts are predicted, in brackets; empty where that is not known."""
    return "" if gain.perplexity_ratio is None else f" (perplexity {percent(gain.perplexity_ratio - 1, digits=2)})"


def qualifications(view: SweepView, ranked: Ranking) -> Sentence | None:
    """What qualifies the headline: why this config of those tied, on which nodes, and the holdout run; or None."""
    if ranked.recommended is None:
        return None
    parts = [*_tie_words(view, ranked, ranked.recommended), *holds_on(view, ranked), *_holdout_words(view, ranked)]
    return note(*parts) if parts else None


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _gain_words(view: SweepView, ranked: Ranking, recommended: dict[str, object]) -> list[Part]:
    if ranked.baseline is None or recommended["gain"] is None:
        return [". It is the only config with a result, so there is no gain to state"]
    if recommended["config_id"] == ranked.baseline.config_id:
        return [f". Nothing tried beats {ranked.baseline.phrase}{' beyond a tie' if ranked.ties.height else ''}"]
    if ranked.tied_with_median:
        return [f"; no gain shown: {group_words(view, ranked)}"]
    once = view.lone_words("each launched once")
    gain = percent(_float(recommended["gain"]))
    if ranked.vague and ranked.spread is not None:
        return [f". Launches of one config differ by {ranked.spread:.0%}, so a gain of {gain} shows nothing"]
    if not ranked.replicated:
        margin = view.spec.search.margin
        if abs(_float(recommended["gain"])) < margin:
            return [f", within {margin:.0%} of {ranked.baseline.phrase}; {once}"]
        return [f", {gain} over {ranked.baseline.phrase}; {once}"]
    return [", ", strong(gain), f" over {ranked.baseline.phrase}"]


def group_words(view: SweepView, ranked: Ranking) -> str:
    """How many of the configs with a result tie, the recommended one among them."""
    tie = "tie" if ranked.replicated else f"are within {view.spec.search.margin:.0%} of the best"
    return f"{ranked.ties.height + 1} of {ranked.frame.filter(pl.col('state') == 'ok').height} configs {tie}"


def _tie_words(view: SweepView, ranked: Ranking, recommended: dict[str, object]) -> list[Part]:
    """Why it is this config of those tied; or that no other reaches it."""
    if ranked.choice is not None and ranked.choice.words:
        return [f"{ranked.choice.words}."]
    others = ranked.frame.filter(pl.col("state") == "ok", pl.col("config_id") != recommended["config_id"])
    if others.is_empty():
        return []
    if recommended["low"] is not None:
        return ["No other config ties with it."]
    ratio = _float(others["objective"][0]) / _float(recommended["objective"])
    behind = f"{abs(ratio - 1):.1%} behind"
    lone = "one launch each" if view.launches_known else "one figure a config"
    why = "launches differ by so much that it may be noise" if ranked.vague else f"with {lone}, noise is unknown"
    return ["The next, ", code(others["label"][0]), f", is {behind}; {why}."]


def _holdout_words(view: SweepView, ranked: Ranking) -> list[Part]:
    """The result of the holdout run, which selected nothing."""
    parts: list[Part] = []
    for row in ranked.frame.filter(pl.col("objective_holdout").is_not_null()).iter_rows(named=True):
        if ranked.recommended and row["config_id"] == ranked.recommended["config_id"]:
            parts.append(" Holdout run on fresh requests: ")
        else:
            parts += [" Holdout run of the search's choice, ", code(choices(view, row)), ", on fresh requests: "]
        broke = row["holdout_slo_met"] is False and not view.spec.objective.is_rate
        parts.append(strong(f"{number(row['objective_holdout'])} {view.metric.unit}"))
        parts.append(f" (n=1 launch, which selected nothing{'; it broke the SLO' if broke else ''}).")
    return parts
