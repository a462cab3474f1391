import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import typed
from tokenpeak.errors import suggestion


def test_near_word_is_suggested() -> None:
    """A misspelling is answered with the words nearest to it."""
    assert "Did you mean restore?" == suggestion("restor", ["restore", "sweep", "plan"])


def test_far_word_lists_all() -> None:
    """A word like none of those known is answered with all of them, sorted."""
    assert "Known: plan, sweep." == suggestion("zzz", ["sweep", "plan"])


def test_nothing_known_is_said() -> None:
    """Where nothing is known, that is what is said."""
    assert "None is known." == suggestion("x", [])


def test_folder_that_cannot_be_written_is_named() -> None:
    """A state folder without access is one line that says what to do, not a traceback."""
    done = typed("probe", "--inventory", "sim", TOKENPEAK_STATE="/sys/tokenpeak")

    assert 1 == done.returncode
    assert done.stderr.startswith("tokenpeak: /sys/tokenpeak: ")
    assert done.stderr.endswith("or name another folder than /sys/tokenpeak by TOKENPEAK_STATE.\n")


def test_plain_c_locale_is_no_trouble(tmp_path: Path) -> None:
    """Ansible, which needs UTF-8, reads an inventory where cron or a script has set LC_ALL=C."""
    command = [Path(sys.executable).with_name("tokenpeak"), "plan", "--inventory", "sim", "--node", "none"]
    environment = {**os.environ, "LC_ALL": "C", "TOKENPEAK_STATE": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (
        "tokenpeak: Inventory sim has no node 'none'. Known: sim-a100, sim-a100-2, sim-h100, sim-h100-2.\n"
        == done.stderr
    )


def _fails(*_: object, **__: object) -> None:
    raise KeyError("model of 10.20.30.40")


def test_unexpected_error_is_a_line_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no command expected is one line and a file to send, without addresses, and has a status of its own."""
    monkeypatch.setattr("tokenpeak.cli.plan.read_inventory", _fails)
    done = typed("plan", "--inventory", "sim", TOKENPEAK_STATE=str(tmp_path))
    (file,) = (tmp_path / "defects").iterdir()
    written = file.read_text()

    assert 70 == done.returncode
    assert f"tokenpeak: a defect of TokenPeak's own, KeyError: 'model of 10.20.30.40'. Send {file}" in done.stderr
    assert 1 == done.stderr.count("\n")
    assert "tokenpeak plan --inventory sim" in written
    assert "analysis/tokenpeak/cli/plan.py" in written
    assert "10.20.30.40" not in written


def test_unexpected_error_is_printed_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place for the file, the traceback is printed: it is not lost."""
    monkeypatch.setattr("tokenpeak.cli.plan.read_inventory", _fails)
    done = typed("plan", "--inventory", "sim", TOKENPEAK_STATE="/sys/tokenpeak")

    assert 70 == done.returncode
    assert "Traceback" in done.stderr
    assert "Send the lines above" in done.stderr.splitlines()[-1]
