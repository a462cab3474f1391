"""What a page's notebook shows of an archive."""

from pathlib import Path
from typing import Any

from tokenpeak import paths
from tokenpeak.report.site.notebook_runner import blocks, execute


def shown(page: str, archive: Path, folder: Path, **parameters: Any) -> list[dict[str, Any]]:
    """The blocks of a page's notebook, executed on the archive; `folder` gets the executed notebook."""
    given = {"archive": str(archive.resolve()), **parameters}
    return blocks(execute(paths.NOTEBOOKS / f"{page}.ipynb", folder / f"{page}.ipynb", given))


def figures_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures among the blocks."""
    return [block for block in found if block["kind"] == "figure"]


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A table's rows: each cell's number, or else its text, by the key of its column."""
    keys = [column["key"] for column in table["columns"]]
    return [dict(zip(keys, (cell.get("value", cell["text"]) for cell in row), strict=True)) for row in table["rows"]]


def table_of(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The rows of the table whose name begins so."""
    return rows_of(next(block for block in found if block["kind"] == "table" and block["name"].startswith(name)))
