"""Front row: what the pages over all sweeps show of one. It is kept as JSON, so that a sweep that stays is not read."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

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
