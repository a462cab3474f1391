"""Processes that make parts of the site, each with a connection to the one that builds it; none outlives that."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tokenpeak.errors import ReportError, TokenpeakError
from tokenpeak.report.site.front_pages import FrontRow
from tokenpeak.report.site.page_writer import Report, SiteOptions
from tokenpeak.report.site.sweep_pages import make_study

_processes: list[BaseProcess] = []


def context() -> SpawnContext:
    """How they begin. Not forked: the threads of Polars do not survive that."""
    return multiprocessing.get_context("spawn")


def start(work: Callable[..., None], *arguments: Any, duplex: bool = False) -> tuple[BaseProcess, Connection]:
    """Start `work(connection, *arguments)` in a process; its other end of the connection is returned."""
    ours, theirs = context().Pipe(duplex)
    process = context().Process(target=_live, args=(work, theirs, gc.get_threshold(), *arguments), daemon=True)
    process.start()
    theirs.close()
    _processes.append(process)
    return process, ours


def stop() -> None:
    """End all of them; none writes anything afterwards."""
    for process in _processes:
        process.kill()
    for process in _processes:
        process.join()
    _processes.clear()


def _live(work: Callable[..., None], connection: Connection, thresholds: tuple[int, int, int], *arguments: Any) -> None:
    # Ctrl-C reaches it too, and its parent may be killed: neither leaves it at work.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.set_threshold(*thresholds)
    work(connection, *arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it was started by one"
    parent.join()
    os._exit(1)


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
        stop()
    return rows


def _start(options: SiteOptions, study: Study) -> None:
    process, connection = start(_make, options, study)
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
