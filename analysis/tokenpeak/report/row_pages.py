"""Further pages of a long table: the rows that its own page does not show, so many a page as that one shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

FOLDER = "rows"
"""Of a sweep, where these pages are."""


@dataclass(frozen=True, kw_only=True)
class RowPage:
    """Rows of one table: `first` and `last` count from 1."""

    path: str
    """Below the sweep's folder."""
    table: dict[str, Any]
    first: int
    last: int
    total: int
    previous: str
    following: str
    """Address of the next page in the same folder; empty after the last. `previous` likewise, for the table's own."""


def further_pages(page: str, blocks: Sequence[dict[str, Any]]) -> Iterator[RowPage]:
    """The further pages of each table of a page; the table learns their paths under `further`."""
    for block in blocks:
        if block["kind"] != "table" or len(block["rows"]) <= block["shown"]:
            continue
        shown, total = block["shown"], len(block["rows"])
        starts = range(shown, total, shown)
        names = [f"{page}-{block['name']}-{number}.html" for number in range(2, len(starts) + 2)]
        block["further"] = [f"{FOLDER}/{name}" for name in names]
        for place, (start, name) in enumerate(zip(starts, names, strict=True)):
            end = min(start + shown, total)
            own = {"rows": block["rows"][start:end], "row_tones": block["row_tones"][start:end]}
            yield RowPage(
                path=f"{FOLDER}/{name}",
                table={key: value for key, value in block.items() if key != "further"} | own,
                first=start + 1,
                last=end,
                total=total,
                previous=names[place - 1] if place else "",
                following=names[place + 1] if place + 1 < len(names) else "",
            )
