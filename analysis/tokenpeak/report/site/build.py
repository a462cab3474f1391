"""Building the site: archives in, a folder of pages out, replaced as a whole when all of it is made.

OUTPUT/index.html  compare.html  methodology.html  feed.atom  static/  docs/
OUTPUT/SWEEP_ID/index.html  ranking.html  …  trials.html  trials/TRIAL_ID.html
OUTPUT/SWEEP_ID/data/raw/  frames/  csv/  notebooks/  SHA256SUMS
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenpeak import paths
from tokenpeak.errors import ArchiveError, InputError, ReportError, TokenpeakError, suggestion
from tokenpeak.files import delete, delete_if_possible, write_atomically
from tokenpeak.own_place import make_own, require_own_entries, require_unmoved
from tokenpeak.paths import inside
from tokenpeak.report.compare.front_pages import FrontRow, atom, newest_first, shown_over_all
from tokenpeak.report.opening import open_archive
from tokenpeak.report.site import render
from tokenpeak.report.site.known_words import own_words
from tokenpeak.report.site.pages import (
    GIVEN,
    LIVE,
    RESERVED,
    SITE_PAGES,
    Declared,
    Page,
    declared,
    pages_of_site,
    pages_of_sweeps,
)
from tokenpeak.report.site.sweep_pages import (
    Report,
    SiteOptions,
    make_study,
    making,
    opened,
    write_html,
    write_over_all,
)
from tokenpeak.report.site.unshown import Unshown, require_all_shown, write_unshown
from tokenpeak.report.trials.search_progress import progress
from tokenpeak.store.archive import Archive, find_readable

_moved: list[str] = []
"""Sweeps that the former site has given to the new one, which is not in its place yet."""


class WriteDocs(Protocol):
    """Writes docs/ into the folder of a site."""

    def __call__(self, site: Path, *, live: bool, site_pages: tuple[Page, ...]) -> None:
        """Write all of its pages; `live` and the pages over all sweeps are the site's."""


def build_site(
    archives: Sequence[Path],
    output: Path = paths.SITE_BUILD,
    *,
    node_names: bool = False,
    texts: bool = False,
    live: bool = False,
    parameters: Mapping[str, str] | None = None,
    docs: WriteDocs | None = None,
    say: Report = lambda _: None,
) -> Path:
    """Build the site of the archives at or below the given paths; returns the page to open.

    Nodes appear as `node-1`, … unless `node_names`, or a publication names them already. Engine logs and free text
    stay at home, but with `texts` or under the nodes' own names. With `live` there is also a page that loads itself
    again while a sweep runs. `parameters` are given to each notebook that declares them; InputError for one that none
    does, and for a value that is not allowed. `docs` writes the documentation, which is made above this; without it the
    site has none.
    The former site stays in place until the new one is whole. Sweeps that are still right go over to it. An archive
    that cannot be shown has a page that says why, and once the site is in its place IncompleteSiteError names it; where
    there is no other, its own error is raised, and the former site stays.
    """
    _require_place(output)
    pages, site_pages = pages_of_sweeps(), pages_of_site()
    over_all = tuple(page for page in site_pages if page.own)
    given = _given(parameters or {}, (*pages, *over_all))
    sources, unshown = _sources(archives, {*RESERVED, *(page.stem for page in over_all)})
    _require_any(sources, unshown)
    studies = _studies(sources)
    shared = (node_names, texts, live, docs is not None, *sorted(given.items()))
    made_with = {
        sweep_id: (*shared, *own_words(archive.read_sweep().inventory)) for sweep_id, archive in sources.items()
    }
    origins = {
        sweep_id: _origin([sources[each].path for each in study], made_with[sweep_id])
        for study in studies
        for sweep_id in study
    }
    former = former_sweeps(output)
    kept = {
        sweep_id: former[sweep_id]
        for study in studies
        if all(each in former and former[each].origin == origins[each] for each in study)
        for sweep_id in study
    }
    _refuse_other(output)
    leave(output)
    staging = _staging(output)
    if not output.parent.is_dir():
        output.parent.mkdir(parents=True)
        # Others may have been first.
        _require_place(output)
    new = [{each: sources[each].path for each in study} for study in studies if not kept.keys() & set(study)]
    options = SiteOptions(
        folder=staging,
        pages=pages,
        site_pages=site_pages,
        given=given,
        node_names=node_names,
        texts=texts,
        live=live,
        documented=docs is not None,
    )
    try:
        make_own(staging)
        _write_static(staging)
        if docs is not None:
            docs(staging, live=live, site_pages=site_pages)
        for sweep_id in kept:
            say(f"pages of {sweep_id} stay as they are")
        rows = {sweep_id: each.row for sweep_id, each in kept.items()}
        for study in new:
            made, lost = make_study(options, study, say)
            rows |= made
            unshown += [_unshown(sweep_id, sources.pop(sweep_id), error) for sweep_id, error in lost.items()]
        _require_any(sources, unshown)
        with making(", ".join(sources)):
            listed = write_unshown(options, unshown, rows)
            _write_front(options, newest_first([rows[sweep_id] for sweep_id in sources]), listed, kept, output)
        if over_all and sources:
            with _beside(staging, output, kept):
                marks = {each: open_archive(staging / each / "data" / "raw").marks() for each in sources}
                for page in over_all:
                    write_over_all(options, page, marks, say)
        delete(_note(output))
        _replace(staging, output, kept)
        noted = {sweep_id: {"origin": origins[sweep_id], "row": rows[sweep_id]} for sweep_id in sources}
        write_atomically(_note(output), json.dumps(noted) + "\n", durable=False)
    finally:
        leave(output)
    require_all_shown(output / "index.html", unshown, len(sources))
    return output / "index.html"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A sweep of a site: a digest of what its pages are made of, and its row for the pages over all sweeps."""

    origin: str
    row: FrontRow


def _note(site: Path) -> Path:
    """Where it is noted what a site's sweeps are made of: beside the site, whose readers have no use for it."""
    return site.with_name(f".{site.name}.made.json")


def former_sweeps(site: Path) -> dict[str, Made]:
    """The sweeps of the site at `site`, as it is noted beside it; empty where that is not known."""
    try:
        noted = json.loads(_note(site).read_text())
        made = {sweep_id: Made(origin=each["origin"], row=each["row"]) for sweep_id, each in noted.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
    return {sweep_id: each for sweep_id, each in made.items() if (site / sweep_id / "index.html").is_file()}


def _origin(archives: Iterable[Path], options: Iterable[object]) -> str:
    """A digest of what a sweep's pages are made of; raw files are never edited, so size and time stand for them."""
    parts = [render.code_digest(), *map(str, options)]
    for folder in (folder for archive in archives for folder in (archive, archive / "trials", archive / "applies")):
        for path in sorted(folder.glob("[!.]*")):
            if path.is_file():
                facts = path.stat()
                parts.append(f"{path} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _given(parameters: Mapping[str, str], pages: Sequence[Page]) -> dict[str, object]:
    """The parameters as values of the types that notebooks declare; InputError for one that no notebook declares."""
    known: dict[str, Declared] = {}
    for page in pages:
        # A user's notebook that cannot be read declares nothing; its page says why. What ours declare comes first.
        with contextlib.suppress(*((ReportError,) if page.own else ())):
            assert page.notebook is not None, "a sweep's page has a notebook"
            found = {name: each for name, each in declared(page.notebook).items() if name not in GIVEN}
            known = found | known if page.own else known | found
    for name in parameters:
        if name not in known:
            raise InputError(f"No page has a parameter {name!r}. {suggestion(name, known)}")
    return {name: known[name].value(text) for name, text in parameters.items()}


def _staging(output: Path) -> Path:
    """Where this process makes the site before it replaces the former one."""
    return output.with_name(f".{output.name}.making-{os.getpid()}")


def _former(output: Path) -> Path:
    """Where the former site is for the moment of its replacement."""
    return output.with_name(f".{output.name}.former-{os.getpid()}")


def leave(output: Path) -> None:
    """Remove what this process has made of a site that is not whole; the former site is in its place afterwards."""
    former, staging = _former(output), _staging(output)
    if former.exists() and not output.exists():
        for sweep_id in (each for each in _moved if (staging / each).exists()):
            (staging / sweep_id).rename(former / sweep_id)
        former.rename(output)
    for folder in (former, staging):
        delete_if_possible(folder)


def _sources(archives: Sequence[Path], taken: Container[str]) -> tuple[dict[str, Archive], list[Unshown]]:
    """The archives by their sweep's id, and those that cannot be read; two of one sweep are an error.

    What the site's own parts are called is `taken`.
    """
    found: dict[str, Archive] = {}
    readable, broken = find_readable(list(archives))
    unshown = [Unshown(name=path.name, path=path, error=error) for path, error in broken.items()]
    for archive in readable:
        try:
            sweep_id = archive.read_sweep().sweep_id
        except ArchiveError as error:
            unshown.append(Unshown(name=archive.path.name, path=archive.path, error=error))
            continue
        if sweep_id.casefold() in taken:
            words = f"{archive.path} holds sweep {sweep_id}, the name of a part of the site itself."
            unshown.append(_unshown(sweep_id, archive, ReportError(words)))
            continue
        if sweep_id in found:
            raise ReportError(
                f"{archive.path} holds sweep {sweep_id}, which another archive holds too. Give one of them."
            )
        found[sweep_id] = archive
    return found, unshown


def _unshown(sweep_id: str, archive: Archive, error: TokenpeakError) -> Unshown:
    return Unshown(name=sweep_id, path=archive.path, error=error, record=archive.read_sweep())


def _require_any(sources: Mapping[str, Archive], unshown: Sequence[Unshown]) -> None:
    """The first archive's error where none can be shown."""
    if unshown and not sources:
        raise unshown[0].error


def _studies(sources: Mapping[str, Archive]) -> list[list[str]]:
    """The sweeps by study, newest first; one that names none is alone."""
    found: dict[tuple[str, str], list[str]] = {}
    records = {sweep_id: archive.read_sweep() for sweep_id, archive in sources.items()}
    for sweep_id, record in records.items():
        found.setdefault(("study", record.study) if record.study else ("sweep", sweep_id), []).append(sweep_id)
    return sorted(
        found.values(), key=lambda study: max(records[each].started_at.timestamp() for each in study), reverse=True
    )


def _require_place(output: Path) -> None:
    """InputError where others could lead what is written beside the site elsewhere."""
    require_unmoved(output.parent, "site", "Run it as that user, or take a folder of root's and publish the site.")


def _refuse_other(output: Path) -> None:
    """ReportError for a folder that is no site of ours, which is not touched."""
    require_own_entries(output, _note(output))
    if output.exists() and any(output.iterdir()) and not (output / "static" / "site.css").is_file():
        raise ReportError(f"{output} exists and is no site. Choose another folder, or empty it.")


@contextlib.contextmanager
def _beside(staging: Path, output: Path, kept: Iterable[str]) -> Iterator[None]:
    """The sweeps that are kept appear beside the new ones, for pages over all of them."""
    links = [inside(staging, sweep_id) for sweep_id in kept]
    try:
        for link in links:
            link.symlink_to(inside(output, link.name).absolute())
        yield
    finally:
        for link in links:
            delete(link)


def _replace(staging: Path, output: Path, kept: Iterable[str]) -> None:
    """Put the new site where the former one is, with the sweeps that are kept of it."""
    _refuse_other(output)
    former = _former(output)
    if output.exists():
        output.rename(former)
    for sweep_id in kept:
        _moved.append(sweep_id)
        inside(former, sweep_id).rename(inside(staging, sweep_id))
    staging.rename(output)
    _moved.clear()


def _write_static(folder: Path) -> None:
    """Copy style and scripts, and the vega bundle beside them."""
    shutil.copytree(paths.STATIC, folder / "static")
    (folder / "static" / "vega.js").write_text(render.vega_bundle())


def _write_front(
    options: SiteOptions, rows: list[FrontRow], unshown: list[dict[str, str]], kept: Container[str], output: Path
) -> None:
    """The pages over all sweeps, newest first, and the feed; the newest of those that are `kept` is at `output`."""
    shown = shown_over_all(rows, live=options.live)
    over_all = {"root": ".", "here": "", "sweep": None, "pages": SITE_PAGES, "unshown": unshown}
    for page in SITE_PAGES:
        write_html(options, f"{page.name}.html", f"{page.name}.html", page=page, **over_all, **shown[page.name])
    if options.live and rows:
        newest = str(rows[0]["entry"]["sweep_id"])
        view = opened(inside(output if newest in kept else options.folder, f"{newest}/data/raw"), options.given)
        write_html(options, "live.html", "live.html", page=LIVE, **over_all, view=view, progress=progress(view))
    (options.folder / "feed.atom").write_text(atom(shown["index"]["entries"]))
