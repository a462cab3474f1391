"""The sentence that answers each page's question, true to what was measured and to its uncertainty."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tokenpeak.report.blocks import Part, Sentence, answer, code, link, note, number, percent, strong, trimmed, warning
from tokenpeak.report.energy import figure_words, rounded
from tokenpeak.report.interactions import importance, inseparable
from tokenpeak.report.load_levels import hidden_loss
from tokenpeak.report.node_agreement import disagreement, holds_on, slow_nodes
from tokenpeak.report.precision_gain import PrecisionGain, precision_gain, random_weights
from tokenpeak.report.ranking import NOT_RUN, Ranking
from tokenpeak.report.view import SweepView

FEW = 2
"""Most kinds of hardware of which a sentence speaks one by one."""


def confidence_words(confidence: float) -> str:
    """A confidence in percent, rounded down: it is never 100%."""
    return f"{min(math.floor(confidence * 1000), 999) / 10:.1f}%"


def choices(view: SweepView, row: dict[str, object]) -> str:
    """A config as a reader would say it: each axis with its alternative."""
    pairs = [f"{axis}={row[f'axis_{axis}']}" for axis in view.axes if row.get(f"axis_{axis}") is not None]
    return ", ".join(pairs) or str(row["config_name"])


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


def _count(n: int, one: str, many: str) -> str:
    return f"{number(n)} {one if n == 1 else many}"


def standing(view: SweepView, ranked: Sequence[Ranking]) -> Sentence:
    """How many configs were tried on how much hardware, and what became of them."""
    state = pl.when(pl.col("why") == NOT_RUN).then(pl.lit("not run")).otherwise("state").alias("state")
    states = pl.concat([each.frame.select(state) for each in ranked]).group_by("state").len() if ranked else None
    counts = dict(states.iter_rows()) if states is not None else {}
    kinds = _count(len(ranked), "kind of hardware", "kinds of hardware")
    ok = counts.get("ok", 0)
    words = f"{_count(ok, 'config', 'configs') if ok else 'No config'} gave a result on {kinds}"
    if counts.get("invalid"):
        words += f", {counts['invalid']} gave one that may not be ranked"
    if counts.get("not run"):
        words += f", {counts['not run']} {'was' if counts['not run'] == 1 else 'were'} not run under its load"
    if counts.get("failed"):
        words += f", {counts['failed']} did not start or broke off"
    if counts.get("interrupted"):
        words += f", {counts['interrupted']} {'was' if counts['interrupted'] == 1 else 'were'} interrupted"
    return answer(f"{words}. ", *(part for each in ranked[:FEW] for part in _span_words(view, each, len(ranked))))


def _span_words(view: SweepView, ranked: Ranking, kinds: int) -> list[Part]:
    """From worst to best, and how many are as good as the best."""
    values = ranked.frame["objective"].drop_nulls()
    if values.len() < 2:
        return []
    ends = sorted((float(values.min()), float(values.max())), reverse=not view.higher_is_better)  # type: ignore[arg-type]
    where = f" on {ranked.hardware}" if kinds > 1 else ""
    spread = strong(f"{number(ends[0])} to {number(ends[1])} {view.metric.unit}")
    ties = ranked.ties.height
    close = "tied with the best" if ranked.replicated else f"within {view.spec.search.margin:.0%} of the best"
    tied = f"{_count(ties, 'other is', 'others are') if ties else 'none is'} {close}"
    return ["From worst to best they span ", spread, f"{where}; {tied}. "]


def interactions(view: SweepView, effects: pl.DataFrame) -> Sentence:
    """Which axis matters most, on each kind of hardware or, where there are many, on how many of them."""
    ranks = importance(view, effects)
    if effects.is_empty():
        return answer("This sweep varies no axis, so there is no effect to estimate.")
    if ranks.is_empty():
        return answer("No axis's effect is estimable: too few configs gave a result, or axes always changed together.")
    grounds = [(each, rows) for each in view.hardware if (rows := ranks.filter(pl.col("hardware") == each)).height]
    if len(grounds) > FEW:
        return _leading_axes(grounds)
    return answer(
        *(part for hardware, rows in grounds for part in _axis_words(hardware, rows, inseparable(effects, hardware)))
    )


def _axis_words(hardware: str, rows: pl.DataFrame, without: Sequence[str]) -> list[Part]:
    """What matters; it is said to do so most only where every axis that varied can be compared."""
    first, *others = rows.iter_rows(named=True)
    if not first["matters"]:
        seen = ", ".join(_best_words(row) for row in (first, *others))
        return [
            f"On {hardware}, no axis is shown to matter: results vary by as much without it, or are too few "
            f"(seen: {seen}). "
        ]
    shown = ", ".join(_best_words(row) for row in others if row["matters"])
    unshown = ", ".join(row["axis"] for row in others if not row["matters"])
    rest = "; ".join([*([shown] if shown else []), *([f"not shown to matter: {unshown}"] if unshown else [])])
    return [
        f"On {hardware}, ",
        code(first["axis"]),
        " matters: " if without else " matters most: ",
        code(first["best"]),
        " gives ",
        strong(percent(first["gain"])),
        " over ",
        code(first["worst"]),
        f", other axes being equal{f' ({rest})' if rest else ''}. ",
        *_inseparable_words(without),
    ]


def _best_words(row: Mapping[str, Any]) -> str:
    """An axis's best alternative and what it gives over the worst."""
    return f"{row['axis']}={row['best']} {percent(row['gain'])}"


def _inseparable_words(axes: Sequence[str]) -> list[Part]:
    if not axes:
        return []
    return ["What ", code(", ".join(axes)), " does is not known: it changed together with others. "]


def _leading_axes(grounds: Sequence[tuple[str, pl.DataFrame]]) -> Sentence:
    leading = Counter(rows["axis"][0] for _, rows in grounds if rows["matters"][0])
    parts: list[Part] = [f"Of {len(grounds)} kinds of hardware, "]
    for axis, count in leading.most_common():
        parts += [code(axis), f" matters most on {count}, "]
    without = len(grounds) - leading.total()
    parts.append(
        f"and on {without} no axis is shown to matter: results vary by as much without it, or are too few."
        if without
        else "other axes being equal."
    )
    return answer(*parts)


def rates(hardware: str, highest: pl.DataFrame, slo: str) -> Sentence:
    """The sustainable rate: the highest within the SLO."""
    if not slo:
        return answer(f"On {hardware}: the spec gives no SLO, so no rate can be said to hold.")
    held = highest.filter(pl.col("holds").is_not_null())
    if not highest["n"].sum():
        return answer(f"On {hardware}, no run at a rate could decide whether {slo} held.")
    if held.is_empty():
        tried = " that could be judged" if highest["untold"].sum() else " tried"
        return answer(f"On {hardware}, no config held {slo} at any rate{tried}.")
    best = held.row(0, named=True)
    same = held.filter(pl.col("holds") == best["holds"])
    parts: list[Part] = [
        f"On {hardware}, ",
        strong(f"{trimmed(best['holds'])} req/s"),
        f" is the highest rate tried within {slo}. ",
    ]
    if same.height == 1:
        parts += [code(best["label"]), " held it"]
    else:
        parts.append(f"{same.height} of {highest.height} configs held it")
    parts += [
        f", with {confidence_words(share)} confidence" for share in [same["sure"].min()] if isinstance(share, float)
    ]
    open_end = same.filter(pl.col("breaks").is_null()).height
    if open_end:
        whose = f"{open_end} of them" if open_end < same.height else "It" if same.height == 1 else "All of them"
        parts.append(f". {whose} held every rate that could be judged, so the limit is not reached.")
    else:
        parts.append(f". The limit lies between {trimmed(best['holds'])} and {trimmed(best['breaks'])} req/s.")
    return answer(*parts, *_open_rates(highest, best["holds"]))


def _open_rates(highest: pl.DataFrame, top: float) -> list[Part]:
    """How many configs that are not shown to hold the highest rate may hold it, as theirs was not judged."""
    below = pl.col("holds").is_null() | (pl.col("holds") < top)
    unknown = highest.filter(below, pl.col("breaks").is_null(), pl.col("unjudged").list.contains(top)).height
    whose = "their runs" if unknown > 1 else "its run"
    return [f" {_count(unknown, 'other', 'others')} may hold it too: {whose} could not be judged."] if unknown else []


def found_rate(hardware: str, found: pl.DataFrame) -> Sentence:
    """The sustainable rate that a search found, with its confidence."""
    best = found.row(0, named=True)
    if best["rate"] is None:
        return answer(f"On {hardware}, the search found no rate at which {best['limits']} held.")
    parts: list[Part] = [
        f"On {hardware}, ",
        strong(f"{rounded(best['rate'], best['low'], best['high'])} req/s"),
        f" is the highest rate within {best['limits']} by search, with ",
        code(best["label"]),
    ]
    if best["low"] is not None and best["high"] is not None:
        parts.append(
            f". It lies between {rounded(best['low'], best['low'], best['high'])} and "
            f"{rounded(best['high'], best['low'], best['high'])} req/s with "
            f"{best['confidence']:.0%} confidence, after {best['probes']} probes."
        )
        reach = found.filter(pl.col("label") != best["label"], pl.col("high") >= best["low"])["label"].unique()
        if reach.len():
            whose = (
                "One other's interval overlaps"
                if reach.len() == 1
                else f"The intervals of {reach.len()} others overlap"
            )
            parts.append(f" {whose} it, so they tie.")
    else:
        parts.append(f". The search ended {best['ended']} after {best['probes']} probes, so no interval holds it.")
    return answer(*parts)


def no_energy(view: SweepView) -> Sentence:
    """Why nothing is said of energy."""
    if view.runs.height and view.runs["energy_j_per_output_tok"].is_null().all():
        if view.runs["energy_needed_s"].is_not_null().any():
            return too_short(view.runs)
        return answer(
            "In this sweep no run has an energy figure: power was neither measured nor is it known for estimating it."
        )
    return answer("In this sweep no run that may be ranked has an energy figure.")


def too_short(runs: pl.DataFrame) -> Sentence:
    """How many runs were too short for their energy to be known within ±5%, and what length would do."""
    short = runs.filter(pl.col("energy_needed_s").is_not_null())
    many = f"{short.height} of {runs.height} runs were" if short.height > 1 else f"One of {runs.height} runs was"
    needed_s = max(short["energy_needed_s"].to_list(), default=0.0)
    return answer(f"{many} too short for an energy figure within ±5%. {number(needed_s)} s would do.")


def energy(hardware: str, frame: pl.DataFrame, winner: str | None) -> Sentence:
    """The thriftiest config, which others are tied with it, and how the fastest compares."""
    if frame.is_empty():
        return answer(f"On {hardware}, no run that may be ranked has an energy figure.")
    first = frame.row(0, named=True)
    per_token = rounded(first["energy_j_per_output_tok"], first["low"], first["high"])
    parts: list[Part] = [
        f"On {hardware}, ",
        code(first["label"]),
        " uses the least energy of those with a figure: " if frame.height > 1 else " uses ",
        strong(f"{per_token} J per output token"),
    ]
    if first["low"] is not None:
        ends = (rounded(first[end], first["low"], first["high"]) for end in ("low", "high"))
        parts.append(f" ({' to '.join(ends)})")
    parts.append(f". At the meter that is {figure_words(first, 'energy_kwh_per_1m_output_tok')} kWh per million.")
    tied = frame.filter(rank=1).height - 1
    if tied > 0:
        parts.append(f" {_count(tied, 'other is', 'others are')} tied with it.")
    fastest = frame.filter(pl.col("config_id").eq_missing(pl.lit(winner)))
    if winner == first["config_id"]:
        parts.append(" It is also the recommended one.")
    elif fastest.is_empty():
        parts.append(" The recommended config has no figure." if winner is not None else "")
    else:
        ratio = float(fastest["energy_j_per_output_tok"][0]) / first["energy_j_per_output_tok"] - 1
        more = f"{ratio:.1%} more" if ratio >= 0.0005 else "as much"
        parts.append(f" The recommended config needs {more}.")
    if first["estimated"]:
        parts.append(" Estimated from the device's rated power, not measured.")
    return answer(*parts)


def more(text: str, address: str) -> Sentence:
    """A pointer to another page."""
    return note(link(text, address))
