"""Front row: what the pages over all sweeps show of one. It is kept as JSON, so that a sweep that stays is not read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tokenpeak.report.blocks.block import plain
from tokenpeak.report.compare import comparison, history
from tokenpeak.report.view import SweepView

FrontRow = Mapping[str, Any]
"""`recency`, `entry`, `best`, `sides` and `methodology` of a sweep."""


def front_row(view: SweepView) -> FrontRow:
    """The row of a sweep; whether it is new or was kept, it has gone through JSON."""
    imported, started_s = view.record.imported, view.record.started_at.timestamp()
    row: FrontRow = json.loads(
        json.dumps(
            {
                # Own sweeps come before imports, of which those with a date in their source come first.
                "recency": [imported is None, (imported.measured or "") if imported else "", started_s],
                "entry": history.entry(view),
                "best": history.best_of(view),
                "sides": comparison.sides(view),
                "methodology": history.methodology(view),
            }
        )
    )
    return row


def newest_first(rows: Iterable[FrontRow]) -> list[FrontRow]:
    """The rows as the index lists them; those of one moment stay in their order."""
    return sorted(rows, key=lambda row: row["recency"], reverse=True)


def shown_over_all(rows: list[FrontRow], *, live: bool) -> dict[str, dict[str, Any]]:
    """What each of the pages over all sweeps shows, by its name; `rows` are newest first."""
    oldest_first = sorted(rows, key=lambda row: float(row["recency"][-1]))
    found = history.trend([row["best"] for row in oldest_first])
    return {
        "index": {
            "entries": history.entries([row["entry"] for row in rows], live=live),
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
