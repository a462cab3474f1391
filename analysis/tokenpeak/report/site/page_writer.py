"""Writer of the site's pages from their templates, and the options of a site that is made."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import spreadsheet
from tokenpeak.paths import inside
from tokenpeak.report.site.pages import SITE_PAGES, Page
from tokenpeak.report.site.render import environment
from tokenpeak.report.view import SweepView

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """How a site is made, and in which folder."""

    folder: Path
    pages: tuple[Page, ...]
    """Those of each sweep."""
    given: Mapping[str, object]
    """Parameters for the notebooks that declare them."""
    node_names: bool
    texts: bool
    """Engine logs and free text are in it."""
    live: bool
    documented: bool


class PageWriter:
    """Writes pages into the site's folder."""

    def __init__(self, options: SiteOptions) -> None:
        self._options = options
        self._env = environment()

    def page(self, path: str, template: str, **context: Any) -> None:
        """Write one page from its template."""
        target = inside(self._options.folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        live, documented = self._options.live, self._options.documented
        html = self._env.get_template(template).render(
            live=live, documented=documented, site_pages=SITE_PAGES, path=path, **context
        )
        target.write_text(html)


CSV_ROWS = 200_000
"""A longer frame is offered as Parquet only."""
FRAMES = ("sweeps", "nodes", "configs", "trials", "runs", "series")


def write_frames(view: SweepView, folder: Path) -> None:
    """Each frame of the sweep as Parquet, and as CSV with lists as text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FRAMES:
        frame: pl.DataFrame = getattr(view.frames, name)
        if "simulated" not in frame.columns:
            frame = frame.with_columns(pl.lit(view.record.simulated).alias("simulated"))
        frame.write_parquet(folder / f"{name}.parquet")
        if frame.height > CSV_ROWS:
            continue
        spreadsheet.write_frame(frame, folder / f"{name}.csv")


def write_csv(blocks: Sequence[dict[str, Any]], folder: Path, page: str, marks: Sequence[str]) -> None:
    """The data of each table and figure of a page as CSV; each block learns its file under `csv`."""
    for block in blocks:
        data = block["data"] if block["kind"] == "figure" else block
        if data["kind"] != "table":
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path = inside(folder, f"{page}-{data['name']}.csv")
        heads = [
            f"{column['title']} ({column['unit']})" if column["unit"] else column["title"] for column in data["columns"]
        ]
        rows = [
            [*(cell.get("value", cell["text"]) for cell in row), *([", ".join(marks)] if marks else [])]
            for row in data["rows"]
        ]
        spreadsheet.write_rows(path, [[*heads, *(["mark"] if marks else [])], *rows])
        block["csv"] = f"data/csv/{path.name}"


def listing(folder: Path) -> list[dict[str, Any]]:
    """The files below `folder` with their size in bytes, by path."""
    return [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def write_checksums(folder: Path) -> None:
    """SHA256SUMS over every file below `folder`, as `sha256sum --check` reads it."""
    lines = []
    for entry in listing(folder):
        with (folder / entry["path"]).open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {entry['path']}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))
