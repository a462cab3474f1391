"""Pages of a sweep that are notebooks: what each shows, and its page and CSV files."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak.errors import InputError, ReportError, TokenpeakError
from tokenpeak.paths import inside, shown
from tokenpeak.report.blocks.block import warning
from tokenpeak.report.opening import open_archive
from tokenpeak.report.site import notebook_runner, page_writer
from tokenpeak.report.site.notebook_parameters import Declared, declared
from tokenpeak.report.site.page_writer import PageWriter, Report, SiteOptions
from tokenpeak.report.site.pages import Page
from tokenpeak.report.view import SweepView
from tokenpeak.spec.parameters import UNITS as PARAMETERS

Blocks = list[dict[str, Any]]


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
        raise InputError(f"{raw.parents[1].name}: {error}") from error


def parameters_of(page: Page) -> dict[str, Declared]:
    """The parameters of a page's notebook."""
    assert page.notebook is not None, "a sweep's page has a notebook"
    return declared(page.notebook)


def blocks_of(page: Page, given: Mapping[str, object], folder: Path, study: Sequence[str], say: Report) -> Blocks:
    """What a page's notebook shows; of a user's that fails, the cell and the error."""
    try:
        if page.problem:
            raise ReportError(page.problem)
        assert page.notebook is not None, "a sweep's page has a notebook"
        known = parameters_of(page)
        parameters = {"archive": "../raw", "study": study, **given}
        executed = notebook_runner.execute(
            page.notebook,
            folder / f"{page.name}.ipynb",
            {name: value for name, value in parameters.items() if name in known},
            own=page.own,
            limit_s=page.limit_s if page.own else None,
        )
        return notebook_runner.blocks(executed, own=page.own)
    except TokenpeakError as error:
        if not page.own:
            raise
        say(f"page {page.name} failed: {error}")
        return [warning("This page could not be made. ", str(error)).payload()]


def shows(page: Page, blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is a page: one with nothing to show but sentences and prose is left out."""
    return page.own or page.name == "index" or any(block["kind"] not in ("sentence", "prose") for block in blocks)


def write_page(
    writer: PageWriter, options: SiteOptions, view: SweepView, page: Page, blocks: Blocks, menu: Any
) -> None:
    """Write a page with its CSV files; `menu` are the pages that the sweep has."""
    data = inside(options.folder, f"{view.sweep_id}/data")
    shared = {"page": page, "sweep": view, "pages": menu}
    page_writer.write_csv(blocks, data / "csv", page.name, view.marks())
    executed = inside(data / "notebooks", f"{page.name}.ipynb")
    writer.page(
        f"{view.sweep_id}/{page.name}.html",
        "page.html",
        blocks=blocks,
        notebook=f"data/notebooks/{executed.name}" if executed.is_file() else "",
        root="..",
        here="",
        **shared,
    )
