"""What could not be looked at is not called down, and its cause and remedy are said."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import guard
from tokenpeak.node.guard.guard import _attempt
from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import NOT_SEEN, ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.command import OwnProcessManager


def hangs(*_: object) -> bool:
    raise ScriptError(NOT_SEEN, "`supervisorctl status` did not end within 30 s.")


def test_a_manager_that_does_not_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether production is back is not known where its manager does not say; the record stays until it does."""
    node.serve()
    node.run("launch", node.launch_request())
    with monkeypatch.context() as patched:
        patched.setattr(OwnProcessManager, "is_running", hangs)
        unknown = node.run("restore")["restoration"]
    known = node.run("restore")["restoration"]

    assert unknown["restored"] is None, unknown
    assert "did not end within 30 s" in unknown["message"]
    assert known["restored"]


def test_the_probe_blames_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory in use is nobody else's where production could not be looked at, or while a trial runs."""
    from tokenpeak.node.probe import probe

    board = {
        "index": 0,
        "name": "L4",
        "uuid": "GPU-0",
        "vram_bytes": 24 << 30,
        "vram_used_bytes": 20 << 30,
        "mig": None,
    }
    monkeypatch.setattr(probe, "gpus", lambda: [board])
    monkeypatch.setattr(probe, "picked", lambda *_: None)
    monkeypatch.setattr(probe, "vram_holders", list)

    def blamed() -> list[str]:
        from tokenpeak.node.probe.probe import probe as probed

        state = State(node.folder)
        return [text for text in probed(state, state.declaration()).problems if "in use though" in text]

    node.production()
    idle = blamed()
    with monkeypatch.context() as patched:
        patched.setattr(OwnProcessManager, "is_running", hangs)
        not_seen = blamed()
    node.run("launch", node.launch_request())
    in_trial = blamed()

    assert 1 == len(idle)
    assert ([], []) == (not_seen, in_trial)


@pytest.mark.parametrize("check", [["/nowhere/check"], ["sleep", "60"]], ids=["not there", "hangs"])
def test_a_check_that_says_nothing(node: Node, monkeypatch: pytest.MonkeyPatch, check: list[str]) -> None:
    """A check command that is not there, or does not end, does not say that production is down."""
    run = process.run
    monkeypatch.setattr(process, "run", lambda argv, *_: run(argv, 0.1))
    declared = {"manager": "command", "start": ["true"], "stop": ["true"], "check": check}

    with pytest.raises(ScriptError, match="did not say how production stands") as raised:
        make_manager(declared, State(node.folder)).is_running()
    assert NOT_SEEN == raised.value.code


def test_the_guard_without_descriptors(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard says the cause and the remedy, not that production is not back, which it could not see."""
    node.run("launch", node.launch_request())
    node.end_guard()
    node.fall_silent()

    def refused(*_: object, **__: object) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(guard, "restore", refused)
        outcome = _attempt(State(node.folder), None)

    assert outcome.restored is None
    assert "ulimit -n" in outcome.message


def test_masked_guard(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard whose units somebody masked is named with what to do, also while another kind of guard watches."""
    state = State(node.folder)
    monkeypatch.setattr(guard, "UNITS", tmp_path)
    monkeypatch.setattr(guard, "has_systemd", lambda: True)
    assert guard.why_masked(state) is None
    unit = f"{guard.unit_name(state)}.service"
    (tmp_path / unit).symlink_to(os.devnull)

    assert f"systemctl unmask {unit}" in node.run("status")["problem"]
    with pytest.raises(ScriptError, match="masked"):
        guard.install(state)
