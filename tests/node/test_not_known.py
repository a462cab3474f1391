"""What could not be looked at is not called down, and its cause and remedy are said."""

import os
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import guard
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


@pytest.mark.parametrize("check", [["/nowhere/check"], ["sleep", "60"]], ids=["not there", "hangs"])
def test_a_check_that_says_nothing(node: Node, monkeypatch: pytest.MonkeyPatch, check: list[str]) -> None:
    """A check command that is not there, or does not end, does not say that production is down."""
    run = process.run
    monkeypatch.setattr(process, "run", lambda argv, *_: run(argv, 0.1))
    declared = {"manager": "command", "start": ["true"], "stop": ["true"], "check": check}

    with pytest.raises(ScriptError, match="did not say how production stands") as raised:
        make_manager(declared, State(node.folder)).is_running()
    assert NOT_SEEN == raised.value.code


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
