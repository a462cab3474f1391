"""Pages over all sweeps: the index, the history of each spec on each hardware, methodology and the feed.

A front row has what they show of one sweep. It is kept as JSON, so that a sweep that stays is not read.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import altair as alt
import polars as pl

from tokenpeak.loadgen.calibration import Calibration
from tokenpeak.paths import slug
from tokenpeak.ranking.upgrade import Outcome, shown
from tokenpeak.report.blocks import theme
from tokenpeak.report.blocks.block import Column, Figure, Table, plain, table
from tokenpeak.report.blocks.captioned import figure
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.checks import CLAIMS_FILE
from tokenpeak.report.compare import comparison
from tokenpeak.report.compare.comparison import as_written
from tokenpeak.report.overview.summary import answers_of, recommends
from tokenpeak.report.ranking.standings import choices, rank
from tokenpeak.report.view import SweepView

HEADS = (
    "Streams",
    "tok/s",
    "Sustained",
    "TTFT error p50, ms",
    "p99",
    "ITL error p50, ms",
    "p99",
    "CPU per token, µs",
    "Server late p99, ms",
)
VERDICTS: dict[Outcome, str] = {
    "faster": "better",
    "slower": "worse",
    "tied": "not distinguishable",
    "not known": "not known",
}
"""What a history calls a change."""
UNFINISHED = "unfinished"
FACTORS = (
    *("pue", "kg_co2_per_kwh", "water_l_per_kwh", "wue_l_per_kwh"),
    *("price_per_kwh", "price_per_node_hour", "currency"),
)
"""Factors of energy that the methodology page shows."""
FrontRow = Mapping[str, Any]
"""`recency`, `entry`, `best`, `sides` and `methodology` of a sweep."""


def calibrations(record: Mapping[str, object] | None) -> list[dict[str, Any]]:
    """One entry for each network path that was calibrated; none when nothing was attached."""
    raw: Any = (record or {}).get("calibrations", ())
    return [_shown(Calibration.model_validate(entry)) for entry in raw]


def _shown(found: Calibration) -> dict[str, Any]:
    return {
        "name": str(found.network_path),
        "words": f"{found.network_path}: up to {found.highest_streams:,} streams and "
        f"{found.highest_tokens_per_s:,.0f} tok/s are measured with TTFT's p99 error under 10 ms and ITL's under 5 ms",
        "made": f"on {found.host or 'a machine'} with {found.cpu_cores} cores, "
        f"{found.measured_at:%Y-%m-%d %H:%M} UTC; the round trip of {number(found.round_trip_s * 1e3)} ms and the "
        "server's own lateness are in the errors",
        "heads": HEADS,
        "rows": [
            (
                f"{point.streams:,}",
                f"{point.tokens_per_s:,.0f}",
                f"{point.sustained_share:.1%}",
                *(
                    number(value * 1e3)
                    for value in (
                        point.ttft_error_p50_s,
                        point.ttft_error_p99_s,
                        point.itl_error_p50_s,
                        point.itl_error_p99_s,
                    )
                ),
                "–" if point.cpu_per_token_s is None else number(point.cpu_per_token_s * 1e6),
                number(point.server_lateness_p99_s * 1e3),
            )
            for point in found.points
        ],
    }


def entry(view: SweepView) -> dict[str, Any]:
    """Entry of a sweep on the index, but for what depends on the others."""
    return {
        "sweep_id": view.sweep_id,
        "name": view.record.name,
        "inventory": view.record.inventory,
        "started_at": view.record.started_at.isoformat(),
        "date": view.date_words.removesuffix(" UTC").partition(", imported")[0],
        "marks": view.marks(),
        "trials": view.trials.height,
        "failed": int((view.trials["status"] != "ok").sum()),
        "answers": [each.payload() for each in answers_of(view)],
        "cautions": view.record.imported.cautions if view.record.imported else (),
        "claims": (view.path / CLAIMS_FILE).is_file(),
        "recommends": recommends(view) and view.spec.endpoint is None,
        "hardware": view.hardware,
        "model": view.model_name,
        "status": _status(view),
    }


def entries(found: Sequence[Mapping[str, Any]], *, live: bool = False) -> list[dict[str, Any]]:
    """The entries as the index shows them, in the order given. With `live` the first may still be running.

    Sweeps of one name are apart by their inventories.
    """
    names = Counter(each["name"] for each in found)
    return [
        {
            **each,
            "name": each["name"] + (f" ({each['inventory']})" if names[each["name"]] > 1 else ""),
            "started_at": datetime.fromisoformat(each["started_at"]),
            "hardware": tuple(each["hardware"]),
            "status": "running" if live and not place and each["status"] == UNFINISHED else each["status"],
        }
        for place, each in enumerate(found)
    ]


def _status(view: SweepView) -> str:
    """How the sweep stands; of one without an end only a site that is built beside it knows whether it runs."""
    if view.record.imported is not None:
        return "imported"
    return UNFINISHED if view.end is None else view.end.status


def best_of(view: SweepView) -> list[dict[str, Any]]:
    """The best value that may be run of each kind of hardware of a sweep."""
    rows = []
    for hardware in view.hardware:
        best = rank(view, hardware).best
        if best is not None:
            rows.append(
                {
                    "key": (
                        view.record.name,
                        view.record.inventory,
                        hardware,
                        view.model_name,
                        view.spec.objective.metric,
                        view.objective_place,
                        view.slo_words,
                    ),
                    "sweep_id": view.sweep_id,
                    "date": view.record.started_at.isoformat(),
                    "hardware": hardware,
                    "config": choices(view, best),
                    "value": best["shown"],
                    "low": best["low"],
                    "high": best["high"],
                    "unit": view.metric.unit,
                    "higher": view.higher_is_better,
                    "margin": view.spec.search.margin,
                    "n": best["n"],
                    "simulated": view.record.simulated,
                }
            )
    return rows


def trend(best: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[Figure, Table]]:
    """Sweeps of one spec on one kind of hardware by date: a figure and its table for each that has more than one.

    `best` are the rows of each sweep, oldest sweep first. A change is a regression or a gain where `upgrade.shown` says
    so of the interval of both.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in (row for rows in best for row in rows):
        dated = {**row, "date": datetime.fromisoformat(row["date"])}
        groups.setdefault(tuple(row["key"]), []).append(dated)
    return [_history(rows) for rows in groups.values() if len(rows) > 1]


def _history(rows: Sequence[dict[str, Any]]) -> tuple[Figure, Table]:
    """One spec on one kind of hardware over its sweeps, oldest first."""
    changes = [_change(before, row) for before, row in zip([None, *rows[:-1]], rows, strict=True)]
    name, inventory, hardware, model, _, place, _ = rows[0]["key"]
    unit = rows[0]["unit"]
    frame = pl.DataFrame(
        [
            {key: row[key] for key in ("sweep_id", "date", "config", "value", "low", "high")} | change
            for row, change in zip(rows, changes, strict=True)
        ],
        infer_schema_length=None,
        schema_overrides={"low": pl.Float64, "high": pl.Float64, "change": pl.Float64},
    ).with_columns(href=pl.format("{}/index.html", "sweep_id"), day=pl.col("date").dt.strftime("%Y-%m-%d %H:%M"))
    slugged = slug("-".join(rows[0]["key"]))
    worse = int((frame["verdict"] == "worse").sum())
    simulated = " Simulated." if all(row["simulated"] for row in rows) else ""
    found = figure(
        _dates(frame, unit),
        frame,
        {"sweep_id": "`Sweep`", "day": "Measured", "value": f"Best ({unit})", "low": "95% low", "high": "95% high"},
        name=f"history-{slugged}",
        title=f"{model} on {hardware}",
        caption=f"{name} of inventory {inventory}, best config at {place}. "
        f"{worse} regression{'' if worse == 1 else 's'} beyond noise.{simulated}",
        span="half",
    )
    return found, table(
        frame.reverse(),
        [
            Column(key="sweep_id", title="Sweep", kind="code"),
            Column(key="config", title="Best config", kind="code"),
            Column(key="value", title="Best", unit=unit, kind="number"),
            Column(key="change", title="Change", unit="%", kind="number", digits=1, signed=True),
            Column(key="verdict", title="Verdict", kind="state"),
        ],
        name=f"history-table-{slugged}",
        title=f"Sweeps of {name} on {hardware}",
        hrefs={"sweep_id": "href"},
        span="half",
    )


def _dates(frame: pl.DataFrame, unit: str) -> alt.TopLevelMixin:
    """The best value over dates with its interval; a regression in the colour of what is bad, a gain in its own."""
    drawn = frame.select("date", "value", "low", "high", "verdict", "sweep_id")
    x = alt.X("date:T", title=None, axis=alt.Axis(tickCount=5, format="%d %b %Y", labelOverlap="greedy"))
    y = alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False, nice=True, padding=12))
    base = alt.Chart(drawn).encode(x=x)
    names = ["first", "not known", "not distinguishable", "better", "worse"]
    colour = alt.Color(
        "verdict:N",
        legend=None,
        scale=alt.Scale(domain=names, range=[*[theme.QUIET] * 3, theme.ACCENT, theme.BAD]),
    )
    shape = alt.Shape(
        "verdict:N",
        legend=None,
        scale=alt.Scale(domain=names, range=[*["circle"] * 3, "triangle-up", "triangle-down"]),
    )
    bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, color=theme.QUIET)
    line = base.mark_line(color=theme.FAINT, strokeWidth=1.5).encode(y=y)
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(y=y, color=colour, shape=shape)
    words = (
        base.transform_filter("datum.verdict === 'worse'")
        .mark_text(dy=18, fontSize=11, color=theme.BAD, text="regression")
        .encode(y=y)
    )
    layers = [line, bars.encode(y="low:Q", y2="high:Q"), dots, words]
    return alt.layer(*layers, width=theme.HALF, height=150)


def _change(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """By how much, in percent, the best differs from that of the sweep before, and whether that is more than noise."""
    if before is None:
        return {"change": None, "verdict": "first"}
    halves = [math.log(row["high"] / row["low"]) / 2 for row in (before, now) if row["low"] is not None]
    change = shown(
        math.log(now["value"] / before["value"]),
        math.hypot(*halves) if len(halves) == 2 else None,
        higher_is_better=now["higher"],
        margin=now["margin"],
        pairs=1,
        launches=before["n"] + now["n"],
    )
    return {"change": (change.ratio - 1) * 100, "verdict": VERDICTS[change.outcome]}


def methodology(view: SweepView) -> dict[str, Any]:
    """The workloads and factors of a sweep, and the client's own error."""
    return {
        "sweep_id": view.sweep_id,
        "workloads": [
            (
                plan.workload.name,
                {key: str(value) for key, value in as_written(plan.workload.model_dump(exclude_defaults=True)).items()},
                [level.label for level in plan.levels],
            )
            for plan in view.spec.workloads
        ],
        "energy": {name: getattr(view.spec.energy, name) for name in FACTORS},
        "imported": view.record.imported is not None,
        "calibrations": calibrations(view.record.calibration),
        "client": _client(view.runs),
    }


def _client(runs: pl.DataFrame) -> list[tuple[str, str]]:
    """How late the load client itself was, over all runs of a sweep."""
    rows = []
    for column, words in (
        ("client_dispatch_delay_s_p99", "requests sent later than due, worst p99 of a run"),
        ("client_loop_lag_s_p99", "event loop late, worst p99 of a run"),
    ):
        if column in runs.columns and (values := runs[column].drop_nulls()).len():
            rows.append((words, f"{number(float(values.max()) * 1000)} ms"))  # type: ignore[arg-type]
    return rows


def front_row(view: SweepView) -> FrontRow:
    """The row of a sweep; whether it is new or was kept, it has gone through JSON."""
    imported, started_s = view.record.imported, view.record.started_at.timestamp()
    row: FrontRow = json.loads(
        json.dumps(
            {
                # Own sweeps come before imports, of which those with a date in their source come first.
                "recency": [imported is None, (imported.measured or "") if imported else "", started_s],
                "entry": entry(view),
                "best": best_of(view),
                "sides": comparison.sides(view),
                "methodology": methodology(view),
            }
        )
    )
    return row


def newest_first(rows: Iterable[FrontRow]) -> list[FrontRow]:
    """The rows as the index lists them; those of one moment stay in their order."""
    return sorted(rows, key=lambda row: row["recency"], reverse=True)


def shown_over_all(rows: list[FrontRow], *, live: bool) -> dict[str, dict[str, Any]]:
    """Contexts of the pages over all sweeps, by their names; `rows` are newest first."""
    oldest_first = sorted(rows, key=lambda row: float(row["recency"][-1]))
    found = trend([row["best"] for row in oldest_first])
    return {
        "index": {
            "entries": entries([row["entry"] for row in rows], live=live),
            "trend": [block.payload() | {"csv": ""} for pair in found for block in pair],
        },
        "compare": {"comparison": comparison.comparison([side for row in rows for side in row["sides"]])},
        "methodology": {"sweeps": [row["methodology"] for row in rows]},
    }


def atom(entries: Sequence[dict[str, Any]]) -> str:
    """The feed as XML, newest sweep first."""
    newest = entries[0]["started_at"].isoformat() if entries else "1970-01-01T00:00:00+00:00"
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        "  <title>TokenPeak sweeps</title>",
        "  <id>urn:tokenpeak:sweeps</id>",
        f"  <updated>{newest}</updated>",
        "  <author><name>TokenPeak</name></author>",
        '  <link rel="self" href="feed.atom"/>',
    ]
    for entry in entries:
        mark = f" ({', '.join(entry['marks'])})" if entry["marks"] else ""
        summary = " ".join(plain(answer["parts"]) for answer in entry["answers"])
        lines += [
            "  <entry>",
            f"    <title>{escape(entry['name'] + ' on ' + '; '.join(entry['hardware']) + mark)}</title>",
            f"    <id>urn:tokenpeak:sweep:{escape(entry['sweep_id'])}</id>",
            f"    <updated>{entry['started_at'].isoformat()}</updated>",
            f"    <link href={quoteattr(entry['sweep_id'] + '/index.html')}/>",
            f"    <summary>{escape(summary)}</summary>",
            "  </entry>",
        ]
    return "\n".join([*lines, "</feed>", ""])
