"""Every SQL view, table and column as tables of the reference."""

from tokenpeak.docs.tables import ReferenceTable, row
from tokenpeak.store.database import migrations
from tokenpeak.store.tables import TABLES
from tokenpeak.store.views import views

HEADS = ("Column", "Type", "Holds")


def view_tables() -> list[ReferenceTable]:
    """A table for each view."""
    return [
        ReferenceTable(
            title=f"`{name}`",
            says=view.says,
            heads=HEADS,
            entries=tuple(row(column.name, column.kind or "–", column.meaning) for column in view.columns),
        )
        for name, view in views(migrations()).items()
    ]


def frame_tables() -> list[ReferenceTable]:
    """A table for each frame, which is a table of the database too."""
    return [
        ReferenceTable(
            title=f"`{table.name}`",
            says=f"A row is {table.row}. Key: {', '.join(f'`{key}`' for key in table.key)}.",
            heads=HEADS,
            entries=tuple(row(column.name, column.kind, column.meaning) for column in table.columns),
        )
        for table in TABLES
    ]
