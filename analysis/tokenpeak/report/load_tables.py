"""Tables of the load page: throughput by load level, the highest rate of each config, what each search found."""

import polars as pl

from tokenpeak.report import level_curves
from tokenpeak.report.blocks import Column, Table, table
from tokenpeak.report.figures import slug
from tokenpeak.report.ranking import Ranking
from tokenpeak.report.tables import confidence_column, confidence_percent, trial_href
from tokenpeak.report.view import SweepView

LEVELS = 8
"""Load levels whose columns are shown at first."""


def throughput_by_load(view: SweepView, ranked: Ranking, workload: str) -> Table | None:
    """A row per config with its throughput at each number of requests in flight; None where there is but one."""
    runs = level_curves.loaded_runs(view, ranked.hardware, workload, "users")
    per_gpu = view.differ_in_gpus(ranked.hardware)
    column, unit = ("output_tok_per_s_per_gpu", "tok/s per GPU") if per_gpu else ("output_tok_per_s", "tok/s")
    points = level_curves.points(runs, level_curves.Measure(column=column, title="", unit=unit))
    if points.is_empty() or points["x"].n_unique() < 2:
        return None
    levels = points["x"].unique().sort().to_list()
    wide = points.pivot("x", index="series", values="value")
    order = pl.DataFrame({"series": ranked.frame["label"], "href": ranked.frame["trial_id"]})
    shown = order.join(wide, on="series", how="inner", maintain_order="left")
    return table(
        shown.with_columns(href=trial_href(pl.col("href"))),
        [
            Column(key="series", title="Config", unit=" / ".join(view.axes), kind="code"),
            *(
                Column(key=str(level), title=f"{level:g}", unit=unit, kind="number", hidden=place >= LEVELS)
                for place, level in enumerate(levels)
            ),
        ],
        name=f"by-load-{slug(ranked.hardware)}-{slug(workload)}",
        title=f"Output throughput by requests in flight{view.where(ranked.hardware)}",
        hrefs={"series": "href"},
        scope=slug(ranked.hardware),
        note="Geometric means over launches; configs in the order of the ranking.",
    )


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
        span="half",
        scope=slug(hardware),
        note="The interval holds the highest rate with the confidence given, and saturation is what a closed loop "
        "reached; every probe is among the runs below.",
    )
