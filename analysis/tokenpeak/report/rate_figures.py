"""The figure of searches for the highest rate: what each launch's search found, with its saturation."""

from typing import Any

import altair as alt
import polars as pl

from tokenpeak.report import charts, theme
from tokenpeak.report.blocks import Column, Figure, table
from tokenpeak.report.figures import slug


def searched_figure(hardware: str, workload: str, found: pl.DataFrame) -> Figure:
    """What each launch's search found: the highest rate and the saturated throughput, with their intervals."""
    several = found["label"].is_duplicated().any()
    row = pl.format("{}, launch {}", "label", "launch") if several else pl.col("label")
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
        spec=charts.spec_of(searched_rates(shown, f"{confidence:.0%}")),
        span="half",
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


def searched_rates(frame: pl.DataFrame, confidence: str) -> alt.TopLevelMixin:
    """What each search found: the highest rate as a dot and the saturated throughput as a stroke, with intervals.

    `frame`: row (unique), rate, low, high, saturation, saturation_low, saturation_high (null: not known), words and
    saturation_words (beside them), in the order shown.
    """
    order = frame["row"].to_list()
    base = alt.Chart(frame).encode(
        y=alt.Y("row:N", sort=order, title=None, axis=alt.Axis(labelLimit=200, labelColor=theme.INK, grid=True))
    )
    ends = [end for name in ("rate", "high", "saturation", "saturation_high") for end in frame[name].drop_nulls()]
    # Room on the right for the words beside the last of them.
    scale = alt.Scale(domain=[0, 1.75 * max(ends, default=1.0)], nice=False)
    axis = alt.Axis(orient="top", tickCount=6, format=",~f")
    title = f"req/s, {confidence} interval" if confidence else "req/s"
    layers: list[alt.Chart] = []
    for name, low, high, words, form, aside in (
        ("rate", "low", "high", "words", "circle", -9),
        ("saturation", "saturation_low", "saturation_high", "saturation_words", "stroke-upright", 9),
    ):
        ink = theme.ACCENT if name == "rate" else theme.QUIET
        whole = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        known = base.transform_filter(f"isValid(datum.{name})")
        mark: dict[str, Any] = {"color": ink, "yOffset": aside, "opacity": 1}
        layers.append(
            whole.mark_rule(strokeWidth=2, **mark).encode(
                x=alt.X(f"{low}:Q", title=title, scale=scale, axis=axis), x2=alt.X2(f"{high}:Q")
            )
        )
        at = alt.X(f"{name}:Q", title=title, scale=scale, axis=axis)
        point: dict[str, Any] = {"shape": "circle", "filled": True, "size": 80}
        if form != "circle":
            point = {"shape": "M0,-1L0,1", "size": 150, "strokeWidth": 2.5}
        layers.append(known.mark_point(**point, **mark).encode(x=at))
        beside = base.transform_calculate(
            beside=f"isValid(datum.{high}) ? datum.{high} : isValid(datum.{name}) ? datum.{name} : 0"
        )
        layers.append(
            beside.mark_text(align="left", dx=10, dy=aside, fontSize=11, color=theme.QUIET).encode(
                x=alt.X("beside:Q", title=title, scale=scale, axis=axis), text=alt.Text(f"{words}:N")
            )
        )
    return alt.layer(*layers).properties(width=430, height=alt.Step(44))
