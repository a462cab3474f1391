"""Pages of many large sweeps at a time: a process for each, as many together as there are processors.

A process that ends gives back what its sweep's frames took, so that memory grows with the largest sweeps and not with
their number. Few small sweeps are made in this process: another takes two seconds to begin. A single large one has a
helper.
"""

import os
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tokenpeak.errors import ReportError, TokenpeakError
from tokenpeak.report import site_process
from tokenpeak.report.front_row import FrontRow
from tokenpeak.report.page_writer import Report, SiteOptions
from tokenpeak.report.sweep_pages import make_study

LARGE = 500
"""Trials of all sweeps together from which on each study gets a process; they take ten seconds."""
Study = Mapping[str, Path]
"""The archives of sweeps that are made together, by sweep_id."""
_running: dict[Connection, tuple[BaseProcess, Study]] = {}


def make_studies(options: SiteOptions, studies: Sequence[Study], say: Report) -> dict[str, FrontRow]:
    """Make the pages of all studies, and their rows for the pages over all sweeps; the first error ends it."""
    count = sum(len(list((path / "trials").glob("*.json"))) for study in studies for path in study.values())
    if len(studies) < 2 or count < LARGE:
        is_helped = count >= LARGE and (os.cpu_count() or 1) > 1
        made = (make_study(options, study, say, is_helped=is_helped) for study in studies)
        return {sweep_id: row for rows in made for sweep_id, row in rows.items()}
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
        _running.clear()
        site_process.stop()
    return rows


def _start(options: SiteOptions, study: Study) -> None:
    process, connection = site_process.start(_make, options, study)
    _running[connection] = (process, study)


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


def _make(connection: Connection, options: SiteOptions, study: Study) -> None:
    """Make a study's pages and send what is said, then the rows or the error."""
    try:
        connection.send(make_study(options, study, connection.send))
    except (TokenpeakError, OSError) as error:
        connection.send(error)
