"""Page helper: a second process that makes some of the pages of a large sweep.

It begins while the raw files are cleaned. Whichever of the two processes is free makes the next page's notebook, and
later writes the pages of those that it made.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from tokenpeak.errors import ReportError, TokenpeakError
from tokenpeak.names import inside
from tokenpeak.report.site import processes
from tokenpeak.report.site.notebook_pages import Blocks, blocks_of, making, opened, shows, write_page
from tokenpeak.report.site.page_writer import PageWriter, Report, SiteOptions
from tokenpeak.report.site.pages import Page
from tokenpeak.report.view import SweepView
from tokenpeak.store.kept_rows import KeptRows


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    """What a helper must know to open a sweep."""

    raw: Path
    given: Mapping[str, object]
    rows: Path
    """The rows of its trials."""
    trials: Collection[str]
    others: Sequence[str]


class PageHelper:
    """The helper's end in the process that builds the site."""

    def __init__(self, options: SiteOptions) -> None:
        self.next_page: Synchronized[int] = processes.context().Value("i", 0)
        self._process, self._connection = processes.start(_help, options, self.next_page, duplex=True)

    def begin(self, view: SweepView, given: Mapping[str, object], rows: Path, others: Sequence[str]) -> None:
        """Have it open the sweep and make pages, until none is left."""
        trials = view.trials["trial_id"].to_list()
        self._send(_Sweep(raw=view.path, given=given, rows=rows, trials=trials, others=others))

    def made(self, say: Report) -> dict[str, bool]:
        """The names of the pages that it made, and whether each has something to show."""
        return dict(self._received(say))

    def write(self, menu: Sequence[Page], say: Report) -> None:
        """Have it write its pages, and wait for them."""
        self._send(tuple(menu))
        self._received(say)

    def _send(self, words: Any) -> None:
        # Of a helper that has ended, the next answer says how.
        with contextlib.suppress(ConnectionError):
            self._connection.send(words)

    def _received(self, say: Report) -> Any:
        while True:
            try:
                sent = self._connection.recv()
            except (EOFError, ConnectionError):
                self._process.join()
                raise ReportError(
                    f"A process that made pages ended with status {self._process.exitcode}. Where memory was short, "
                    "give fewer archives at a time."
                ) from None
            if isinstance(sent, Exception):
                raise sent
            if not isinstance(sent, str):
                return sent
            say(sent)


def make_pages(
    writer: PageWriter,
    options: SiteOptions,
    view: SweepView,
    others: Sequence[str],
    helper: PageHelper | None,
    say: Report,
) -> tuple[Page, ...]:
    """Make the pages that are notebooks, those of a helper too; returns the pages that the sweep has.

    `others` are the raw files of the sweeps that it is compared with, as seen from a notebook.
    """
    made = _executed(options, view, others, helper.next_page if helper else None, say)
    shown = {page.name: shows(page, blocks) for page, blocks in made.items()}
    if helper is not None:
        shown |= helper.made(say)
    menu = tuple(page for page in options.pages if shown[page.name])
    _write(writer, options, view, made, menu)
    if helper is not None:
        helper.write(menu, say)
    return menu


def _executed(
    options: SiteOptions, view: SweepView, others: Sequence[str], shared: "Synchronized[int] | None", say: Report
) -> dict[Page, Blocks]:
    """What the pages show that this process makes: with a `shared` number of the next page, those that it comes to."""
    folder = inside(options.folder, f"{view.sweep_id}/data/notebooks")
    made: dict[Page, Blocks] = {}
    if shared is None:
        return {page: blocks_of(page, options.given, folder, others, say) for page in options.pages}
    while True:
        with shared.get_lock():
            place = shared.value
            shared.value += 1
        if place >= len(options.pages):
            return made
        page = options.pages[place]
        made[page] = blocks_of(page, options.given, folder, others, say)


def _write(
    writer: PageWriter, options: SiteOptions, view: SweepView, made: Mapping[Page, Blocks], menu: Sequence[Page]
) -> None:
    for page, blocks in made.items():
        if page in menu:
            write_page(writer, options, view, page, blocks, menu)


def _help(connection: Connection, options: SiteOptions, shared: "Synchronized[int]") -> None:
    """The helper's work: open the sweep, make pages, and write them when it is known which pages there are."""
    sweep: _Sweep = connection.recv()
    try:
        with making(sweep.raw.parents[1].name):
            view = opened(sweep.raw, sweep.given, KeptRows(sweep.rows, None, sweep.trials))
            made = _executed(options, view, sweep.others, shared, connection.send)
            connection.send({page.name: shows(page, blocks) for page, blocks in made.items()})
            _write(PageWriter(options), options, view, made, connection.recv())
        connection.send(())
    except (TokenpeakError, OSError) as error:
        connection.send(error)
