"""Load curve: power and energy per token and per request against the offered rate (energy proportionality)."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tokenpeak.ranking.energy_intervals import LaunchEnergy, energy_intervals
from tokenpeak.report import charts, curve_charts, curve_figures, rates
from tokenpeak.report.blocks import Block, Column, Figure, Sentence, Table, code, note, number, strong, table
from tokenpeak.report.energy import rounded
from tokenpeak.report.figures import slug
from tokenpeak.report.tables import IDLE_SHARE
from tokenpeak.report.view import SweepView

QUANTITIES = (
    ("power", "power_w", "Power", "W"),
    ("token", "energy_j_per_output_tok", "Energy per output token", "J/token"),
    ("request", "energy_j_per_request", "Energy per request", "J/request"),
)
"""Name, column of a run, title and unit."""
DRAWN = ("power", "token")
NEAR = 0.9
"""From this share of its sustainable rate on, a search's longest probe counts as one at it; a lower share is shown."""
NAMED = 4
"""Configs picked in the figure at first."""
SPAN = 1.5
"""The highest rate of a config over its lowest from which on a curve is drawn."""


def rated_runs(view: SweepView, hardware: str, workload: str) -> pl.DataFrame:
    """The runs at a rate that may be ranked, with `at_per_s`, the rate, `share`, and J per request.

    A search's run is its longest probe within the limits. Its rate is the one achieved, and `share` what that is of the
    sustainable rate. Without a search, the highest sustainable rate tried has the share 1, others null.
    """
    searched = pl.col("max_rate_ended").is_not_null()
    runs = view.same_requests().filter(
        pl.col("hardware") == hardware,
        pl.col("workload_name") == workload,
        pl.col("rate_per_s").is_not_null() | searched,
        pl.col("verdict") != "invalid",
    )
    held = rates.highest_rates(rates.open_runs(view, hardware, workload)).select("config_id", "holds")
    reached = (pl.col("request_per_s") / pl.col("max_rate_per_s")).clip(upper_bound=1)
    highest = ~searched.any().over("config_id") & (pl.col("rate_per_s") == pl.col("holds"))
    return runs.join(held, on="config_id", how="left", maintain_order="left").with_columns(
        at_per_s=pl.when(searched).then("request_per_s").otherwise("rate_per_s"),
        share=pl.when(searched).then(reached).when(highest).then(1.0),
        energy_j_per_request=pl.when(pl.col("requests_ok") > 0).then(pl.col("energy_j") / pl.col("requests_ok")),
    )


def points(runs: pl.DataFrame) -> pl.DataFrame:
    """A row per config and rate: `power`, `token` and `request`, each with `_low` and `_high`, `idle` and n.

    Geometric means over launches with their 95% intervals; the spread between launches is pooled over all rows. Null
    ends where the sensor's readings are not known. `idle`: the share of the idle power, in percent.
    """
    place = ("config_id", "label", "at_per_s", "share")
    joule = pl.col("energy_j_per_output_tok")
    found = runs.group_by(place, maintain_order=True).agg(
        *(pl.col(column).log().mean().exp().alias(name) for name, column, _, _ in QUANTITIES),
        sensor=pl.struct(
            joule,
            low=joule * pl.col("energy_low_j") / pl.col("energy_j"),
            high=joule * pl.col("energy_high_j") / pl.col("energy_j"),
        ),
        holds=pl.col("rate_held").all(),
        state=pl.col("steady_state").first(),
        seconds=pl.col("duration_s").sum(),
        idle=pl.col("idle_share").mean() * 100,
        idle_w=pl.col("idle_power_w").mean(),
        n=pl.len(),
    )
    launches = {
        str(index): [
            LaunchEnergy(joule=each["energy_j_per_output_tok"], low=each["low"], high=each["high"]) for each in own
        ]
        for index, own in enumerate(found["sensor"].to_list())
    }
    known = pl.col("sensor").list.eval(pl.element().struct.field("low").is_not_null()).list.any()
    ends = pl.DataFrame(list(energy_intervals(launches).values()), schema=["low", "high"], orient="row")
    shares = pl.concat([found, ends.cast(pl.Float64)], how="horizontal").with_columns(
        low=pl.when(known).then(pl.col("low") / pl.col("token")),
        high=pl.when(known).then(pl.col("high") / pl.col("token")),
    )
    return (
        shares.with_columns(
            (pl.col(name) * pl.col(end)).alias(f"{name}_{end}") for name, *_ in QUANTITIES for end in ("low", "high")
        )
        .drop("sensor", "low", "high")
        .sort("label", "at_per_s")
    )


def blocks(view: SweepView, hardware: str, workload: str, first: Sequence[str]) -> list[Block]:
    """The sentences, the curves and the table of one workload; empty where it has no run at a rate.

    `first`: the labels to name before others.
    """
    runs = rated_runs(view, hardware, workload)
    if runs.is_empty():
        return []
    estimated = pl.col("energy_source").eq_missing(pl.lit("estimated_tdp"))
    known = runs.filter(pl.col("energy_j_per_output_tok") > 0, ~estimated)
    said = _left_out(runs.height, runs["energy_needed_s"].count(), runs.filter(estimated).height)
    if known.is_empty():
        return [*said]
    found = points(known)
    # First those asked for, then the thriftiest at their sustainable rates.
    thrifty = found.filter(pl.col("share").is_not_null()).sort("token", maintain_order=True)["label"]
    labels = dict.fromkeys([*thrifty, *found["label"]])
    names = [*(label for label in first if label in labels), *(label for label in labels if label not in first)]
    place = pl.col("label").replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    found = found.sort(place, "at_per_s", maintain_order=True)
    return [
        *_at_sustainable_rate(hardware, found, names),
        *_proportionality(found, names),
        *said,
        *_curves(hardware, workload, found, names),
        _table(hardware, workload, found),
    ]


def _left_out(runs: int, short: int, estimated: int) -> list[Sentence]:
    """How many runs at a rate are not shown, and why."""
    words = []
    if short:
        words.append(f"{short} of {runs} runs at a rate were too short for an energy figure within ±5%.")
    if estimated:
        words.append(
            f"{estimated} of {runs} runs at a rate have an energy estimated from rated power, "
            "which does not follow the load."
        )
    return [note(*words, " They are left out here.")] if words else []


def _at_sustainable_rate(hardware: str, found: pl.DataFrame, names: Sequence[str]) -> list[Sentence]:
    """What a token and a request take at the sustainable rate, of the first named config that has one."""
    rows = found.filter(pl.col("share").is_not_null())
    for row in (row for name in names for row in rows.filter(label=name).iter_rows(named=True)):
        token, request = (rounded(row[key], row[f"{key}_low"], row[f"{key}_high"]) for key in ("token", "request"))
        return [
            note(
                f"On {hardware}, at {_rate_words(row['at_per_s'], row['share'])}, ",
                code(row["label"]),
                " needs ",
                strong(f"{token} J per output token"),
                f" and {request} J per request.",
            )
        ]
    return []


def _rate_words(at_per_s: float, share: float) -> str:
    if share >= NEAR:
        return f"its sustainable rate of {at_per_s:.4g} requests a second"
    return f"{at_per_s:.4g} requests a second, {share:.0%} of its sustainable rate"


def _proportionality(found: pl.DataFrame, names: Sequence[str]) -> list[Sentence]:
    """The power at the lowest rate beside that at the highest, of the first named config that has a curve."""
    for name in names:
        own = found.filter(label=name)
        low, high = own.row(0, named=True), own.row(-1, named=True)
        # More power at a lower rate is the noise of short runs.
        if high["at_per_s"] >= SPAN * low["at_per_s"] and round(low["power"] / high["power"], 2) <= 1:
            return [
                note(
                    f"At {low['at_per_s'] / high['at_per_s']:.0%} of its highest rate shown here, ",
                    code(name),
                    f" draws {low['power'] / high['power']:.0%} of the power, and a token takes "
                    f"{low['token'] / high['token']:.2g} times the energy.",
                    f" Idle power is {number(low['idle_w'])} W." if low["idle_w"] is not None else "",
                )
            ]
    return []


def _curves(hardware: str, workload: str, found: pl.DataFrame, names: Sequence[str]) -> list[Figure]:
    """Power and energy per token over the load, where a config's rates lie apart enough for a curve."""
    widest = found.group_by("label").agg(pl.col("at_per_s").max() / pl.col("at_per_s").min())["at_per_s"].to_list()
    if max(widest) < SPAN:
        return []
    parts = {key: _points(found, key) for key in DRAWN}
    words = {key: f"{title} ({unit})" for key, _, title, unit in QUANTITIES}
    panels = [curve_charts.Panel(frame=frame, words=words[key], log=False) for key, frame in parts.items()]
    head = f"Energy over the load of {workload} on {hardware}"
    broke = " Hollow points broke the SLO." if found["holds"].eq(False).any() else ""
    bars = " Bars are 95% intervals." if found["token_low"].is_not_null().any() else ""
    every = pl.concat(
        [frame.with_columns(quantity=pl.lit(words[key])) for key, frame in parts.items()], how="vertical_relaxed"
    )
    return [
        Figure(
            name=f"load-{slug(hardware)}-{slug(workload)}",
            title=head,
            caption=" ".join(
                [
                    f"A line per config.{bars}{broke}",
                    *curve_figures.state_words(every),
                    "If boards drew power only for work, energy per token would be level.",
                ]
            ),
            spec=charts.spec_of(curve_charts.curves(panels, names[:NAMED], {}, "offered rate (req/s)")),
            data=table(
                every,
                [
                    Column(key="series", title="Config", kind="code"),
                    Column(key="quantity", title="Quantity"),
                    Column(key="x", title="Offered rate", unit="req/s", kind="number"),
                    Column(key="value", title="Value", kind="number"),
                    Column(key="low", title="95% low", kind="number"),
                    Column(key="high", title="95% high", kind="number"),
                    Column(key="seconds", title="Measured for", unit="s", kind="number"),
                    Column(key="holds", title="SLO held"),
                    Column(key="n", title="Launches", kind="number"),
                ],
                name="data",
                title=f"Data of the figure: {head}",
            ),
            scope=slug(hardware),
        )
    ]


def _points(found: pl.DataFrame, key: str) -> pl.DataFrame:
    """A quantity's points as `curve_charts.Panel` draws them."""
    return found.select(
        "holds",
        "state",
        "seconds",
        "n",
        series="label",
        x=pl.col("at_per_s").cast(pl.Float64),
        value=key,
        low=f"{key}_low",
        high=f"{key}_high",
    )


def _table(hardware: str, workload: str, found: pl.DataFrame) -> Table:
    half = {key: (pl.col(f"{key}_high") - pl.col(f"{key}_low")) / 2 for key, *_ in QUANTITIES}
    places = {
        f"places_{key}": pl.when(width > 0).then((-width.log10().floor()).clip(lower_bound=0)).cast(pl.Int64)
        for key, width in half.items()
    }
    idle = [replace(IDLE_SHARE, hidden=False)] if found["idle"].is_not_null().any() else []
    part = pl.format("{}% of sustainable", (100 * pl.col("share")).round().cast(pl.Int64))
    rate = pl.when(pl.col("share") >= NEAR).then(pl.lit("sustainable")).when(pl.col("share").is_not_null()).then(part)
    figures = [
        Column(
            key=f"{key}{end}",
            title=f"{title}{words}",
            unit=unit,
            kind="number",
            digits_from=f"places_{key}",
            hidden=bool(end) and (key != "token" or bool(found[f"{key}{end}"].is_null().all())),
        )
        for key, _, title, unit in QUANTITIES
        for end, words in (("", ""), ("_low", ", low"), ("_high", ", high"))
    ]
    return table(
        found.with_columns(**places, rate=rate),
        [
            Column(key="label", title="Config", kind="code"),
            Column(key="at_per_s", title="Offered rate", unit="req/s", kind="number"),
            Column(key="rate", title="Rate", kind="state"),
            *figures,
            *idle,
            Column(key="n", title="Launches", kind="number"),
        ],
        name=f"load-table-{slug(hardware)}-{slug(workload)}",
        title=f"Energy at each rate of {workload} on {hardware}",
        scope=slug(hardware),
        note="Idle power is in every figure: at a low rate fewer tokens share it. Of a search, the run shown is its "
        "longest probe within the limits.",
    )
