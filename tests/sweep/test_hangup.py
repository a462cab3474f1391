"""A terminal that is closed while a sweep runs in it: the sweep is torn down, and its exit status says so."""

import fcntl
import os
import pty
import subprocess
import termios

import pytest
from driven_home import MODEL, Home

from tokenpeak.node.machine import clock


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
