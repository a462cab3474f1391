"""Tables of the reference: entries that can be linked to; views, frames, metrics and exit statuses as such tables."""

from dataclasses import dataclass

from tokenpeak.errors import ExitStatus
from tokenpeak.metrics import METRICS, STATISTICS
from tokenpeak.paths import slug
from tokenpeak.spec.schema import field_docstrings
from tokenpeak.store.schema import views
from tokenpeak.store.tables import TABLES


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row that can be linked to. Cells are Markdown of one line."""

    name: str
    """What the row is about: a key, an option, a column; the search finds it by this."""
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ReferenceTable:
    """A heading, what is said below it, and rows."""

    title: str
    """Markdown of one line; unique on its page."""
    says: str = ""
    """Markdown."""
    heads: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def anchor(self) -> str:
        """Its address on the page."""
        return slug(self.title.replace("`", ""))

    def anchor_of(self, entry: Entry) -> str:
        """A row's address on the page."""
        return slug(f"{self.anchor} {entry.name}")


def row(name: str, *cells: str) -> Entry:
    """A row whose first cell is its name as code."""
    return Entry(name=name, cells=(f"`{name}`", *cells))


def listed(words: list[str], last: str = "or") -> str:
    """Words in a row: `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


HEADS = ("Column", "Type", "Holds")


def view_tables() -> list[ReferenceTable]:
    """A table for each view."""
    return [
        ReferenceTable(
            title=f"`{name}`",
            says=view.meaning,
            heads=HEADS,
            entries=tuple(row(column.name, column.kind or "–", column.meaning) for column in view.columns),
        )
        for name, view in views().items()
    ]


def frame_tables() -> list[ReferenceTable]:
    """A table for each frame, which is a table of the database too."""
    return [
        ReferenceTable(
            title=f"`{table.name}`",
            says=f"A row is {table.row_is}. Key: {', '.join(f'`{key}`' for key in table.key)}.",
            heads=HEADS,
            entries=tuple(row(column.name, column.kind, column.meaning) for column in table.columns),
        )
        for table in TABLES
    ]


def metric_tables() -> list[ReferenceTable]:
    """All metrics."""
    statistics = ", ".join(f"`{name}`" for name in STATISTICS)
    return [
        ReferenceTable(
            title="Metrics",
            says=f"A metric over requests has a column for each statistic of them: {statistics}, as in `ttft_s_p95`. "
            "The others have one value for a run.",
            heads=("Column", "Metric", "Of", "Unit", "Better", "Formula"),
            entries=tuple(
                row(
                    metric.name,
                    metric.title,
                    "requests" if metric.distribution else "a run",
                    metric.unit,
                    metric.direction if metric.direction != "neither" else "–",
                    metric.formula,
                )
                for metric in METRICS
            ),
        )
    ]


def status_tables() -> list[ReferenceTable]:
    """All exit statuses."""
    meanings = field_docstrings(ExitStatus)
    return [
        ReferenceTable(
            title="Exit statuses",
            heads=("Status", "Says"),
            entries=tuple(row(str(int(status)), meanings[status.name]) for status in ExitStatus),
        )
    ]
