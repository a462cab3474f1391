"""Pages over all sweeps: the index, methodology and the feed.

A front row has what they show of one sweep. It is kept as JSON, so that a sweep that stays is not read.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import polars as pl

from tokenpeak.loadgen.calibration import Calibration
from tokenpeak.report.blocks.block import plain
from tokenpeak.report.blocks.digits import number
from tokenpeak.report.checks import CLAIMS_FILE
from tokenpeak.report.compare import comparison
from tokenpeak.report.compare.comparison import as_written
from tokenpeak.report.compare.history import best_of, trend
from tokenpeak.report.overview.summary import answers_of, recommends
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

    Sweeps of one name are apart by their inventories, those of one inventory too by their dates.
    """
    names = Counter(each["name"] for each in found)
    places = Counter((each["name"], each["inventory"]) for each in found)
    return [
        {
            **each,
            "name": each["name"]
            + (f" ({each['inventory']})" if names[each["name"]] > 1 else "")
            + (f", {each['date']}" if places[each["name"], each["inventory"]] > 1 else ""),
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
    """How late the load client itself was, by the worst p99 of a sweep's runs."""
    rows = []
    for column, words in (
        ("client_dispatch_delay_s_p99", "Requests sent late"),
        ("client_loop_lag_s_p99", "Event loop late"),
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
