"""Pages of sweeps: cleaned copy, a page for each notebook and trial, downloads, and the options they are made with."""

import hashlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import spreadsheet
from tokenpeak.errors import InputError, ReportError, TokenpeakError
from tokenpeak.files import delete
from tokenpeak.paths import inside, shown
from tokenpeak.report.blocks.block import warning
from tokenpeak.report.blocks.digits import NONE
from tokenpeak.report.compare import comparison
from tokenpeak.report.compare.front_pages import FrontRow, front_row
from tokenpeak.report.opening import open_archive
from tokenpeak.report.site import notebook_runner
from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published
from tokenpeak.report.site.pages import OVER_ALL, SWEEP_PAGES, Page, declared
from tokenpeak.report.site.render import environment
from tokenpeak.report.trials.trial_page import trial_pages
from tokenpeak.report.view import SweepView
from tokenpeak.spec.parameters import UNITS as PARAMETERS
from tokenpeak.store.archive import Archive

Report = Callable[[str], None]
CSV_ROWS = 200_000
"""A longer frame is offered as Parquet only."""
FRAMES = ("sweeps", "nodes", "configs", "trials", "runs", "series")
Blocks = list[dict[str, Any]]
TRIALS = next(page for page in SWEEP_PAGES if page.name == "trials")
"""The page that single trials belong to."""


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """How a site is made, and in which folder."""

    folder: Path
    pages: tuple[Page, ...]
    """Those of each sweep."""
    site_pages: tuple[Page, ...]
    """Those over all sweeps."""
    given: Mapping[str, object]
    """Parameters for the notebooks that declare them."""
    node_names: bool
    texts: bool
    """Engine logs and free text are in it."""
    live: bool
    documented: bool


def write_html(options: SiteOptions, path: str, template: str, **context: Any) -> None:
    """Write one page of the site from its template."""
    target = inside(options.folder, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    page = environment().get_template(template)
    shared = {"live": options.live, "documented": options.documented, "path": path}
    shared["site_pages"] = options.site_pages
    target.write_text(page.render(**shared, **context))


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
        rows = [[*map(_csv_value, row), *([", ".join(marks)] if marks else [])] for row in data["rows"]]
        spreadsheet.write_rows(path, [[*heads, *(["mark"] if marks else [])], *rows])
        block["csv"] = f"data/csv/{path.name}"


def _csv_value(cell: Mapping[str, Any]) -> Any:
    """A cell in a CSV: a figure with all of its digits, and nothing where a page has a dash for it."""
    return cell.get("value", "" if cell["text"] == NONE else cell["text"])


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


@contextmanager
def making(sweeps: str) -> Iterator[None]:
    """An error of the pages' own code is said in a sentence: figures can be of the right kind and make no sense."""
    try:
        yield
    except (TokenpeakError, OSError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ReportError(
            f"The pages of {shown(sweeps)} cannot be made: {type(error).__name__}: {shown(str(error), 200)} "
            f"({Path(place.filename).name}, line {place.lineno}). Its records hold something that makes no sense; if "
            "they are as TokenPeak wrote them, report this."
        ) from error


def opened(raw: Path, given: Mapping[str, object]) -> SweepView:
    """The sweep as the parameters have it; an InputError names the sweep that does not have what is asked."""
    asked = {name: value for name, value in given.items() if name in PARAMETERS}
    try:
        return open_archive(raw, **asked)
    except InputError as error:
        raise type(error)(f"{raw.parents[1].name}: {error}") from error


def blocks_of(page: Page, given: Mapping[str, object], folder: Path, say: Report) -> Blocks:
    """Blocks of a page's notebook; of a user's that fails, the cell and the error."""
    try:
        if page.problem:
            raise ReportError(page.problem)
        assert page.notebook is not None, "a sweep's page has a notebook"
        known = declared(page.notebook)
        executed = notebook_runner.execute(
            page.notebook,
            folder / f"{page.stem}.ipynb",
            {name: value for name, value in given.items() if name in known},
            own=page.own,
        )
        return notebook_runner.blocks(executed, own=page.title if page.own else "")
    except TokenpeakError as error:
        if not page.own:
            raise
        say(f"page {page.name} failed: {error}")
        return [warning("This page could not be made. ", str(error)).payload()]


def shows(page: Page, blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is a page: one with nothing to show but sentences and prose is left out."""
    return page.own or page.name == "index" or any(block["kind"] not in ("sentence", "prose") for block in blocks)


def write_page(options: SiteOptions, view: SweepView, page: Page, blocks: Blocks, menu: Any) -> None:
    """Write a page with its CSV files; `menu` are the pages that the sweep has."""
    data = inside(options.folder, f"{view.sweep_id}/data")
    shared = {"page": page, "sweep": view, "pages": menu}
    write_csv(blocks, data / "csv", page.name, view.marks())
    executed = inside(data / "notebooks", f"{page.name}.ipynb")
    write_html(
        options,
        f"{view.sweep_id}/{page.name}.html",
        "page.html",
        blocks=blocks,
        notebook=f"data/notebooks/{executed.name}" if executed.is_file() else "",
        root="..",
        here="",
        **shared,
    )


def write_over_all(options: SiteOptions, page: Page, marks: Mapping[str, Sequence[str]], say: Report) -> None:
    """Write a user's page over all sweeps, of which `marks` has each with its marks."""
    data = inside(options.folder, f"{page.stem}/data")
    given = {OVER_ALL: [f"../../../{sweep_id}/data/raw" for sweep_id in marks], **options.given}
    blocks = blocks_of(page, given, data / "notebooks", say)
    every = list(dict.fromkeys(mark for each in marks.values() for mark in each))
    of = {mark: [sweep_id for sweep_id, own in marks.items() if mark in own] for mark in every}
    write_csv(blocks, data / "csv", page.stem, every)
    executed = inside(data / "notebooks", f"{page.stem}.ipynb")
    write_html(
        options,
        f"{page.name}.html",
        "over_all.html",
        page=page,
        blocks=blocks,
        marks=every,
        # A table's rows do not say which sweep they are of, so the page does.
        facts=[(mark.capitalize(), "all" if len(ids) == len(marks) else ", ".join(ids)) for mark, ids in of.items()],
        notebook=f"data/notebooks/{executed.name}" if executed.is_file() else "",
        root="..",
        here="",
        sweep=None,
    )


def make_study(
    options: SiteOptions, archives: Mapping[str, Path], say: Report
) -> tuple[dict[str, FrontRow], dict[str, TokenpeakError]]:
    """Make all pages and downloads of a sweep, or of those of one study, whose pages read each other's raw files.

    The error of each that cannot be shown is beside the rows of the others, whose pages are made without it.
    """
    views: dict[str, SweepView] = {}
    rows: dict[str, FrontRow] = {}
    lost: dict[str, TokenpeakError] = {}
    for sweep_id, path in archives.items():
        try:
            views[sweep_id] = _opened_copy(options, sweep_id, path, say)
        except TokenpeakError as error:
            lost[sweep_id] = _left_out(options, sweep_id, error)
    for sweep_id, view in views.items():
        say(f"pages of {sweep_id}")
        try:
            with making(sweep_id):
                others = [f"../../../{each}/data/raw" for each in views if each != sweep_id]
                _make_sweep(options, view, others, say)
                rows[sweep_id] = front_row(view)
        except TokenpeakError as error:
            lost[sweep_id] = _left_out(options, sweep_id, error)
            # Pages of others that were made before may show it.
            rows, more = make_study(options, {each: archives[each] for each in views if each != sweep_id}, say)
            return rows, lost | more
    return rows, lost


def _opened_copy(options: SiteOptions, sweep_id: str, path: Path, say: Report) -> SweepView:
    """The cleaned copy of an archive, in the site's folder, opened."""
    raw = inside(options.folder, f"{sweep_id}/data/raw")
    is_named = options.node_names or is_published(Archive(path).read_sweep())
    copied = cleaned_copy(path, raw, node_names=is_named, texts=options.texts)
    for skipped in copied.skipped:
        say(f"skipped {skipped}")
    with making(sweep_id):
        return opened(raw, options.given)


def _left_out(options: SiteOptions, sweep_id: str, error: TokenpeakError) -> TokenpeakError:
    """The error of a sweep, of which nothing stays in the site; raised where it is of parameters that were given."""
    if options.given and type(error) is InputError:
        raise error
    delete(inside(options.folder, sweep_id))
    return error


def _make_sweep(options: SiteOptions, view: SweepView, others: Sequence[str], say: Report) -> None:
    """All pages and downloads of one sweep; `others` are the raw files of those that it is compared with."""
    data = inside(options.folder, f"{view.sweep_id}/data")
    given = {"archive": "../raw", "study": others, **options.given}
    made = {page: blocks_of(page, given, data / "notebooks", say) for page in options.pages}
    pages = tuple(page for page, blocks in made.items() if shows(page, blocks))
    for page in pages:
        write_page(options, view, page, made[page], pages)
    menu = {"sweep": view, "pages": pages}
    for trial_id, context in trial_pages(view):
        path = f"{view.sweep_id}/trials/{trial_id}.html"
        write_html(options, path, "trial.html", page=TRIALS, root="../..", here="../", **menu, **context)
    inside(options.folder, f"{view.sweep_id}/{comparison.SCRIPT}").write_text(comparison.script(view))
    write_frames(view, data / "frames")
    write_html(
        options,
        f"{view.sweep_id}/data/index.html",
        "data.html",
        page=None,
        root="../..",
        here="../",
        files=listing(data),
        **menu,
    )
    write_checksums(data)
