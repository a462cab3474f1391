"""Ctrl-C while pages are made: the process ends at once, instead of an exception in whatever happens to run."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokenpeak.exit_status import ExitStatus


@contextmanager
def interruptible(
    last: Callable[[], None], *, said: str = "Interrupted.", status: ExitStatus = ExitStatus.INTERRUPTED
) -> Iterator[None]:
    """In the block, SIGINT and SIGTERM call `last`, say `said` and end the process with `status`.

    A KeyboardInterrupt does not get through: Polars turns one that is raised in a callback into a panic, and IPython
    one that is raised in a notebook's cell into the error of that cell.
    """

    def end(*_: object) -> None:
        last()
        # The handler may have come in the middle of a print, whose buffer must not be entered again.
        os.write(sys.stderr.fileno(), f"{said}\n".encode())
        os._exit(status)

    former = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
