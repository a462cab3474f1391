"""Pages of sweeps: cleaned copy, a page for each notebook and trial, downloads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenpeak.paths import inside
from tokenpeak.report.compare import comparison
from tokenpeak.report.site import page_writer
from tokenpeak.report.site.cleaned_copy import cleaned_copy, is_published
from tokenpeak.report.site.front_pages import FrontRow, front_row
from tokenpeak.report.site.notebook_pages import blocks_of, making, opened, shows, write_page
from tokenpeak.report.site.page_writer import PageWriter, Report, SiteOptions
from tokenpeak.report.site.pages import SWEEP_PAGES
from tokenpeak.report.trials.trial_page import TrialPages
from tokenpeak.report.view import SweepView
from tokenpeak.store.archive import Archive

TRIALS = next(page for page in SWEEP_PAGES if page.name == "trials")
"""The page that single trials belong to."""


def make_study(options: SiteOptions, archives: Mapping[str, Path], say: Report) -> dict[str, FrontRow]:
    """Make all pages and downloads of a sweep, or of those of one study, whose pages read each other's raw files."""
    views = {}
    for sweep_id, path in archives.items():
        raw = inside(options.folder, f"{sweep_id}/data/raw")
        is_named = options.node_names or is_published(Archive(path).read_sweep())
        copied = cleaned_copy(path, raw, node_names=is_named, texts=options.texts)
        for skipped in copied.skipped:
            say(f"skipped {skipped}")
        with making(sweep_id):
            views[sweep_id] = opened(raw, options.given)
    writer = PageWriter(options)
    rows = {}
    for sweep_id, view in views.items():
        say(f"pages of {sweep_id}")
        with making(sweep_id):
            others = [f"../../../{each}/data/raw" for each in views if each != sweep_id]
            _make_sweep(writer, options, view, others, say)
            rows[sweep_id] = front_row(view)
    return rows


def _make_sweep(writer: PageWriter, options: SiteOptions, view: SweepView, others: Sequence[str], say: Report) -> None:
    """All pages and downloads of one sweep; `others` are the raw files of those that it is compared with."""
    data = inside(options.folder, f"{view.sweep_id}/data")
    made = {page: blocks_of(page, options.given, data / "notebooks", others, say) for page in options.pages}
    pages = tuple(page for page, blocks in made.items() if shows(page, blocks))
    for page in pages:
        write_page(writer, options, view, page, made[page], pages)
    menu = {"sweep": view, "pages": pages}
    trials = TrialPages(view)
    for trial_id in trials:
        if (context := trials.context(trial_id)) is not None:
            path = f"{view.sweep_id}/trials/{trial_id}.html"
            writer.page(path, "trial.html", page=TRIALS, root="../..", here="../", **menu, **context)
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
