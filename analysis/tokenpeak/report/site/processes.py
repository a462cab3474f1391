"""Pages of many large sweeps at a time: a process for each study, as many together as there are processors.

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
from tokenpeak.report.site.front_pages import FrontRow
from tokenpeak.report.site.page_writer import Report, SiteOptions
from tokenpeak.report.site.sweep_pages import make_study

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
