"""The figures of the rate page: TTFT, TPOT, throughput and goodput against the offered rate."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tokenpeak.report import charts, rate_charts, rates
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
    measured = runs.filter("judged", pl.any_horizontal(pl.col(columns).is_not_null()))["label"].to_list()
    names = rates.named_configs(rates.highest_rates(runs.filter(pl.col("label").is_in(measured))), best, baseline)
    found = rates.found_rates(view, hardware, workload)
    searched = [searched_figure(hardware, workload, found)] if found.height else []
    return [*searched, *curves(view, hardware, workload, runs, names, f" on {hardware}", _marks(found))]


def curves(
    view: SweepView,
    what: str,
    workload: str,
    runs: pl.DataFrame,
    names: Sequence[str],
    of: str,
    marks: pl.DataFrame | None = None,
) -> list[Figure]:
    """A figure for each measure of these runs, in which the labels among `names` are named.

    `marks`: what searches found, as `_marks` says; without one, the sustainable rate among those tried.
    """
    highest = rates.highest_rates(runs)
    found = []
    for measure in measures(view):
        points = rates.curve(runs, measure.column, names, measure.scale)
        # One point is no curve; the tables have it.
        if points.height > 1 and points["value"].max():
            name = f"rates-{slug(what)}-{slug(workload)}-{slug(measure.title)}"
            unjudged = runs.filter(~pl.col("judged")).height
            found.append(_figure(view, name, f"{measure.title}{of}", measure, points, highest, names, unjudged, marks))
    return found


MARKS = pl.Schema({"named": pl.String, "kind": pl.String, "rate": pl.Float64, "low": pl.Float64, "high": pl.Float64})


def _marks(found: pl.DataFrame) -> pl.DataFrame | None:
    """The highest rate and the saturation of each config, of its first launch; None where nothing was searched for."""
    if found.is_empty():
        return None
    first = found.sort("replicate", maintain_order=True).unique("label", keep="first", maintain_order=True)
    return pl.concat(
        first.select(named="label", kind=pl.lit(kind), rate=column, low=f"{prefix}low", high=f"{prefix}high").cast(
            MARKS
        )
        for kind, column, prefix in (("highest", "rate", ""), ("saturation", "saturation", "saturation_"))
    )


def searched_figure(hardware: str, workload: str, found: pl.DataFrame) -> Figure:
    """What each launch's search found: the highest rate and the saturated throughput, with their intervals."""
    several = found["label"].is_duplicated().any()
    row = pl.format("{}, launch {}", "label", pl.col("replicate") + 1) if several else pl.col("label")
    shown = found.head(charts.CHARTED).with_columns(
        row=row,
        words=pl.struct("rate", "low", "high", "ended").map_elements(_rate_words, return_dtype=pl.String),
        saturation_words=pl.struct("saturation", "saturation_low", "saturation_high").map_elements(
            _saturation_words, return_dtype=pl.String
        ),
    )
    confidence = found["confidence"][0]
    left = f" The figure shows the {charts.CHARTED} highest." if found.height > charts.CHARTED else ""
    title = f"Highest rate and saturation for {workload} on {hardware}"
    return Figure(
        name=f"rates-{slug(hardware)}-{slug(workload)}-searched",
        title=title,
        caption=f"Dot: the highest rate within {found['limits'][0]}, by search. Stroke: the saturated throughput, "
        f"that of a closed loop. Bars are {confidence:.0%} intervals.{left}",
        spec=charts.spec_of(rate_charts.searched_rates(shown, f"{confidence:.0%}")),
        data=table(
            found,
            [
                Column(key="label", title="Config", kind="code"),
                *(
                    Column(key=key, title=name, unit="req/s", kind="number")
                    for key, name in (
                        ("rate", "Highest rate"),
                        ("low", "Low"),
                        ("high", "High"),
                        ("saturation", "Saturation"),
                        ("saturation_low", "Saturation, low"),
                        ("saturation_high", "Saturation, high"),
                    )
                ),
                Column(key="seconds", title="Measured for", unit="s", kind="number"),
            ],
            name="data",
            title=f"Data of the figure: {title}",
        ),
    )


def _rate_words(row: dict[str, float | str | None]) -> str:
    """The answer beside its dot: a rate with its ends, or what is known where one is not."""
    rate, low, high = row["rate"], row["low"], row["high"]
    if rate is None:
        return f"no rate within the SLO below {high:.3g}" if high is not None else str(row["ended"])
    if low is not None and high is not None:
        return f"{rate:.3g} ({low:.3g} to {high:.3g})"
    return f"at least {low if low is not None else rate:.3g}" if high is None else f"at most {high:.3g}"


def _saturation_words(row: dict[str, float | None]) -> str:
    at, low, high = row["saturation"], row["saturation_low"], row["saturation_high"]
    if at is None:
        return "saturation not recorded"
    return f"saturated at {at:.3g}" + (f" ({low:.3g} to {high:.3g})" if low is not None and high is not None else "")


def few_pale(points: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The points that are drawn, and how many configs among them are pale: PALE at most, an even choice."""
    pale = points.filter(pl.col("named") == "")["label"].unique(maintain_order=True)
    kept = pale.gather_every(max(1, -(-pale.len() // PALE)))
    return points.filter((pl.col("named") != "") | pl.col("label").is_in(kept.to_list())), kept.len()


def _figure(
    view: SweepView,
    name: str,
    title: str,
    measure: Measure,
    points: pl.DataFrame,
    highest: pl.DataFrame,
    names: Sequence[str],
    unjudged: int,
    marks: pl.DataFrame | None,
) -> Figure:
    drawn = points.filter(pl.col("value") > 0) if measure.log else points
    pale = drawn.filter(pl.col("named") == "")["label"].n_unique()
    drawn, kept = few_pale(drawn)
    domain = rates.axis_ends(drawn, measure.limit, log=measure.log)
    ends = rates.line_ends(drawn, domain, log=measure.log)
    if marks is None:
        held = highest.filter(pl.col("holds").is_not_null()).select(named="label", rate=pl.col("holds"))
        # Where the SLO's own line is drawn, sustainable rates are read from it.
        marks = pl.concat([pl.DataFrame(schema=MARKS), held], how="diagonal") if measure.limit is None else None
        marks = marks.with_columns(kind=pl.lit("highest")) if marks is not None else pl.DataFrame(schema=MARKS)
    marks = marks.filter(pl.col("named").is_in(list(names)))
    return Figure(
        name=name,
        title=title,
        caption=_caption(
            view,
            measure,
            points,
            pale=pale,
            drawn=kept,
            unjudged=unjudged,
            marks=marks,
        ),
        spec=charts.spec_of(
            rate_charts.rate_curves(
                drawn,
                ends,
                names=names,
                unit=measure.unit,
                limit=(measure.limit, f"SLO {measure.limit:g} ms") if measure.limit is not None else None,
                log=measure.log,
                domain=domain,
                marks=marks,
            )
        ),
        data=table(
            points.with_columns(pl.col("state").str.replace_all("_", " ").fill_null("not recorded")),
            [
                Column(key="label", title="Config", kind="code"),
                Column(key="rate_per_s", title="Offered rate", unit="req/s", kind="number"),
                Column(key="value", title=measure.title, unit=measure.unit, kind="number"),
                *(
                    Column(key=key, title=title, unit=measure.unit, kind="number")
                    for key, title in (("low", "95% low"), ("high", "95% high"))
                    if points["low"].is_not_null().any()
                ),
                *([Column(key="state", title="State")] if points["state"].is_not_null().any() else []),
                Column(key="seconds", title="Measured for", unit="s", kind="number"),
                Column(key="holds", title="SLO held"),
                Column(key="n", title="Launches", kind="number"),
            ],
            name="data",
            title=f"Data of the figure: {title}",
        ),
    )


def _caption(
    view: SweepView,
    measure: Measure,
    points: pl.DataFrame,
    *,
    pale: int,
    drawn: int,
    unjudged: int,
    marks: pl.DataFrame,
) -> str:
    most = max(points["n"].to_list())
    launches = "one launch each" if most == 1 else f"mean of up to {most} launches"
    words = [f"{measure.title} ({measure.unit}) against offered rate, {launches}."]
    if pale > 0:
        part = f" ({drawn} of them drawn)" if drawn < pale else ""
        words.append(f"{pale} {'other is' if pale == 1 else 'others are'} pale{part}; all are in the data.")
    if unjudged:
        words.append(f"{unjudged} runs that could not be judged are left out.")
    named = points.filter(pl.col("named") != "")
    if named["low"].is_not_null().any():
        beyond = " (an arrow: so few requests leave that end open)" if named["high"].is_null().any() else ""
        words.append(f"Bars are 95% intervals{beyond}.")
    if view.slo_words or rates.searched_limits(view):
        whole = f"the SLO ({view.slo_words})" if view.slo_words else "the limits"
        words.append(f"Hollow points broke {whole} in a launch.")
    words += state_words(named)
    if (marks["kind"] == "highest").any():
        words.append("Dotted: the highest rate within the SLO.")
    if (marks["kind"] == "saturation").any():
        words.append("Dashed: the saturated throughput; thick bars are their intervals.")
    return " ".join(words)


def state_words(points: pl.DataFrame) -> list[str]:
    """What the signs of states mean, as far as they occur, and how long points were measured."""
    states, seconds = set(points["state"].to_list()), (points["seconds"] / points["n"]).drop_nulls()
    words = []
    if "overloaded" in states:
        words.append("Crossed: overloaded, the queue grew.")
    if "too_short" in states:
        words.append("?: too short a run to say whether the engine kept up.")
    if None in states:
        words.append("Whether the engine kept up was not recorded of every point.")
    if seconds.len():
        least, most = float(seconds.min()), float(seconds.max())  # type: ignore[arg-type]
        words.append(f"Each point was measured for {least:.3g} to {most:.3g} s.")
    return words
