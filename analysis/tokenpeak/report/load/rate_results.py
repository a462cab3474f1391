"""Tables of the load page: throughput by load level, the highest rate of each config, what each search found."""

import polars as pl

from tokenpeak.paths import slug
from tokenpeak.report.blocks.block import Column, Part, Sentence, Table, answer, code, strong, table
from tokenpeak.report.blocks.digits import counted, trimmed
from tokenpeak.report.blocks.metric_columns import confidence_column, confidence_percent, confidence_words
from tokenpeak.report.energy.config_energy import rounded


def highest_rates(hardware: str, highest: pl.DataFrame) -> Table:
    """The highest rate of each config within the SLO, and the first beyond it."""
    shown = highest.with_columns(sure=confidence_percent(pl.col("sure")))
    return table(
        shown,
        [
            Column(key="label", title="Config", kind="code"),
            Column(key="holds", title="Highest rate within the SLO", unit="req/s", kind="number"),
            *confidence_column(shown),
            Column(key="breaks", title="First rate beyond it", unit="req/s", kind="number"),
            Column(key="n", title="Rates judged", kind="number"),
            Column(key="untold", title="Not judged", kind="number", help="Rates whose runs could not be judged"),
            Column(key="launches", title="Launches", kind="number"),
        ],
        name=f"highest-{slug(hardware)}",
        title=f"Highest rate within the SLO on {hardware}",
        scope=slug(hardware),
        note="The limit lies between the two rates; – for the second alone: every rate that could be judged held.",
    )


def found_rates(hardware: str, workload: str, found: pl.DataFrame) -> Table:
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
    return [f" {counted(unknown, 'other', 'others')} may hold it too: {whose} could not be judged."] if unknown else []


def answer_search(hardware: str, found: pl.DataFrame) -> Sentence:
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
