"""How a sweep is asked to end."""

import os
import signal

from tokenpeak.drive.stop import Stop, stop_on_signals


def test_each_signal_is_more_urgent_than_the_one_before() -> None:
    """The first asks, the second aborts, the third lets go, and more change nothing."""
    stop = Stop()
    told: list[str] = []
    with stop_on_signals(stop, told.append):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(os.getpid(), number)

    assert ["gentle", "abrupt", "let go", "let go"] == told
    assert (True, True, True) == (stop.gentle(), stop.abrupt(), stop.let_go())


def test_handlers_are_put_back() -> None:
    """After a sweep, Ctrl-C means what it meant before."""
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(Stop(), lambda _: None):
        assert before != signal.getsignal(signal.SIGINT)

    assert before == signal.getsignal(signal.SIGINT)
