"""Processes that make parts of the site, each with a connection to the one that builds it; none outlives that."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

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
