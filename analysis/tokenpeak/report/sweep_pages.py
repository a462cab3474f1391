"""Pages of a sweep: its cleaned copy, a page for each notebook and each trial, and the downloads."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import bounded
from tokenpeak.errors import InputError, ReportError, TokenpeakError
from tokenpeak.names import inside, shown
from tokenpeak.report import downloads, notebooks
from tokenpeak.report.blocks import warning
from tokenpeak.report.cleaned_copy import is_published, release
from tokenpeak.report.declared import Declared, declared
from tokenpeak.report.former_trials import FormerTrials, page_of
from tokenpeak.report.front_row import FrontRow, front_row
from tokenpeak.report.opening import opened_once
from tokenpeak.report.pages import SITE_PAGES, SWEEP_PAGES, Page
from tokenpeak.report.render import environment
from tokenpeak.report.row_pages import further_pages
from tokenpeak.report.trial_pages import TrialPages
from tokenpeak.report.view import SweepView
from tokenpeak.spec.energy_table import read_factor_table
from tokenpeak.spec.parameters import UNITS as PARAMETERS
from tokenpeak.store.archive import Archive
from tokenpeak.store.kept_rows import KeptRows

Report = Callable[[str], None]
TRIALS = SWEEP_PAGES[-1]
"""The page that single trials belong to."""
TABLE = "factors.csv"
"""The table of energy factors that was asked for, among a sweep's raw files."""


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """How a site is made, and in which folder."""

    folder: Path
    pages: tuple[Page, ...]
    """Those of each sweep."""
    given: Mapping[str, object]
    """Parameters for the notebooks that declare them."""
    node_names: bool
    live: bool
    documented: bool
    former: Path
    """The site that this one replaces."""
    notes: Path
    """The folder of what is noted on the former site's trials, by sweep."""
    new_notes: Path
    """That of what is noted on this one's."""
    origins_of_trials: Mapping[str, tuple[str, str]]
    """What the trials of each sweep are made of besides their files: their copies; their rows and pages."""

    def former_trials(self, sweep_id: str) -> FormerTrials:
        """The trials of a sweep that may be taken over."""
        made_of, judged_by = self.origins_of_trials[sweep_id]
        return FormerTrials(
            former=inside(self.former, sweep_id),
            folder=inside(self.folder, sweep_id),
            notes=inside(self.notes, sweep_id),
            new_notes=inside(self.new_notes, sweep_id),
            made_of=made_of,
            judged_by=judged_by,
        )


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


def make_study(options: SiteOptions, archives: Mapping[str, Path], say: Report) -> dict[str, FrontRow]:
    """Make all pages and downloads of a sweep, or of those of one study, whose pages read each other's raw files."""
    views, formers = {}, {}
    for sweep_id, path in archives.items():
        raw = inside(options.folder, f"{sweep_id}/data/raw")
        is_named = options.node_names or is_published(Archive(path).read_sweep())
        former = formers[sweep_id] = options.former_trials(sweep_id)
        for skipped in release(path, raw, node_names=is_named, former=former).skipped:
            say(f"skipped {skipped}")
        with making(sweep_id):
            views[sweep_id] = opened(raw, _with_table(options.given, raw), former.rows())
    writer = PageWriter(options)
    rows = {}
    for sweep_id, view in views.items():
        say(f"pages of {sweep_id}")
        with making(sweep_id):
            _make_sweep(writer, options, view, formers[sweep_id], [each for each in views if each != sweep_id], say)
            rows[sweep_id] = front_row(view)
        formers[sweep_id].write()
    return rows


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


def opened(raw: Path, given: Mapping[str, object], kept: KeptRows | None = None) -> SweepView:
    """The sweep as the parameters have it; an InputError names the sweep that does not have what is asked."""
    asked = {name: value for name, value in given.items() if name in PARAMETERS}
    try:
        return opened_once(raw, kept, **asked)
    except InputError as error:
        raise InputError(f"{raw.parents[1].name}: {error}") from error


def table_bytes(given: Mapping[str, object]) -> bytes:
    """The table of factors that is asked for; empty without one. InputError names the line that is wrong."""
    if not given.get("factors"):
        return b""
    path = Path(str(given["factors"]))
    read_factor_table(path, str(given.get("region") or ""), error=InputError)
    return bounded.read_bytes(path, error=InputError)


def parameters_of(page: Page) -> dict[str, Declared]:
    """The parameters of a page's notebook."""
    assert page.notebook is not None, "a sweep's page has a notebook"
    return declared(page.notebook)


def _with_table(given: Mapping[str, object], raw: Path) -> dict[str, object]:
    """The parameters, with the table of factors copied to the raw files that the site offers."""
    if not given.get("factors"):
        return dict(given)
    (raw / TABLE).write_bytes(table_bytes(given))
    return {**given, "factors": str(raw / TABLE)}


def _make_sweep(
    writer: PageWriter,
    options: SiteOptions,
    view: SweepView,
    former: FormerTrials,
    study: Sequence[str],
    say: Report,
) -> None:
    """All pages and downloads of one sweep; `study` are the other sweeps that it is to be compared with."""
    data = inside(options.folder, f"{view.sweep_id}/data")
    others = [f"../../../{sweep_id}/data/raw" for sweep_id in study]
    made = {page: _blocks(page, options.given, data / "notebooks", others, say) for page in options.pages}
    # What has nothing to show is no page, rather than one that says so.
    made = {page: blocks for page, blocks in made.items() if page.own or page.name == "index" or _shows(blocks)}
    menu = {"sweep": view, "pages": tuple(made)}
    for page, blocks in made.items():
        downloads.write_csv(blocks, data / "csv", page.name, view.marks())
        for rows in further_pages(page.name, blocks):
            path = f"{view.sweep_id}/{rows.path}"
            writer.page(path, "rows.html", page=page, rows=rows, root="../..", here="../", **menu)
        executed = inside(data / "notebooks", f"{page.name}.ipynb")
        writer.page(
            f"{view.sweep_id}/{page.name}.html",
            "page.html",
            page=page,
            blocks=blocks,
            notebook=f"data/notebooks/{executed.name}" if executed.is_file() else "",
            root="..",
            here="",
            **menu,
        )
    _make_trials(writer, view, former, menu)
    downloads.write_frames(view, data / "frames")
    writer.page(
        f"{view.sweep_id}/data/index.html",
        "data.html",
        page=None,
        root="../..",
        here="../",
        files=downloads.listing(data),
        **menu,
    )
    downloads.write_checksums(data)


def _make_trials(writer: PageWriter, view: SweepView, former: FormerTrials, menu: Mapping[str, Any]) -> None:
    """A page for each trial; those of the former site that say the same are taken over."""
    pages = TrialPages(view)
    of_all = f"{pages.of_all} {[(page.name, page.menu) for page in menu['pages']]}"
    for trial_id in pages:
        says = f"{of_all} {pages.beside(trial_id)}"
        if not former.take_page(trial_id, says):
            if (context := pages.context(trial_id)) is None:
                continue
            path = f"{view.sweep_id}/{page_of(trial_id)}"
            writer.page(path, "trial.html", page=TRIALS, root="../..", here="../", **menu, **context)
        former.note_page(trial_id, says)


def _blocks(
    page: Page, given: Mapping[str, object], folder: Path, study: Sequence[str], say: Report
) -> list[dict[str, Any]]:
    """What a page's notebook shows; of a user's that fails, the cell and the error."""
    try:
        if page.problem:
            raise ReportError(page.problem)
        assert page.notebook is not None, "a sweep's page has a notebook"
        known = parameters_of(page)
        table = {"factors": f"../raw/{TABLE}"} if given.get("factors") else {}
        parameters = {"archive": "../raw", "study": study, **given, **table}
        executed = notebooks.execute(
            page.notebook,
            folder / f"{page.name}.ipynb",
            {name: value for name, value in parameters.items() if name in known},
            limit_s=page.limit_s if page.own else None,
        )
        return notebooks.blocks(executed, plain=page.own)
    except TokenpeakError as error:
        if not page.own:
            raise
        say(f"page {page.name} failed: {error}")
        return [warning("This page could not be made. ", str(error)).payload()]


def _shows(blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is more than sentences and prose among the blocks."""
    return any(block["kind"] not in ("sentence", "prose") for block in blocks)
