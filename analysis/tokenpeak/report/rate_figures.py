"""The figures of the rate page: TTFT, TPOT, throughput and goodput against the offered rate."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tokenpeak.report import charts, rates
from tokenpeak.report.blocks import Column, Figure, table
from tokenpeak.report.figures import slug
from tokenpeak.report.view import SweepView, metric_word

PALE = 40
"""Most configs that are drawn pale; where there are more, an even choice of them."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A metric to draw: its column, the factor to the unit shown, and the SLO's limit in that unit."""

    column: str
    title: str
    unit: str
    scale: float = 1.0
    log: bool = False
    limit: float | None = None


def measures(view: SweepView) -> tuple[Measure, ...]:
    """What is drawn: TTFT and TPOT at the SLO's percentile, p95 where it names none, then throughput and goodput.

    Without an SLO, a search's own limits stand for it.
    """
    found = []
    slo = view.spec.slo if view.slo_words else rates.searched_limits(view) or view.spec.slo
    for metric in ("ttft_s", "tpot_s"):
        given = next(((p, limit * 1000) for name, p, limit in slo.limits() if name == metric), None)
        percentile, limit = given or ("p95", None)
        title = f"{metric_word(metric)} {percentile}"
        column = f"{metric}_{percentile}"
        found.append(Measure(column=column, title=title, unit="ms", scale=1000.0, log=True, limit=limit))
    return (
        *found,
        Measure(column="output_tok_per_s", title="Output throughput", unit="tok/s"),
        Measure(column="goodput_request_per_s", title="Goodput", unit="req/s"),
    )


def rate_figures(view: SweepView, hardware: str, workload: str, best: str | None, baseline: str | None) -> list[Figure]:
    """A figure for each measure; a config has one colour in all of them."""
    runs = rates.open_runs(view, hardware, workload)
    columns = [measure.column for measure in measures(view) if measure.column in runs.columns]
    measured = runs.filter("told", pl.any_horizontal(pl.col(columns).is_not_null()))["label"].to_list()
    names = rates.named_configs(rates.highest_rates(runs.filter(pl.col("label").is_in(measured))), best, baseline)
    return curves(view, hardware, workload, runs, names, f" on {hardware}")


def curves(
    view: SweepView, what: str, workload: str, runs: pl.DataFrame, names: Sequence[str], of: str
) -> list[Figure]:
    """A figure for each measure of these runs, in which the labels among `names` are named."""
    highest = rates.highest_rates(runs)
    found = []
    for measure in measures(view):
        points = rates.curve(runs, measure.column, names, measure.scale)
        # One point is no curve; the tables have it.
        if points.height > 1 and points["value"].max():
            name = f"rates-{slug(what)}-{slug(workload)}-{slug(measure.title)}"
            untold = runs.filter(~pl.col("told")).height
            found.append(_figure(view, name, f"{measure.title}{of}", measure, points, highest, names, untold))
    return found


def _figure(
    view: SweepView,
    name: str,
    title: str,
    measure: Measure,
    points: pl.DataFrame,
    highest: pl.DataFrame,
    names: Sequence[str],
    untold: int,
) -> Figure:
    drawn = points.filter(pl.col("value") > 0) if measure.log else points
    pale = drawn.filter(pl.col("named") == "")["label"].unique(maintain_order=True)
    kept = pale.gather_every(max(1, -(-pale.len() // PALE)))
    drawn = drawn.filter((pl.col("named") != "") | pl.col("label").is_in(kept.to_list()))
    domain = rates.axis_ends(drawn, measure.limit, log=measure.log)
    ends = rates.line_ends(drawn, domain, log=measure.log)
    held = highest.filter(pl.col("label").is_in(list(names)), pl.col("holds").is_not_null())
    # Where the SLO's own line is drawn, the rates that held are read from it.
    holds = held.select(named="label", rate_per_s="holds") if measure.limit is None and held.height else None
    return Figure(
        name=name,
        title=title,
        caption=_caption(
            view,
            measure,
            points,
            pale=pale.len(),
            drawn=kept.len(),
            untold=untold,
            dotted=holds is not None,
        ),
        spec=charts.spec_of(
            charts.rate_curves(
                drawn,
                ends,
                names=names,
                unit=measure.unit,
                limit=(measure.limit, f"SLO {measure.limit:g} ms") if measure.limit is not None else None,
                log=measure.log,
                domain=domain,
                holds=holds,
            )
        ),
        data=table(
            points,
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="rate_per_s", title="Offered rate", unit="req/s", kind="number"),
                Column(key="value", title=measure.title, unit=measure.unit, kind="number"),
                Column(key="holds", title="SLO held"),
                Column(key="n", title="Launches", kind="number"),
            ],
            name="data",
            title=f"Data of the figure: {title}",
        ),
    )


def _caption(
    view: SweepView, measure: Measure, points: pl.DataFrame, *, pale: int, drawn: int, untold: int, dotted: bool
) -> str:
    most = max(points["n"].to_list())
    launches = "one launch each, no interval" if most == 1 else f"mean of up to {most} launches"
    words = [f"{measure.title} ({measure.unit}) against offered rate, {launches}."]
    if pale > 0:
        part = f" ({drawn} of them drawn)" if drawn < pale else ""
        words.append(f"{pale} {'other is' if pale == 1 else 'others are'} pale{part}; all are in the data.")
    if untold:
        words.append(f"{untold} runs that could not be judged are left out.")
    if view.slo_words or rates.searched_limits(view):
        whole = f"the SLO ({view.slo_words})" if view.slo_words else "the limits"
        words.append(f"Hollow points broke {whole} in a launch.")
        if dotted:
            words.append("Dotted: the highest rate that held.")
    return " ".join(words)
