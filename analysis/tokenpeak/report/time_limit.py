"""Time limit of a notebook: an alarm raises TimeoutError in its cells."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT_S = 600
"""Of a user's notebook, unless its metadata says otherwise; ours take some seconds."""
AGAIN_S = 10.0
"""Between alarms: a cell may catch the first."""


@contextmanager
def time_limit(limit_s: float | None) -> Iterator[None]:
    """In the block, TimeoutError after `limit_s` seconds; None: no limit.

    Only the main thread gets alarms; the block of another has no limit. A call into a compiled library ends first.
    """
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TimeoutError(f"it ran longer than {limit_s:g} s")

    former = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
