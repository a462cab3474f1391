"""Building the site: archives in, a folder of pages out, replaced as a whole when all of it is made.

OUTPUT/index.html  compare.html  methodology.html  feed.atom  static/  docs/
OUTPUT/SWEEP_ID/index.html  ranking.html  …  trials.html  trials/TRIAL_ID.html
OUTPUT/SWEEP_ID/data/raw/  frames/  csv/  notebooks/  SHA256SUMS
"""

import contextlib
import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from tokenpeak import bounded, paths
from tokenpeak.errors import InputError, ReportError, TokenpeakError, suggestion
from tokenpeak.names import inside, shown
from tokenpeak.report import comparison, downloads, feed, history, notebooks, render, reuse, trial_pages
from tokenpeak.report.blocks import warning
from tokenpeak.report.cleaned_copy import is_published, release
from tokenpeak.report.declared import Declared, declared
from tokenpeak.report.known_words import own_words
from tokenpeak.report.opening import open_archive
from tokenpeak.report.pages import LIVE, OF_A_SWEEP, RESERVED, SITE_PAGES, SWEEP_PAGES, Page, pages_of_sweeps
from tokenpeak.report.progress import progress
from tokenpeak.report.view import SweepView
from tokenpeak.spec.energy_table import read_factor_table
from tokenpeak.spec.parameters import UNITS as PARAMETERS
from tokenpeak.store.archive import Archive, find_archives

Report = Callable[[str], None]
TRIALS = SWEEP_PAGES[-1]
"""The page that single trials belong to."""
TABLE = "factors.csv"
"""The table of energy factors that was asked for, among a sweep's raw files."""


class WriteDocs(Protocol):
    """Writes docs/ into the folder of a site."""

    def __call__(self, site: Path, *, live: bool) -> None:
        """Write all of its pages; `live` as of the site."""


def build_site(
    archives: Sequence[Path],
    output: Path = paths.SITE_BUILD,
    *,
    node_names: bool = False,
    live: bool = False,
    parameters: Mapping[str, str] | None = None,
    docs: WriteDocs | None = None,
    say: Report = lambda _: None,
) -> Path:
    """Build the site of the archives at or below the given paths; returns the page to open.

    Nodes appear as `node-1`, … unless `node_names`, or a publication names them already. With `live` there is also a
    page that loads itself again while a sweep runs. `parameters` are given to each notebook that declares them;
    InputError for one that none does, and for a value that is not allowed. `docs` writes the documentation, which is
    made above this; without it the site has none.
    The former site stays in place until the new one is whole; pages of a sweep that are still right are copied from it.
    """
    pages = pages_of_sweeps()
    given = _given(parameters or {}, pages)
    sources = _sources(archives)
    studies = _studies(sources)
    table = _table_bytes(given)
    origins = {
        sweep_id: reuse.origin(
            [sources[each].path for each in study],
            (
                node_names,
                live,
                docs is not None,
                *sorted(given.items()),
                table,
                *own_words(sources[sweep_id].read_sweep().inventory),
            ),
        )
        for sweep_id, study in studies.items()
    }
    kept = {sweep_id for sweep_id, origin in reuse.read(output).items() if origins.get(sweep_id) == origin}
    leave(output)
    staging = _staging(output)
    staging.mkdir(parents=True)
    try:
        writer = _Writer(staging, pages, given, say, live=live, documented=docs is not None)
        writer.static()
        if docs is not None:
            docs(staging, live=live)
        views = {}
        for sweep_id, archive in sources.items():
            raw = inside(staging, f"{sweep_id}/data/raw")
            if sweep_id in kept:
                reuse.take(inside(output, sweep_id), inside(staging, sweep_id))
            else:
                found = release(archive.path, raw, node_names=node_names or is_published(archive.read_sweep()))
                for skipped in found.skipped:
                    say(f"skipped {skipped}")
            with _making(sweep_id):
                views[sweep_id] = _opened(raw, _with_table(given, raw))
        newest = sorted(views.values(), key=_recency, reverse=True)
        for view in newest:
            say(f"pages of {view.sweep_id}{' stay as they are' if view.sweep_id in kept else ''}")
            if view.sweep_id not in kept:
                with _making(view.sweep_id):
                    writer.sweep(view, [each for each in studies[view.sweep_id] if each != view.sweep_id])
        with _making(", ".join(views)):
            writer.front(newest)
        reuse.forget(output)
        _replace(staging, output)
        reuse.write(output, origins)
    finally:
        leave(output)
    return output / "index.html"


def _given(parameters: Mapping[str, str], pages: Sequence[Page]) -> dict[str, object]:
    """The parameters as values of the types that notebooks declare; InputError for one that no notebook declares."""
    known: dict[str, Declared] = {}
    for page in pages:
        # A user's notebook that cannot be read declares nothing; its page says why. What ours declare comes first.
        with contextlib.suppress(*((ReportError,) if page.own else ())):
            found = {name: each for name, each in _declared(page).items() if name not in OF_A_SWEEP}
            known = found | known if page.own else known | found
    for name in parameters:
        if name not in known:
            raise InputError(f"No page has a parameter {name!r}. {suggestion(name, known)}")
    return {name: known[name].value(text) for name, text in parameters.items()}


def _table_bytes(given: Mapping[str, object]) -> bytes:
    """The table of factors that is asked for; empty without one. InputError names the line that is wrong."""
    if not given.get("factors"):
        return b""
    path = Path(str(given["factors"]))
    read_factor_table(path, str(given.get("region") or ""), error=InputError)
    return bounded.read_bytes(path, error=InputError)


def _with_table(given: Mapping[str, object], raw: Path) -> dict[str, object]:
    """The parameters, with the table of factors copied to the raw files that the site offers."""
    if not given.get("factors"):
        return dict(given)
    (raw / TABLE).write_bytes(_table_bytes(given))
    return {**given, "factors": str(raw / TABLE)}


def _declared(page: Page) -> dict[str, Declared]:
    """The parameters of a page's notebook."""
    assert page.notebook is not None, "a sweep's page has a notebook"
    return declared(page.notebook)


def _opened(raw: Path, given: Mapping[str, object]) -> SweepView:
    """The sweep as the parameters have it; an InputError names the sweep that does not have what is asked."""
    asked = {name: value for name, value in given.items() if name in PARAMETERS}
    try:
        return open_archive(raw, **asked)
    except InputError as error:
        raise InputError(f"{raw.parents[1].name}: {error}") from error


def _staging(output: Path) -> Path:
    """Where this process makes the site before it replaces the former one."""
    return output.with_name(f".{output.name}.making-{os.getpid()}")


def _former(output: Path) -> Path:
    """Where the former site is for the moment of its replacement."""
    return output.with_name(f".{output.name}.former-{os.getpid()}")


def leave(output: Path) -> None:
    """Remove what this process has made of a site that is not whole; the former site is in its place afterwards."""
    former = _former(output)
    if former.exists() and not output.exists():
        former.rename(output)
    for folder in (former, _staging(output)):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _making(sweeps: str) -> Iterator[None]:
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


def _recency(view: SweepView) -> tuple[bool, str, datetime]:
    """Own sweeps come before imports, of which those with a date in their source come first."""
    imported = view.record.imported
    return imported is None, (imported.measured or "") if imported else "", view.record.started_at


def _sources(archives: Sequence[Path]) -> dict[str, Archive]:
    """The archives by their sweep's id; two of one sweep are an error."""
    found: dict[str, Archive] = {}
    for archive in find_archives(list(archives)):
        sweep_id = archive.read_sweep().sweep_id
        if sweep_id.casefold() in RESERVED:
            raise ReportError(f"{archive.path} holds sweep {sweep_id}, the name of a part of the site itself.")
        if sweep_id in found:
            raise ReportError(
                f"{archive.path} holds sweep {sweep_id}, which another archive holds too. Give one of them."
            )
        found[sweep_id] = archive
    return found


def _studies(sources: Mapping[str, Archive]) -> dict[str, list[str]]:
    """For each sweep: itself and those that name the same study."""
    named = {sweep_id: archive.read_sweep().study for sweep_id, archive in sources.items()}
    return {
        sweep_id: [each for each in named if each == sweep_id or (study and named[each] == study)]
        for sweep_id, study in named.items()
    }


def _replace(staging: Path, output: Path) -> None:
    """Put the new site where the former one is; a folder that is no site of ours is not touched."""
    if output.exists() and any(output.iterdir()) and not (output / "static" / "site.css").is_file():
        raise ReportError(f"{output} exists and is no site. Choose another folder, or empty it.")
    if output.exists():
        output.rename(_former(output))
    output.parent.mkdir(parents=True, exist_ok=True)
    staging.rename(output)


def _shows(blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is more than sentences and prose among the blocks."""
    return any(block["kind"] not in ("sentence", "prose") for block in blocks)


class _Writer:
    """Writes pages into the staging folder."""

    def __init__(
        self,
        folder: Path,
        pages: Sequence[Page],
        given: Mapping[str, object],
        say: Report,
        *,
        live: bool,
        documented: bool,
    ) -> None:
        self.folder = folder
        self.pages = pages
        self.say = say
        self.given = given
        self.live = live
        self.documented = documented
        self.env = render.environment()

    def static(self) -> None:
        """Copy style and scripts, and the vega bundle beside them."""
        shutil.copytree(paths.STATIC, self.folder / "static")
        (self.folder / "static" / "vega.js").write_text(render.vega_bundle())

    def sweep(self, view: SweepView, study: Sequence[str]) -> None:
        """All pages and downloads of one sweep; `study` are the other sweeps that it is to be compared with."""
        data = inside(self.folder, f"{view.sweep_id}/data")
        others = [f"../../../{sweep_id}/data/raw" for sweep_id in study]
        made = {page: self._blocks(page, data / "notebooks", others) for page in self.pages}
        # What has nothing to show is no page, rather than one that says so.
        made = {page: blocks for page, blocks in made.items() if page.own or page.name == "index" or _shows(blocks)}
        menu = {"sweep": view, "pages": tuple(made)}
        for page, blocks in made.items():
            downloads.write_csv(blocks, data / "csv", page.name, view.marks())
            executed = inside(data / "notebooks", f"{page.name}.ipynb")
            self._page(
                f"{view.sweep_id}/{page.name}.html",
                "page.html",
                page=page,
                blocks=blocks,
                notebook=f"data/notebooks/{executed.name}" if executed.is_file() else "",
                root="..",
                here="",
                **menu,
            )
        for context in trial_pages.contexts(view):
            self._page(
                f"{view.sweep_id}/trials/{context['trial'].trial_id}.html",
                "trial.html",
                page=TRIALS,
                root="../..",
                here="../",
                **menu,
                **context,
            )
        downloads.write_frames(view, data / "frames")
        self._page(
            f"{view.sweep_id}/data/index.html",
            "data.html",
            page=None,
            root="../..",
            here="../",
            files=downloads.listing(data),
            **menu,
        )
        downloads.write_checksums(data)

    def _blocks(self, page: Page, folder: Path, study: Sequence[str]) -> list[dict[str, Any]]:
        """What a page's notebook shows; of a user's that fails, the cell and the error."""
        try:
            if page.problem:
                raise ReportError(page.problem)
            assert page.notebook is not None, "a sweep's page has a notebook"
            known = _declared(page)
            table = {"factors": f"../raw/{TABLE}"} if self.given.get("factors") else {}
            parameters = {"archive": "../raw", "study": study, **self.given, **table}
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
            self.say(f"page {page.name} failed: {error}")
            return [warning("This page could not be made. ", str(error)).payload()]

    def front(self, views: Sequence[SweepView]) -> None:
        """The pages over all sweeps, and the feed."""
        entries = history.entries(views, live=self.live)
        trend = [block.payload() | {"csv": ""} for pair in history.trend(views) for block in pair]
        rows: dict[str, dict[str, Any]] = {
            "index": {"entries": entries, "trend": trend},
            "compare": {"comparison": comparison.comparison(views)},
            "methodology": history.methodology(views),
        }
        for page in SITE_PAGES:
            self._page(
                f"{page.name}.html",
                f"{page.name}.html",
                page=page,
                root=".",
                here="",
                sweep=None,
                pages=SITE_PAGES,
                **rows[page.name],
            )
        if self.live and views:
            self._page(
                "live.html",
                "live.html",
                page=LIVE,
                root=".",
                here="",
                sweep=None,
                pages=SITE_PAGES,
                view=views[0],
                progress=progress(views[0]),
            )
        (self.folder / "feed.atom").write_text(feed.atom(entries))

    def _page(self, path: str, template: str, **context: Any) -> None:
        target = inside(self.folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        html = self.env.get_template(template).render(
            live=self.live, documented=self.documented, site_pages=SITE_PAGES, path=path, **context
        )
        target.write_text(html)
