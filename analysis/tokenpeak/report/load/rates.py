"""Sustainable rate: how each config behaves at rising request rates, the highest within the SLO, and its tables."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks.block import Column, Part, Sentence, Table, answer, code, strong, table
from tokenpeak.report.blocks.digits import counted, listed, number, trimmed
from tokenpeak.report.blocks.metric_columns import (
    COUNTS,
    confidence_column,
    confidence_percent,
    confidence_words,
    pooled_confidence,
)
from tokenpeak.report.config_energy import rounded
from tokenpeak.report.view import LAUNCH, SweepView, limits_words, metric_word
from tokenpeak.spec.load import MaxRateLoad
from tokenpeak.spec.slo import Slo
from tokenpeak.store.columns import canonical_json

ENDED = {
    "found": "found",
    "budget": "out of time",
    "probes": "out of probes",
    "unreachable": "no rate within the SLO",
    "unbounded": "every rate within the SLO",
}
"""Why a search ended, in words."""


def open_runs(view: SweepView, hardware: str, workload: str) -> pl.DataFrame:
    """The runs at a request rate, of one workload on one kind of hardware, with `held` and `broken`.

    `held` says whether the rate is sustainable: the SLO was met, and the engine kept up. An overloaded run is excluded
    from the ranking, but shows that its rate is not sustainable. Null: the run cannot decide it (the client's fault,
    too few requests, or no SLO). `broken` has what did not hold at that rate, in words; null: nothing, or not known.

    >>> runs = open_runs(sweep, sweep.hardware[0], "short")
    >>> runs.group_by("rate_per_s").agg(pl.col("held").sum()).sort("rate_per_s").rows()
    [(4.0, 12), (8.0, 6), (16.0, 3)]
    """
    offered = view.runs.filter(
        pl.col("hardware") == hardware, pl.col("workload_name") == workload, pl.col("rate_per_s").is_not_null()
    ).with_columns(held="rate_held", judged="well_measured", state="steady_state")
    own = [_broken(run, Slo.model_validate(json.loads(run["slo"]))) for run in offered.iter_rows(named=True)]
    offered = offered.with_columns(broken=pl.Series(own, dtype=pl.String))
    searched = _probes(_searches(view, hardware, workload), offered.schema)
    return pl.concat([offered, searched], how="diagonal").sort("label", "rate_per_s")


def _broken(run: Mapping[str, Any], slo: Slo) -> str | None:
    """What did not hold in a run or probe, by its percentiles and by how many of its requests held each limit."""
    if run["held"] is not False:
        return None
    sent, within = run.get("requests_sent") or 0, json.loads(run.get("within_limits") or "{}")
    words = []
    for metric, percentile, limit in slo.limits():
        value = run.get(f"{metric}_{percentile}")
        count = within.get(f"{metric}_{percentile}", sent)
        if (value is not None and value > limit) or 100 * count < int(percentile.removeprefix("p")) * sent:
            words.append(f"{metric_word(metric)} {percentile} ≤ {limit * 1000:g} ms")
    if run["state"] == "overloaded" or run.get("overloaded"):
        words.append("the queue grew")
    return ", ".join(words) or None


def _searches(view: SweepView, hardware: str, workload: str) -> pl.DataFrame:
    return view.runs.filter(
        pl.col("hardware") == hardware, pl.col("workload_name") == workload, pl.col("max_rate_ended").is_not_null()
    )


def _probes(searches: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Each rate that searches tried, as a run of its own with what the search kept of it; no closed loops."""
    kept = ("config_id", "label", "trial_id", "workload_name", "hardware", "verdict", "verdict_reasons")
    rows = [
        {name: run[name] for name in kept}
        | probe["metrics"]
        | {
            "level_label": f"probe={probe['rate_per_s']:.4g}/s",
            "rate_per_s": float(f"{probe['rate_per_s']:.4g}"),
            "held": probe["holds"],
            "broken": _broken(
                {**probe["metrics"], "held": probe["holds"], "state": probe.get("state")}, _searched(run["level"])
            ),
            "slo_met": probe["holds"],
            "judged": True,
            "request_per_s": probe["achieved_per_s"],
            "goodput_request_per_s": probe["goodput_request_per_s"],
            "state": probe.get("state"),
            "duration_s": probe.get("duration_s"),
            "percentile_intervals": canonical_json(probe.get("percentile_intervals") or {}),
        }
        for run in searches.iter_rows(named=True)
        for probe in json.loads(run["max_rate_probes"])
        if probe.get("concurrency") is None
    ]
    given = {name for row in rows for name in row}
    known = {name: dtype for name, dtype in schema.items() if name in given}
    return pl.DataFrame([{name: row.get(name) for name in known} for row in rows], schema=known)


def found_rates(view: SweepView, hardware: str, workload: str) -> pl.DataFrame:
    """Results of searches for the highest rate, one row a launch, highest first.

    Columns: config_id, label, limits (in words), rate, low, high (null: that end is not known), confidence, ended,
    probes, replicate, launch (of its config, from 1), seconds (of all probes), saturation, saturation_low,
    saturation_high (null: not recorded).
    """
    searches = _searches(view, hardware, workload)
    limits = [limits_words(_searched(str(level))) for level in searches["level"].to_list()]
    tried = [json.loads(text) for text in searches["max_rate_probes"].to_list()]
    probes = [len(each) for each in tried]
    lengths = [[probe.get("duration_s") for probe in each] for each in tried]
    seconds = [sum(each) if None not in each else None for each in lengths]
    return (
        searches.with_columns(
            limits=pl.Series(limits, dtype=pl.String),
            probes=pl.Series(probes, dtype=pl.Int64),
            seconds=pl.Series(seconds, dtype=pl.Float64),
            ended=pl.col("max_rate_ended").replace_strict(ENDED),
        )
        .join(view.trials.select("trial_id", launch=LAUNCH), on="trial_id", how="left", maintain_order="left")
        .select(
            "config_id",
            "label",
            "limits",
            "probes",
            "replicate",
            "launch",
            "ended",
            "seconds",
            rate="max_rate_per_s",
            low="max_rate_low_per_s",
            high="max_rate_high_per_s",
            confidence="max_rate_confidence",
            saturation="saturation_per_s",
            saturation_low="saturation_low_per_s",
            saturation_high="saturation_high_per_s",
        )
        .sort("rate", descending=True, nulls_last=True, maintain_order=True)
    )


def lowest_launches(found: pl.DataFrame) -> pl.DataFrame:
    """Of each config the launch whose search gave the lowest rate, highest first, with `each`: the rates of all.

    `found` as `found_rates` has it. A launch without a rate is the lowest.
    """
    each = pl.col("rate").sort(descending=True, nulls_last=True).over("label", mapping_strategy="join").alias("each")
    return (
        found.with_columns(each)
        .sort("rate", nulls_last=False, maintain_order=True)
        .unique("label", keep="first", maintain_order=True)
        .sort("rate", descending=True, nulls_last=True, maintain_order=True)
    )


def searched_limits(view: SweepView) -> Slo | None:
    """The limits of the first level that searches for the highest rate; None where no level does."""
    levels = [level for plan in view.spec.workloads for level in plan.levels]
    return next((level.max_rate_under for level in levels if isinstance(level, MaxRateLoad)), None)


def _searched(level: str) -> Slo:
    """The limits under which a level searches for the highest rate."""
    return Slo.model_validate(json.loads(level)["max_rate_under"])


def rated_workloads(view: SweepView) -> list[str]:
    """Workloads that were run at more than one request rate, or whose highest rate was searched for."""
    searched = view.runs.filter(pl.col("max_rate_ended").is_not_null())["workload_name"].to_list()
    counted = (
        view.runs.filter(pl.col("rate_per_s").is_not_null())
        .group_by("workload_name", maintain_order=True)
        .agg(pl.col("rate_per_s").n_unique())
        .filter(pl.col("rate_per_s") > 1)
    )
    rated = {*searched, *counted["workload_name"].to_list()}
    return [name for name in view.runs["workload_name"].unique(maintain_order=True).to_list() if name in rated]


def highest_rates(runs: pl.DataFrame) -> pl.DataFrame:
    """For each config: the sustainable rate, below the first that was not sustained, and that first one.

    Columns: config_id, label, holds (null: none did), "confidence" (of the SLO at that rate, by the requests of all
    launches), breaks (null: none did), broken (what did not hold there, null: not known), n (rates judged), untold
    (rates not judged), unjudged (those rates), launches. The true highest rate lies between holds and breaks.

    >>> from tokenpeak.report.load.rates import open_runs
    >>> highest_rates(open_runs(sweep, sweep.hardware[0], "short")).select("label", "holds", "breaks").rows()[:1]
    [('64 / 2048', 8.0, 16.0)]
    """
    config = ("config_id", "label")
    decided = (
        runs.filter(pl.col("held").is_not_null())
        .group_by(*config, "rate_per_s")
        .agg(
            pl.col("held").all(),
            pl.struct(COUNTS).alias("counts"),
            pl.col("broken").drop_nulls().unique(maintain_order=True).str.join("; "),
            launches=pl.len().cast(pl.Int64),
        )
        .with_columns(
            pooled_confidence(pl.col("counts")).alias("slo_confidence"),
            breaks=pl.col("rate_per_s").filter(~pl.col("held")).min().over(config),
        )
    )
    below = pl.col("held") & (pl.col("breaks").is_null() | (pl.col("rate_per_s") < pl.col("breaks")))
    found = decided.group_by(config).agg(
        holds=pl.col("rate_per_s").filter(below).max().cast(pl.Float64),
        confidence=pl.col("slo_confidence").filter(below).sort_by(pl.col("rate_per_s").filter(below)).last(),
        breaks=pl.col("breaks").first().cast(pl.Float64),
        broken=pl.col("broken").filter(pl.col("rate_per_s") == pl.col("breaks")).first().replace("", None),
        n=pl.len().cast(pl.Int64),
        judged=pl.col("rate_per_s").cast(pl.Float64),
        launches=pl.col("launches").max(),
    )
    return (
        runs.group_by(config, maintain_order=True)
        .agg(rates=pl.col("rate_per_s").unique().sort().cast(pl.Float64))
        .join(found, on=config, how="left", maintain_order="left")
        .with_columns(
            pl.col("n").fill_null(0),
            unjudged=pl.col("rates").list.set_difference(pl.col("judged").fill_null([])).list.sort(),
        )
        .select(
            *config,
            "holds",
            "confidence",
            "breaks",
            "broken",
            "n",
            "unjudged",
            "launches",
            untold=pl.col("unjudged").list.len().cast(pl.Int64),
        )
        .sort("holds", "breaks", descending=True, nulls_last=True, maintain_order=True)
    )


def highest_rates_table(hardware: str, highest: pl.DataFrame) -> Table:
    """The highest rate of each config within the SLO, and the first beyond it."""
    shown = highest.with_columns(confidence=confidence_percent(pl.col("confidence")))
    return table(
        shown,
        [
            Column(key="label", title="Config", kind="code"),
            Column(key="holds", title="Highest rate within the SLO", unit="req/s", kind="number"),
            *confidence_column(shown),
            Column(key="breaks", title="First rate beyond it", unit="req/s", kind="number"),
            *([Column(key="broken", title="What broke there")] if shown["broken"].is_not_null().any() else []),
            Column(key="n", title="Rates judged", kind="number"),
            Column(key="untold", title="Not judged", kind="number", help="Rates whose runs could not be judged"),
            Column(key="launches", title="Launches", kind="number"),
        ],
        name=f"highest-{slug(hardware)}",
        title=f"Highest rate within the SLO on {hardware}",
        scope=slug(hardware),
        note="A rate is held where every launch held it. The limit lies between the two rates; – for the second alone: "
        "every rate that could be judged held.",
    )


def found_rates_table(hardware: str, workload: str, found: pl.DataFrame) -> Table:
    """The highest rate that each launch's search found, as an interval."""
    return table(
        found.with_columns(percent=pl.col("confidence") * 100),
        [
            Column(key="label", title="Config", kind="code"),
            Column(key="rate", title="Highest rate", unit="req/s", kind="number"),
            Column(key="low", title="Low", unit="req/s", kind="number"),
            Column(key="high", title="High", unit="req/s", kind="number"),
            Column(key="percent", title="Confidence", unit="%", kind="number"),
            *(
                Column(key=key, title=title, unit="req/s", kind="number", hidden=key != "saturation")
                for key, title in (
                    ("saturation", "Saturation"),
                    ("saturation_low", "Saturation, low"),
                    ("saturation_high", "Saturation, high"),
                )
                if found["saturation"].is_not_null().any()
            ),
            Column(key="limits", title="Limits"),
            Column(key="ended", title="Search ended"),
            Column(key="probes", title="Probes", kind="number"),
            Column(key="seconds", title="Measured for", unit="s", kind="number"),
            Column(key="launch", title="Launch of its config", kind="number", hidden=not (found["launch"] > 1).any()),
        ],
        name=f"found-rates-{slug(hardware)}-{slug(workload)}",
        title=f"Highest rate by search for {workload} on {hardware}",
        scope=slug(hardware),
        note="The interval holds the highest rate with the confidence given, and saturation is what a closed loop "
        "reached; every probe is among the runs below.",
    )


def answer_rates(hardware: str, highest: pl.DataFrame, slo: str) -> Sentence:
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
        f" is the highest rate at which {slo} held. ",
    ]
    if same.height == 1:
        parts += [code(best["label"]), " held it"]
    else:
        parts.append(f"{same.height} of {highest.height} configs held it")
    if isinstance(least := same["confidence"].min(), float):
        at = "with" if same.height == 1 else "each with at least"
        parts.append(f", {at} {confidence_words(least)} confidence")
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
    return [f" {counted(unknown, 'other', 'others')} may hold it too: {whose} could not be judged."] if unknown else []


def answer_search(hardware: str, found: pl.DataFrame) -> Sentence:
    """The sustainable rate that a search found, with its confidence."""
    lowest = lowest_launches(found)
    best = lowest.row(0, named=True)
    if best["rate"] is None:
        return answer(f"On {hardware}, the search found no rate at which {best['limits']} held.")
    parts: list[Part] = [
        f"On {hardware}, ",
        strong(f"{rounded(best['rate'], best['low'], best['high'])} req/s"),
        f" is the highest rate within {best['limits']} by search, with ",
        code(best["label"]),
    ]
    if best["each"].len() > 1:
        parts.append(f" (the lowest launch; each: {listed([number(rate) for rate in best['each']])})")
    if best["low"] is not None and best["high"] is not None:
        parts.append(
            f". It lies between {rounded(best['low'], best['low'], best['high'])} and "
            f"{rounded(best['high'], best['low'], best['high'])} req/s with "
            f"{best['confidence']:.0%} confidence, after {best['probes']} probes."
        )
        reach = lowest.filter(pl.col("label") != best["label"], pl.col("high") >= best["low"])["label"]
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
