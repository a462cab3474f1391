"""Interrupt of a sweep by its user: the first signal ends it gently, the second does not wait.

`gentle`: current trials are cut short, torn down and their nodes restored. `abrupt`: nothing is waited for but one
restore of every node. A third signal gives up on that too and leaves restoring to the nodes' guards.
"""

import errno
import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NAMES = ("no", "gentle", "abrupt", "let go")


class Interrupt:
    """How urgently the sweep is to end; any thread may ask, none can take it back."""

    def __init__(self) -> None:
        self._level = 0
        self.asked = threading.Event()
        self.fenced: str | None = None
        """Why nothing may be touched any more: another controller has the sweep."""

    def ask(self) -> str:
        """Raise the level by one and return its name."""
        self._level = min(self._level + 1, len(NAMES) - 1)
        self.asked.set()
        return NAMES[self._level]

    def fence(self, reason: str) -> None:
        """End at once and leave everything to the controller that has the sweep now."""
        self.fenced = self.fenced or reason
        self._level = len(NAMES) - 1
        self.asked.set()

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
def interrupt_on_signals(interrupt: Interrupt, announce: Callable[[str], None]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise `interrupt`; `announce` gets the level in the signal handler's thread.

    Once the terminal is closed, what is printed there goes nowhere, and ends nothing.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_closed_terminal()
        announce(interrupt.ask())

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_closed_terminal() -> None:
    """Point standard output and error at nothing where they are a closed terminal: a write there raises EIO."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
