"""Score card of the decision's config: gain, SLO, latency, energy and cost, each against the baseline."""

from typing import Any

import polars as pl

from tokenpeak.checks.catalogue import GUARDS
from tokenpeak.metrics import PER_GPU, title_of
from tokenpeak.ranking.candidates import throughput_column
from tokenpeak.ranking.intervals import CONFIDENCE
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.ranking.precision import precision_of
from tokenpeak.report.blocks.block import Tile, Tiles, Tone
from tokenpeak.report.blocks.digits import counted, listed, number, percent, trimmed
from tokenpeak.report.blocks.metric_columns import BROKEN, HELD, MILLI, NOT_PROVEN, confidence_words
from tokenpeak.report.checks import checked
from tokenpeak.report.config_energy import energy_configs, rounded
from tokenpeak.report.load import rates
from tokenpeak.report.overview.headline import current_phrase, planned_configs
from tokenpeak.report.ranking.standings import Ranking
from tokenpeak.report.view import SweepView, latency_words, metric_word
from tokenpeak.spec.slo import Slo

QUALITY = {"pass": "passed", "fail": "failed", "unknown": "not proven"}
ALIKE = 0.02
"""A difference from the baseline below this share is neither better nor worse."""


def score_card(view: SweepView, ranked: Ranking) -> Tiles | None:
    """The key figures of the decision's config; None where it names none."""
    recommended = ranked.chosen
    if recommended is None:
        return None
    tiles = [_objective(view, ranked, recommended), *_gain(ranked), *_equal_precision(view, ranked)]
    if (slo := _slo(view, recommended)) is not None:
        tiles.append(slo)
    # Where it is the objective, it is the first tile already.
    if not view.spec.objective.is_rate and (highest := _rate(view, ranked, recommended)):
        tiles.append(highest)
    for name, label, unit, scale in _compared(view):
        value = recommended.get(name)
        # Throughput per GPU has that of the engine beside it.
        if name == view.spec.objective.metric or not isinstance(value, int | float):
            continue
        tiles.append(
            Tile(
                label=label,
                value=number(value * scale),
                unit=unit,
                **_against(ranked, recommended, name),
            )
        )
    if (energy := _energy(view, ranked, recommended)) is not None:
        tiles.append(energy)
    if (cost := _cost(view, ranked, recommended)) is not None:
        tiles.append(cost)
    if (quality := _quality(view, recommended)) is not None:
        tiles.append(quality)
    return Tiles(tiles=(*tiles, _trust(view, ranked, recommended)), span="half")


def _compared(view: SweepView) -> list[tuple[str, str, str, float]]:
    """Column of the ranking, label, unit and the factor to it; a latency by the percentile that the SLO limits."""
    speed = throughput_column(view.spec)
    return [
        (speed, title_of(speed), "tok/s", 1.0),
        *((name, latency_words(name), "ms", 1000.0) for name in view.latency_columns),
    ]


def _objective(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> Tile:
    scale, unit = (1000.0, "ms") if view.metric.name in MILLI else (1.0, view.metric.unit)
    notes = []
    if recommended["low"] is not None:
        notes.append(f"{_show(recommended['low'], scale)} to {_show(recommended['high'], scale)} (95%)")
    if recommended["objective_holdout"] is not None:
        notes.append(f"holdout run {_show(recommended['objective_holdout'], scale)}")
    if (per_gpu := PER_GPU.get(view.spec.objective.metric)) and isinstance(recommended.get(per_gpu), float):
        gpus = view.gpus_used(ranked.hardware).get(str(recommended["config_id"]), 0)
        notes += [f"{number(recommended[per_gpu])} per GPU"] if gpus > 1 else []
    if recommended["each_launch"]:
        notes.append(f"the lowest launch; each: {recommended['each_launch']}")
    if (against := _baseline(ranked, recommended, "shown")) is not None:
        words, value = against
        notes.append(f"{words} {number(value * scale)}")
    if (share := _limit_share(view, ranked, recommended)) is not None:
        notes.append(f"{share:.0%} of the hardware's limit (roofline)")
    return Tile(
        label=view.metric_title,
        value=_show(recommended["shown"], scale),
        unit=unit,
        note="; ".join(notes),
        mark=ranked.mark,
    )


def _against(ranked: Ranking, recommended: dict[str, Any], name: str) -> dict[str, Any]:
    """How a figure differs from the baseline's: the note of its tile, and whether that is better or worse."""
    against = _baseline(ranked, recommended, name)
    own = recommended.get(name)
    if against is None or not own:
        return {}
    change = own / against[1] - 1
    lower = metric_direction(name) == "lower"
    # Where nothing is shown to be better, no other figure of the same launches is.
    is_alike = abs(change) < ALIKE or not ranked.decision.is_shown
    tone = "" if is_alike else "better" if (change < 0) == lower else "worse"
    return {"note": f"{percent(change)} against {against[0]}", "tone": tone}


def _energy(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> Tile | None:
    """Energy per output token with its interval; None where it is not known, or is the objective."""
    name = "energy_j_per_output_tok"
    if name == view.spec.objective.metric or not recommended.get(name):
        return None
    own = energy_configs(view).filter(hardware=ranked.hardware, config_id=recommended["config_id"])
    if own.is_empty():
        return None
    row = own.row(0, named=True)
    # What a page warns of as published, it does not show large.
    if row["estimated"] and view.record.imported is not None:
        return None
    known = "" if row["estimated"] else "simulated " if view.record.simulated else "measured "
    source = f"{known}at {view.objective_place}"
    low, high = row["low"], row["high"]
    ends = f"{rounded(low, low, high)} to {rounded(high, low, high)} (95%)" if low is not None else ""
    if low is None and row["n"] == 1 and not row["estimated"]:
        ends = "one launch, no interval"
    # An estimate follows throughput, whose gain stands above.
    against = {} if row["estimated"] else _against(ranked, recommended, name)
    described = ", ".join(words for words in (ends, row["boundary"], source) if words)
    return Tile(
        label="Energy",
        value=rounded(recommended[name], low, high),
        unit="J/token",
        note="; ".join(words for words in (described, against.get("note", "")) if words),
        mark="estimated" if row["estimated"] else "",
        tone=against.get("tone", ""),
    )


def _cost(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> Tile | None:
    """Cost of a million tokens; without a price the hours of a GPU, or of the node. None: it is the first tile."""
    name = "cost_per_1m_output_tok"
    if recommended.get(name):
        if name == view.spec.objective.metric:
            return None
        return Tile(
            label="Cost",
            value=number(recommended[name]),
            unit=f"{view.spec.energy.currency}/1M tokens",
            **_against(ranked, recommended, name),
        )
    if view.spec.pools:
        # What the table of metrics has of cost is for output tokens.
        return None
    speed = recommended.get("output_tok_per_s")
    if not speed:
        return Tile(label="Cost", value="not known", note="the node's throughput was not measured")
    gpus = view.gpus_used(ranked.hardware).get(str(recommended["config_id"]), 0)
    return Tile(
        label="Cost",
        value=number(max(1, gpus) * 1e6 / 3600 / speed),
        unit=f"{'GPU' if gpus else 'node'}-hours/1M tokens",
        note="no price is given",
    )


def _quality(view: SweepView, recommended: dict[str, Any]) -> Tile | None:
    """The verdict on the config's answers; None where they were not measured."""
    measured = view.trials.filter(pl.col("config_id") == recommended["config_id"], pl.col("quality").is_not_null())
    if measured.is_empty():
        return None
    row = measured.row(0, named=True)
    tones: dict[str, Tone] = {"pass": "better", "fail": "worse"}
    tone = tones.get(row["quality"], "")
    return Tile(label="Quality", value=QUALITY[row["quality"]], note=row["quality_reason"] or "", tone=tone)


def _trust(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> Tile:
    """On how many launches it rests, and what the checks of the figures found."""
    n = recommended["n"]
    noise = (
        f"launches vary by {ranked.spread:.1%}"
        if ranked.spread is not None
        else f"{view.lone_words('each launched once')}: noise unknown"
    )
    found = checked(view)
    ran = sum(each.looked_at > 0 for each in found.values())
    warnings = sum(len(each.findings) for each in found.values())
    words = f"{warnings} warning{'' if warnings == 1 else 's'}" if warnings else "no warning"
    why = [guard.mistake for guard in GUARDS if found[guard.name].findings]
    of = f" ({', '.join(why)})" if why else ""
    notes = [noise, f"{words} from {ran} checks{of}"]
    if (idle := len(found) - ran) > 0:
        notes.append(f"{idle} more had no data to check")
    if view.record.simulated:
        notes.insert(0, "simulated")
    if view.end is None or view.end.status == "interrupted":
        notes.append("the sweep did not end" if view.end is None else "the sweep was interrupted")
    rests = f"{n} launch{'' if n == 1 else 'es'}" if view.launches_known else f"{n} figure{'' if n == 1 else 's'}"
    return Tile(label="Trust", value=rests, note="; ".join(notes), tone="worse" if warnings else "")


def _baseline(ranked: Ranking, recommended: dict[str, Any], name: str) -> tuple[str, float] | None:
    """The baseline's name and figure; None where the baseline is no config, or this one."""
    config_id = ranked.baseline.config_id if ranked.baseline is not None else None
    if ranked.baseline is None or config_id is None or recommended["config_id"] == config_id:
        return None
    (value,) = ranked.frame.filter(pl.col("config_id") == config_id)[name] if name in ranked.frame.columns else (None,)
    return (ranked.baseline.words, float(value)) if isinstance(value, int | float) and value else None


def _gain(ranked: Ranking) -> list[Tile]:
    """The gain over what runs now with its interval, where launches show it."""
    gain = ranked.decision.gain
    if gain is None or gain.low is None or gain.high is None or not ranked.decision.is_shown:
        return []
    ends = f"{percent(gain.low - 1)} to {percent(gain.high - 1)} (95%)"
    return [
        Tile(
            label="Gain",
            value=percent(gain.ratio - 1),
            note=f"{ends} over {current_phrase(ranked)}",
            tone="better",
        )
    ]


def _equal_precision(view: SweepView, ranked: Ranking) -> list[Tile]:
    """What there is to gain at the precision of what runs now, in a sweep that tried others; else nothing."""
    known, decision, label = planned_configs(view, ranked.hardware), ranked.decision, "Gain at equal precision"
    measured = [each for each in decision.measured.ranked if each in known]
    if (current := decision.current) not in measured:
        return []
    own = precision_of(known[current])
    equal = [each for each in measured if precision_of(known[each]) == own and each != current]
    if len(equal) == len(measured) - 1:
        return []
    allowed = [each for each in equal if each in decision.verdicts.ranked]
    others = counted(len(equal), "other config", "other configs") if equal else "no other config"
    tried = f"{others} of this precision tried"
    if not allowed:
        kept = "; none may be run, as the ranking says" if equal else ""
        return [Tile(label=label, value="not explored", note=f"{tried}{kept}")]
    if decision.is_shown and decision.config in allowed and decision.gain is not None:
        return [Tile(label=label, value=percent(decision.gain.ratio - 1), note=f"the whole gain; {tried}")]
    return [Tile(label=label, value="none shown", note=tried)]


def _slo(view: SweepView, recommended: dict[str, Any]) -> Tile | None:
    """Whether the SLO holds at the objective's load, each limit with its value; None where it was not looked at."""
    if not view.slo_words:
        return Tile(label="SLO", value="none set", note="no limits of latency were given")
    if recommended.get("slo_met") is None or view.spec.objective.is_rate:
        return None
    confidence = recommended["slo_confidence"]
    note = "; ".join([*_limits(view.spec.slo, recommended), f"at {view.objective_place}"])
    if recommended["slo_met"] and isinstance(confidence, float):
        note += f"; {confidence_words(confidence)} confidence by {counted(recommended['n'], 'launch', 'launches')}"
    if not recommended["slo_met"]:
        return Tile(label="SLO", value=BROKEN, note=note, tone="worse")
    is_proven = isinstance(confidence, float) and confidence >= CONFIDENCE
    return Tile(label="SLO", value=HELD if is_proven else NOT_PROVEN, note=note)


def _limits(slo: Slo, recommended: dict[str, Any]) -> list[str]:
    """Each limit with the recommended config's value."""
    values = {(name, at): (recommended.get(f"{name}_{at}"), limit) for name, at, limit in slo.limits()}
    return [
        f"{metric_word(name)} {at} {number(value * 1000)} of {limit * 1000:g} ms"
        for (name, at), (value, limit) in values.items()
        if value is not None
    ]


def _rate(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> Tile | None:
    """The highest rate of the first workload that has rates, where there is an SLO."""
    workloads = rates.rated_workloads(view)
    if not workloads or not view.slo_words:
        return None
    found = rates.highest_rates(rates.open_runs(view, ranked.hardware, workloads[0])).filter(
        pl.col("config_id") == recommended["config_id"]
    )
    if not found["n"].sum():
        return None
    row = found.row(0, named=True)
    # The limit was not reached: the sustainable rate is this one or higher.
    least = "≥ " if row["breaks"] is None else ""
    return Tile(
        label="Rate within SLO",
        value=f"{least}{trimmed(row['holds'])}" if row["holds"] is not None else "none",
        unit="req/s" if row["holds"] is not None else "",
        note=_rate_note(row),
    )


def _rate_note(row: dict[str, Any]) -> str:
    """Where the limit lies, as far as the rates that were judged say."""
    limit = f"breaks at {trimmed(row['breaks'])} req/s" if row["breaks"] is not None else "the limit was not reached"
    below = [trimmed(rate) for rate in row["unjudged"] if row["breaks"] is None or rate < row["breaks"]]
    return f"{limit}; {listed(below)} req/s could not be judged" if below else limit


def _show(value: object, scale: float = 1.0) -> str:
    return number(value * scale) if isinstance(value, int | float) else "–"


def _limit_share(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> float | None:
    """The config's share of what the hardware could give, where it was predicted and the objective is throughput."""
    plan = view.plan_for(ranked.hardware)
    if plan is None or view.spec.objective.metric != "output_tok_per_s":
        return None
    for planned in plan.feasible:
        if (
            planned.config.config_id == recommended["config_id"]
            and planned.prediction
            and planned.prediction.limit_output_tok_per_s
        ):
            return float(recommended["objective"]) / planned.prediction.limit_output_tok_per_s
    return None
