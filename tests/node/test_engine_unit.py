"""The engine as a systemd unit."""

from pathlib import Path

import pytest

from tokenpeak.node.engine import engine
from tokenpeak.node.machine import process
from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol.requests import LaunchRequest, as_json


@pytest.mark.parametrize("engine_stop_s", [1.5, 90.0])
def test_systemd_waits_as_long_as_the_request_says(
    engine_stop_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that needs its whole grace to end is not killed by its unit before, nor left longer."""
    commands: list[list[str]] = []

    def recorded(argv: list[str], **_: object) -> process.Ran:
        commands.append(argv)
        return process.Ran(0, "MainPID=1\n", "")

    monkeypatch.setattr(engine, "has_systemd", lambda: True)
    monkeypatch.setattr(process, "run", recorded)
    tmp_path.chmod(0o700)
    request = LaunchRequest(
        trial_id="0001-abcdef12",
        holder="sweep",
        argv=["/bin/true"],
        env={},
        served_model="m",
        deadline_s=60,
        lease_s=60,
        trial_deadline_s=600,
        engine_stop_s=engine_stop_s,
    )
    engine.Engine(State(tmp_path)).start(as_json(request), {}, {}, None)
    (command,) = [command for command in commands if command[0] == "systemd-run"]

    assert f"--property=TimeoutStopSec={engine_stop_s:g}" in command
