"""A user's wish to end: the first asks politely, the second does not wait.

`gentle`: current trials are cut short, torn down and their nodes restored. `abrupt`: nothing is waited for but one
restore of every node. A third signal gives up on that too and leaves restoring to the nodes' guards.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NAMES = ("no", "gentle", "abrupt", "let go")


class Stop:
    """How urgently the sweep is to end; any thread may ask, none can take it back."""

    def __init__(self) -> None:
        self._level = 0
        self.asked = threading.Event()

    def ask(self) -> str:
        """Ask once more; the name of the level now reached."""
        self._level = min(self._level + 1, len(NAMES) - 1)
        self.asked.set()
        return NAMES[self._level]

    def gentle(self) -> bool:
        """Somebody asked at least once."""
        return self._level >= 1

    def abrupt(self) -> bool:
        """Somebody asked at least twice."""
        return self._level >= 2

    def let_go(self) -> bool:
        """Somebody asked a third time."""
        return self._level >= 3


@contextmanager
def stop_on_signals(stop: Stop, announce: Callable[[str], None]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP ask `stop`; `announce` is told the level in the signal handler's thread."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        announce(stop.ask())

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
