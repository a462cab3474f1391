"""Score card of the recommended config: gain, SLO, latency, energy and cost, each drawn against the baseline."""

from typing import Any

import polars as pl

from tokenpeak.report import rates
from tokenpeak.report.answers import confidence_words
from tokenpeak.report.blocks import Bar, Tile, Tiles, number, percent, trimmed
from tokenpeak.report.precision_gain import PrecisionGain, precision_gain
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.view import SweepView, metric_word
from tokenpeak.spec.workload import Slo

COMPARED: tuple[tuple[str, str, str, float], ...] = (
    ("output_tok_per_s", "Output throughput", "tok/s", 1.0),
    ("ttft_s_p95", "TTFT p95", "ms", 1000.0),
    ("tpot_s_p95", "TPOT p95", "ms", 1000.0),
    ("energy_j_per_output_tok", "Energy", "J/token", 1.0),
    ("cost_per_1m_output_tok", "Cost", "", 1.0),
)
"""Column of the ranking, label, unit and the factor to it."""


def score_card(view: SweepView, ranked: Ranking) -> Tiles | None:
    """The key figures of the recommended config; None where nothing gave a result."""
    recommended = ranked.recommended
    if recommended is None:
        return None
    tiles = [_objective(view, ranked, recommended), *_gain(view, ranked, recommended)]
    if (slo := _slo(view, recommended)) is not None:
        tiles.append(slo)
    # Where it is the objective, it is the first tile already.
    if not view.spec.objective.is_rate and (highest := _rate(view, ranked, recommended)):
        tiles.append(highest)
    for name, label, unit, scale in COMPARED:
        value = recommended.get(name)
        if name == view.spec.objective.metric or not isinstance(value, int | float):
            continue
        is_energy = name == "energy_j_per_output_tok"
        tiles.append(
            Tile(
                label=label,
                value=number(value * scale),
                unit=unit or f"{view.spec.energy.currency}/1M tokens",
                note=_energy_boundary(view, recommended) if is_energy else "",
                mark=_energy_mark(view, recommended) if is_energy else "",
                bars=_bars(ranked, recommended, name, scale),
            )
        )
    if (share := _limit_share(view, ranked, recommended)) is not None:
        tiles.append(Tile(label="Hardware's limit", value=f"{share:.0%}", note="of it, by the performance model"))
    return Tiles(tiles=tuple(tiles))


def _objective(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> Tile:
    interval = (
        f"{_show(recommended['low'])} to {_show(recommended['high'])} (95%), n={recommended['n']}"
        if recommended["low"] is not None
        else f"n={recommended['n']}, no interval"
    )
    if recommended["objective_holdout"] is not None:
        interval += f"; holdout run {_show(recommended['objective_holdout'])}"
    gpus = view.gpus_used(ranked.hardware).get(str(recommended["config_id"]), 0)
    if gpus > 1 and view.metric.unit in ("tok/s", "req/s"):
        interval += f"; {number(recommended['objective'] / gpus)} per GPU"
    return Tile(
        label=view.metric_title,
        value=_show(recommended["objective"]),
        unit=view.metric.unit,
        note=interval,
        bars=_bars(ranked, recommended, "objective", 1.0),
    )


def _bars(ranked: Ranking, recommended: dict[str, Any], name: str, scale: float) -> tuple[Bar, ...]:
    """The value beside the baseline's; where the baseline is no config, beside the median of the configs."""
    ok = ranked.frame.filter(pl.col("state") == "ok")
    config_id = ranked.baseline.config_id if ranked.baseline is not None else None
    if ok.height < 2 or recommended["config_id"] == config_id:
        return ()
    rows = ok.filter(pl.col("config_id") == config_id) if config_id else ok
    against = rows[name].median()
    own = recommended[name]
    if not isinstance(against, int | float) or not own:
        return ()
    longest = max(own, against)
    label = ranked.baseline.words if ranked.baseline is not None and config_id else "median"
    return (
        Bar(label="this", share=own / longest, text=number(own * scale), is_own=True),
        Bar(label=label, share=against / longest, text=number(against * scale)),
    )


def _gain(view: SweepView, ranked: Ranking, recommended: dict[str, Any]) -> list[Tile]:
    """The gain at equal precision, and where the recommended config changes precision, the one with that change."""
    baseline = ranked.baseline
    # A gain that launches of one config differ by as much is no key figure.
    if baseline is None or recommended["gain"] is None or ranked.vague:
        return []
    found = precision_gain(view, ranked)
    if recommended["config_id"] == baseline.config_id:
        return []
    if found is None or not found.changes:
        label = "Gain" if found is None else "Gain at equal precision"
        return [Tile(label=label, value=percent(recommended["gain"]), note=_gain_note(ranked, recommended))]
    return [_equal_precision(ranked, found), _changed_precision(ranked, recommended, found)]


def _gain_note(ranked: Ranking, row: dict[str, Any]) -> str:
    assert ranked.baseline is not None, "a gain is over a baseline"
    if row["gain_low"] is not None:
        return f"{percent(row['gain_low'])} to {percent(row['gain_high'])} (95%) over {ranked.baseline.words}"
    return f"over {ranked.baseline.words}{'' if ranked.replicated else ', one launch each, no interval'}"


def _equal_precision(ranked: Ranking, found: PrecisionGain) -> Tile:
    """The best config at the baseline's precision over the baseline."""
    assert ranked.baseline is not None, "a gain is over a baseline"
    if found.best["config_id"] == ranked.baseline.config_id:
        tried = f"{found.others} other{'s' if found.others != 1 else ''} tried" if found.others else "no other tried"
        return Tile(label="Gain at equal precision", value="none", note=f"{ranked.baseline.words} is best, {tried}")
    note = f"{found.best['label']}: {_gain_note(ranked, found.best)}"
    return Tile(label="Gain at equal precision", value=percent(found.best["gain"]), note=note)


def _changed_precision(ranked: Ranking, recommended: dict[str, Any], found: PrecisionGain) -> Tile:
    quality = {"pass": "quality passed", "fail": "quality failed", "unknown": "quality unknown"}
    return Tile(
        label=f"With {' and '.join(found.changes)}",
        value=percent(recommended["gain"]),
        note=f"{_gain_note(ranked, recommended)}; {quality.get(found.quality or '', 'quality not measured')}",
    )


def _slo(view: SweepView, recommended: dict[str, Any]) -> Tile | None:
    """Whether the SLO holds at the objective's load, each limit with its value; None without an SLO."""
    if recommended.get("slo_met") is None or view.spec.objective.is_rate:
        return None
    bars = _limit_bars(view.spec.slo, recommended)
    confidence = recommended["slo_sure"]
    note = f"at {view.objective_place}"
    if recommended["slo_met"] and isinstance(confidence, float):
        note += f", {confidence_words(confidence)} confidence"
    return Tile(label="SLO", value="held" if recommended["slo_met"] else "broken", note=note, bars=bars)


def _limit_bars(slo: Slo, recommended: dict[str, Any]) -> tuple[Bar, ...]:
    """Each limit's value as a share of the limit; a value beyond it fills the bar."""
    found = []
    for name, percentile, limit in slo.limits():
        value = recommended.get(f"{name}_{percentile}")
        if value is None:
            continue
        words = f"{number(value * 1000)} of {limit * 1000:g} ms"
        label = f"{metric_word(name)} {percentile}"
        found.append(Bar(label=label, share=min(1.0, value / limit), text=words, is_own=value <= limit))
    return tuple(found)


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
    return Tile(
        label="Rate within SLO",
        value=trimmed(row["holds"]) if row["holds"] is not None else "none",
        unit="req/s" if row["holds"] is not None else "",
        note=f"breaks at {trimmed(row['breaks'])}" if row["breaks"] is not None else "no rate judged breaks it",
    )


def _show(value: object) -> str:
    return number(value) if isinstance(value, int | float) else "–"


def _own_runs(view: SweepView, recommended: dict[str, Any]) -> pl.DataFrame:
    return view.objective_runs().filter(pl.col("config_id") == recommended["config_id"])


def _energy_boundary(view: SweepView, recommended: dict[str, Any]) -> str:
    boundary = _own_runs(view, recommended)["energy_boundary"].drop_nulls()
    return str(boundary[0]).replace("_", " ").replace("gpu", "GPU").replace("cpu", "CPU") if boundary.len() else ""


def _energy_mark(view: SweepView, recommended: dict[str, Any]) -> str:
    return "estimated" if (_own_runs(view, recommended)["energy_source"] == "estimated_tdp").any() else ""


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
