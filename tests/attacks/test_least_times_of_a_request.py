"""The tuner gives production a billionth of a second to answer, or the engine as little to end.

Production that loads was stopped and started anew by each try of the guard, for ever; production that served was not
asked, so that its record stayed; and systemd refused the engine only when production had been stopped.
"""

from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.engine import engine
from tokenpeak.node.guard.phases import Phases
from tokenpeak.node.machine import process
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import production
from tokenpeak.node.production.answering import Shortfall
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.managers.command import STARTED
from tokenpeak.node.protocol.requests import LaunchRequest

NO_TIME_S = 1e-9
URL = "http://127.0.0.1:9"


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.make(tmp_path / "state")


def recorded(declared: dict[str, Any]) -> dict[str, Any]:
    own = {"unit": None, "running": True, "url": declared["url"], "model": "m", "definition": {}}
    return {"manager": "command", **own, "declared": declared}


def test_production_that_loads(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started once, and the next tries wait for that start."""
    for name in ("start", "stop"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/done\n")
        (tmp_path / name).chmod(0o755)
    declared = {"manager": "command", "url": URL, "start": [f"{tmp_path}/start"], "stop": [f"{tmp_path}/stop"]}

    for _ in range(3):
        wrong = production.bring_back(recorded(declared), state, NO_TIME_S, Phases(state))
        assert wrong is not None

    assert ["start"] == (tmp_path / "done").read_text().split()
    assert state.has(STARTED)
    assert make_manager(declared, state).is_running()


@pytest.mark.parametrize(("answer_s", "is_back"), [(0.0, True), (29.0, True), (31.0, False)])
def test_production_that_serves(answer_s: float, is_back: bool, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked, and has time for its answer."""

    def wrong(_self: object, _model: str | None, _check: object, timeout_s: float) -> str | None:
        return None if answer_s < timeout_s else "timed out"

    monkeypatch.setattr("tokenpeak.node.production.answering.Answering.served_model", lambda *_, **__: "m")
    monkeypatch.setattr("tokenpeak.node.production.answering.Answering.wrong", wrong)
    monkeypatch.setattr("tokenpeak.node.production.managers.own_process.OwnProcessManager.is_running", lambda _: True)
    declared = {"manager": "command", "url": URL, "process": {"argv": ["/bin/true"]}}

    shortfall: Shortfall | None = production.await_answer(recorded(declared), state, NO_TIME_S)

    assert is_back == (shortfall is None), shortfall


@pytest.mark.parametrize(
    ("given_s", "expected"), [(NO_TIME_S, "1"), (0.3, "1"), (1.5, "1.5"), (90, "90"), (2_000_000, "2000000")]
)
def test_engine_that_ends_at_once(given_s: float, expected: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit has a time that systemd takes."""
    commands: list[list[str]] = []

    def noted(argv: list[str], **_: object) -> process.Ran:
        commands.append(argv)
        return process.Ran(0, "MainPID=1\n", "")

    monkeypatch.setattr(engine, "has_systemd", lambda: True)
    monkeypatch.setattr(process, "run", noted)
    times = {"deadline_s": 60, "lease_s": 60, "trial_deadline_s": 600, "engine_stop_s": given_s}
    request = LaunchRequest(trial_id="a", holder="h", argv=["/bin/true"], env={}, served_model="m", **times)

    engine.Engine(state).start(request, {}, {}, None)

    assert f"--property=TimeoutStopSec={expected}" in next(each for each in commands if each[0] == "systemd-run")
