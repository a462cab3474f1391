"""Pages of sweeps: cleaned copy, a page for each notebook and trial, downloads; of many large ones in processes.

A process that ends gives back what its sweeps' frames took, so that memory grows with the largest sweeps and not with
their number. Few small sweeps are made in this process: another takes two seconds to begin.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tokenpeak.errors import ReportError, TokenpeakError
from tokenpeak.names import inside
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

TRIALS = SWEEP_PAGES[-1]
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


LARGE = 500
"""Trials of all sweeps together from which on each study gets a process; they take ten seconds."""
Study = Mapping[str, Path]
"""The archives of sweeps that are made together, by sweep_id."""
_running: dict[Connection, tuple[BaseProcess, Study]] = {}


def make_studies(options: SiteOptions, studies: Sequence[Study], say: Report) -> dict[str, FrontRow]:
    """Make the pages of all studies, and their rows for the pages over all sweeps; the first error ends it."""
    count = sum(len(list((path / "trials").glob("*.json"))) for study in studies for path in study.values())
    if len(studies) < 2 or count < LARGE:
        return {sweep_id: row for study in studies for sweep_id, row in make_study(options, study, say).items()}
    rows: dict[str, FrontRow] = {}
    waiting = list(studies)
    try:
        while waiting or _running:
            while waiting and len(_running) < (os.cpu_count() or 1):
                _start(options, waiting.pop(0))
            for connection in wait(list(_running)):
                assert isinstance(connection, Connection), "nothing else is waited for"
                rows |= _received(connection, say)
    finally:
        stop()
    return rows


def stop() -> None:
    """End all of the processes; none writes anything afterwards."""
    for process, _ in _running.values():
        process.kill()
        process.join()
    _running.clear()


def _start(options: SiteOptions, study: Study) -> None:
    # Not forked: the threads of Polars do not survive that.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_make, args=(theirs, gc.get_threshold(), options, study), daemon=True)
    process.start()
    theirs.close()
    _running[ours] = (process, study)


def _received(connection: Connection, say: Report) -> dict[str, FrontRow]:
    """What a process sent: its rows, or nothing yet where it said something; raises the error that it ended with."""
    process, study = _running[connection]
    try:
        sent = connection.recv()
    except EOFError:
        process.join()
        raise ReportError(
            f"The pages of {', '.join(study)} cannot be made: their process ended with status {process.exitcode}. "
            "Where memory was short, give fewer archives at a time."
        ) from None
    if isinstance(sent, str):
        say(sent)
        return {}
    process.join()
    del _running[connection]
    if isinstance(sent, Exception):
        raise sent
    return dict(sent)


def _make(connection: Connection, thresholds: tuple[int, int, int], options: SiteOptions, study: Study) -> None:
    """Make a study's pages and send what is said, then the rows or the error."""
    # Ctrl-C reaches it too, and its parent may be killed: neither leaves it at work.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.set_threshold(*thresholds)
    try:
        connection.send(make_study(options, study, connection.send))
    except (TokenpeakError, OSError) as error:
        connection.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it was started by one"
    parent.join()
    os._exit(1)
