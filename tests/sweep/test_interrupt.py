"""How a sweep is asked to end."""

import os
import signal

from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals


def test_each_signal_is_more_urgent_than_the_one_before() -> None:
    """The first asks, the second aborts, the third lets go, and more change nothing."""
    interrupt = Interrupt()
    announced: list[str] = []
    with interrupt_on_signals(interrupt, announced.append):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(os.getpid(), number)

    assert ["gentle", "abrupt", "let go", "let go"] == announced
    assert interrupt.gentle()
    assert interrupt.abrupt()
    assert interrupt.let_go()
