"""Pages of a sweep: its cleaned copy, a page for each notebook and each trial, and the downloads."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenpeak.names import inside
from tokenpeak.report.compare import comparison
from tokenpeak.report.former_trials import FormerTrials, page_of
from tokenpeak.report.site import page_writer
from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published
from tokenpeak.report.site.front_pages import FrontRow, front_row
from tokenpeak.report.site.notebook_pages import making, opened
from tokenpeak.report.site.page_helper import PageHelper, make_pages
from tokenpeak.report.site.page_writer import PageWriter, Report, SiteOptions
from tokenpeak.report.site.pages import SWEEP_PAGES
from tokenpeak.report.trials.trial_page import TrialPages
from tokenpeak.report.view import SweepView
from tokenpeak.store.archive import Archive

TRIALS = SWEEP_PAGES[-1]
"""The page that single trials belong to."""


def make_study(
    options: SiteOptions, archives: Mapping[str, Path], say: Report, *, is_helped: bool = False
) -> dict[str, FrontRow]:
    """Make all pages and downloads of a sweep, or of those of one study, whose pages read each other's raw files.

    A sweep that is alone may be helped by a second process.
    """
    helper = PageHelper(options) if is_helped and len(archives) == 1 else None
    views, formers = {}, {}
    for sweep_id, path in archives.items():
        raw = inside(options.folder, f"{sweep_id}/data/raw")
        is_named = options.node_names or is_published(Archive(path).read_sweep())
        former = formers[sweep_id] = options.former_trials(sweep_id)
        copied = cleaned_copy(path, raw, node_names=is_named, texts=options.texts, former=former)
        for skipped in copied.skipped:
            say(f"skipped {skipped}")
        with making(sweep_id):
            views[sweep_id] = opened(raw, options.given, former.rows())
    writer = PageWriter(options)
    rows = {}
    for sweep_id, view in views.items():
        say(f"pages of {sweep_id}")
        with making(sweep_id):
            others = [f"../../../{each}/data/raw" for each in views if each != sweep_id]
            if helper is not None:
                helper.begin(view, options.given, formers[sweep_id].new_rows, others)
            _make_sweep(writer, options, view, formers[sweep_id], others, helper, say)
            rows[sweep_id] = front_row(view)
        formers[sweep_id].write()
    return rows


def _make_sweep(
    writer: PageWriter,
    options: SiteOptions,
    view: SweepView,
    former: FormerTrials,
    others: Sequence[str],
    helper: PageHelper | None,
    say: Report,
) -> None:
    """All pages and downloads of one sweep; `others` are the raw files of those that it is compared with."""
    data = inside(options.folder, f"{view.sweep_id}/data")
    menu = {"sweep": view, "pages": make_pages(writer, options, view, others, helper, say)}
    _make_trials(writer, view, former, menu)
    inside(options.folder, f"{view.sweep_id}/{comparison.SCRIPT}").write_text(comparison.script(view))
    page_writer.write_frames(view, data / "frames")
    writer.page(
        f"{view.sweep_id}/data/index.html",
        "data.html",
        page=None,
        root="../..",
        here="../",
        files=page_writer.listing(data),
        **menu,
    )
    page_writer.write_checksums(data)


def _make_trials(writer: PageWriter, view: SweepView, former: FormerTrials, menu: Mapping[str, Any]) -> None:
    """A page for each trial; those of the former site that say the same are reused."""
    pages = TrialPages(view)
    of_all = f"{pages.of_all} {[(page.name, page.menu) for page in menu['pages']]}"
    for trial_id in pages:
        says = f"{of_all} {pages.beside(trial_id)}"
        if not former.reuse_page(trial_id, says):
            if (context := pages.context(trial_id)) is None:
                continue
            path = f"{view.sweep_id}/{page_of(trial_id)}"
            writer.page(path, "trial.html", page=TRIALS, root="../..", here="../", **menu, **context)
        former.note_page(trial_id, says)
