"""How a sweep is asked to end: by signals, and by a terminal that is closed."""

import fcntl
import os
import pty
import signal
import subprocess
import termios

import pytest
from driven_home import MODEL, Home

from tokenpeak.node.machine import clock
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


@pytest.mark.faults
@pytest.mark.faults_ci
def test_closed_terminal_interrupts_the_sweep(home: Home) -> None:
    """Production is back, the trial can be made again, and the exit status is an interruption's, no failure's."""
    terminal, own = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(own, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        home.command("sweep", "--inventory", "lone", "--sweep", "pair", "--no-report"),
        env=home.environment,
        stdin=own,
        stdout=own,
        stderr=own,
        start_new_session=True,
        preexec_fn=take_terminal,
        pass_fds=(own,),
    )
    os.close(own)
    reader = subprocess.Popen(["cat"], stdin=terminal, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(terminal)
    assert clock.wait_until((home.state / "nodes" / "one" / "engine.json").exists, 150)
    reader.kill()
    reader.wait()
    status = process.wait(120)

    assert status in (129, 130), status
    assert MODEL == home.production_answers()
    assert "interrupted" == home.trials(home.archives()[-1])[-1]["status"]
