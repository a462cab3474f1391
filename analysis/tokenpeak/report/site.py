"""Building the site: archives in, a folder of pages out, replaced as a whole when all of it is made.

OUTPUT/index.html  compare.html  methodology.html  feed.atom  static/
OUTPUT/SWEEP_ID/index.html  ranking.html  …  trials.html  trials/TRIAL_ID.html
OUTPUT/SWEEP_ID/data/raw/  frames/  csv/  notebooks/  SHA256SUMS
"""

import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import paths
from tokenpeak.errors import ReportError, TokenpeakError
from tokenpeak.names import inside, shown
from tokenpeak.report import downloads, feed, history, notebooks, render, reuse, trial_pages
from tokenpeak.report.known_words import own_words
from tokenpeak.report.progress import progress
from tokenpeak.report.release import is_published, release
from tokenpeak.report.view import SweepView, open_archive
from tokenpeak.store.raw import Archive, find_archives


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of a sweep: the notebook of the same name, its place in the menu and the question it answers."""

    name: str
    menu: str
    title: str
    question: str


SWEEP_PAGES: tuple[Page, ...] = (
    Page(name="index", menu="Overview", title="What to run", question="What should we run, and how much better is it?"),
    Page(name="ranking", menu="Ranking", title="Ranking", question="How do all configs compare?"),
    Page(
        name="interactions",
        menu="Interactions",
        title="Interactions",
        question="Which settings matter, and which act together?",
    ),
    Page(name="rates", menu="SLO rates", title="SLO rate curves", question="How much load holds the SLO?"),
    Page(
        name="latency",
        menu="Latency",
        title="Latency and throughput",
        question="What does a user's speed cost in throughput?",
    ),
    Page(
        name="energy", menu="Energy", title="Energy, CO₂, water and cost", question="What does a million tokens take?"
    ),
    Page(
        name="hardware",
        menu="Hardware",
        title="Parallelism, presets and quantization",
        question="What do GPUs, parallelism and number formats change?",
    ),
    Page(
        name="claims",
        menu="Claims",
        title="Claims and checks",
        question="Do the figures support what is said of them?",
    ),
    Page(name="trials", menu="Trials", title="Trials", question="What happened in each launch?"),
)
SITE_PAGES: tuple[Page, ...] = (
    Page(name="index", menu="Sweeps", title="TokenPeak", question="What has been measured?"),
    Page(
        name="compare", menu="Compare", title="Compare", question="What differs between two configs, sweeps or dates?"
    ),
    Page(name="methodology", menu="Methodology", title="Methodology and glossary", question="How was this measured?"),
)

TAKEN = frozenset({"static", "feed.atom", "live.html", *(f"{page.name}.html" for page in SITE_PAGES)})
"""What is in the site's own folder beside the sweeps."""

LIVE = Page(name="live", menu="Live", title="Live", question="How far is the sweep?")

Report = Callable[[str], None]


def build_site(
    archives: Sequence[Path],
    output: Path = paths.SITE_BUILD,
    *,
    node_names: bool = False,
    live: bool = False,
    say: Report = lambda _: None,
) -> Path:
    """Build the site of the archives at or below the given paths; returns the page to open.

    Nodes appear as `node-1`, … unless `node_names`, or a publication names them already. With `live` there is also a
    page that loads itself again while a sweep runs.
    The former site stays in place until the new one is whole; pages of a sweep that are still right are taken from it.
    """
    sources = _sources(archives)
    studies = _studies(sources)
    origins = {
        sweep_id: reuse.origin(
            [sources[each].path for each in study],
            (node_names, live, *own_words(sources[sweep_id].read_sweep().inventory)),
        )
        for sweep_id, study in studies.items()
    }
    kept = {sweep_id for sweep_id, origin in reuse.read(output).items() if origins.get(sweep_id) == origin}
    staging = output.with_name(f".{output.name}.making-{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        writer = _Writer(staging, live=live)
        writer.static()
        views = {}
        for sweep_id, archive in sources.items():
            raw = inside(staging, f"{sweep_id}/data/raw")
            if sweep_id in kept:
                reuse.take(inside(output, sweep_id), inside(staging, sweep_id))
            else:
                release(archive.path, raw, node_names=node_names or is_published(archive.read_sweep()))
            with _making(sweep_id):
                views[sweep_id] = open_archive(raw)
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
        shutil.rmtree(staging, ignore_errors=True)
    return output / "index.html"


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
    """Own sweeps come before imports, of which those whose source tells its date come first."""
    imported = view.record.imported
    return imported is None, (imported.measured or "") if imported else "", view.record.started_at


def _sources(archives: Sequence[Path]) -> dict[str, Archive]:
    """The archives by their sweep's id; two of one sweep are an error."""
    found: dict[str, Archive] = {}
    for archive in find_archives(list(archives)):
        sweep_id = archive.read_sweep().sweep_id
        if sweep_id.casefold() in TAKEN:
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
    """Put the new site where the former one is; a folder that is no site of ours is left alone."""
    if output.exists() and any(output.iterdir()) and not (output / "static" / "site.css").is_file():
        raise ReportError(f"{output} exists and is no site. Choose another folder, or empty it.")
    former = output.with_name(f".{output.name}.former-{os.getpid()}")
    if output.exists():
        output.rename(former)
    output.parent.mkdir(parents=True, exist_ok=True)
    staging.rename(output)
    shutil.rmtree(former, ignore_errors=True)


class _Writer:
    """Writes pages into the staging folder."""

    def __init__(self, folder: Path, *, live: bool) -> None:
        self.folder = folder
        self.live = live
        self.env = render.environment()

    def static(self) -> None:
        """Copy style and scripts, and the vega bundle beside them."""
        shutil.copytree(paths.STATIC, self.folder / "static")
        (self.folder / "static" / "vega.js").write_text(render.vega_bundle())

    def sweep(self, view: SweepView, study: Sequence[str]) -> None:
        """All pages and downloads of one sweep; `study` are the other sweeps that it is to be compared with."""
        data = inside(self.folder, f"{view.sweep_id}/data")
        menu = {"sweep": view, "pages": SWEEP_PAGES}
        others = {"study": [f"../../../{sweep_id}/data/raw" for sweep_id in study]}
        for page in SWEEP_PAGES:
            executed = notebooks.execute(
                paths.NOTEBOOKS / f"{page.name if page.name != 'index' else 'overview'}.ipynb",
                data / "notebooks" / f"{page.name}.ipynb",
                {"archive": "../raw", **(others if page.name == "rates" else {})},
            )
            blocks = notebooks.blocks(executed)
            downloads.write_csv(blocks, data / "csv", page.name, view.marks())
            self._page(
                f"{view.sweep_id}/{page.name}.html", "page.html", page=page, blocks=blocks, root="..", here="", **menu
            )
        for context in trial_pages.contexts(view):
            self._page(
                f"{view.sweep_id}/trials/{context['trial'].trial_id}.html",
                "trial.html",
                page=SWEEP_PAGES[-1],
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

    def front(self, views: Sequence[SweepView]) -> None:
        """The pages over all sweeps, and the feed."""
        entries = history.entries(views)
        rows: dict[str, dict[str, Any]] = {
            "index": {"entries": entries, "trend": history.trend(views)},
            "compare": {"comparison": history.comparable(views)},
            "methodology": {"text": self._content("methodology.md"), **history.methodology(views)},
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

    def _content(self, name: str) -> str:
        return (paths.CONTENT / name).read_text()

    def _page(self, path: str, template: str, **context: Any) -> None:
        target = inside(self.folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        html = self.env.get_template(template).render(live=self.live, site_pages=SITE_PAGES, path=path, **context)
        target.write_text(html)
