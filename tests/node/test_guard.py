"""The node gives itself back: with the detached watchdog, as on a machine without systemd."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard.guard import unit_files
from tokenpeak.node.machine import clock, process, process_files
from tokenpeak.node.machine.process_files import command_lines
from tokenpeak.node.machine.state import State


def restored(node: Node, within_s: float = 60) -> bool:
    return clock.wait_until(lambda: node.read("record.json") is None, within_s, poll_s=0.05)


def test_silent_controller(node: Node) -> None:
    """When the lease lapses, the engine is ended and production answers again."""
    node.serve()
    launched = node.run("launch", node.launch_request())
    engine = node.read("engine.json")
    watchdog = node.read("guard.json")
    held = node.read("record.json") is not None
    node.fall_silent()

    assert launched["ready"]
    assert held
    assert restored(node)
    outcome = node.read("outcome.json")
    assert "guard" == outcome["by"]
    assert outcome["restored"]
    assert "prod" == outcome["model"]
    assert process.is_alive(engine) is False
    assert node.run("status")["production"]["running"]
    assert clock.wait_until(lambda: not process.is_alive(watchdog), 60), "the watchdog ends with its trial"


def test_guard_fires_while_launch_waits(node: Node) -> None:
    """A launch whose node is given back under it says so, though its controller hung up, and awaits no deadline."""
    node.serve()

    launching = node.start("launch", node.launch_request("--hang", deadline_s=600))
    assert clock.wait_until(lambda: node.read("engine.json") is not None, 60)
    launching.send_signal(signal.SIGHUP)
    node.fall_silent()
    launched = json.loads(launching.communicate(timeout=60)[0])

    assert (False, False) == (launched["ready"], launched["timed_out"])
    assert "guard gave the node back" in launched["message"]


def test_trial_deadline(node: Node) -> None:
    """A trial that goes on past its own deadline is ended though the controller lives."""
    node.run("launch", node.launch_request(lease_s=60, trial_deadline_s=100))
    record = node.read("record.json")
    left_s = record["deadline_boot_s"] - clock.boot_s()
    node.rewrite("record.json", {**record, "deadline_boot_s": record["deadline_boot_s"] - 100})

    assert 0 < left_s <= 100
    assert restored(node)


def test_guard_has_another_environment(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Production's command is found, and finds its home, though systemd starts the guard with neither."""
    flag = tmp_path / "flag"
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "start-production").write_text(f'#!/bin/sh\nprintf %s "$HOME" > {flag}\n')
    (tools / "start-production").chmod(0o755)
    login_path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{login_path}")
    monkeypatch.setenv("HOME", "/home/ops")
    node.declare(
        production={
            "manager": "command",
            "start": ["start-production"],
            "stop": ["rm", str(flag)],
            "check": ["test", "-e", str(flag)],
        }
    )
    flag.touch()
    node.run("launch", node.launch_request())
    record = node.read("record.json")
    node.end_guard()
    node.rewrite("record.json", {**record, "boot_id": "an earlier boot"})
    monkeypatch.setenv("PATH", login_path)
    monkeypatch.delenv("HOME")

    node.run("guard")

    assert node.read("record.json") is None
    assert "/home/ops" == flag.read_text()


def test_units_name_the_state_folder_whatever_it_is_called(tmp_path: Path) -> None:
    """What systemd would expand or unquote is escaped, so that the guard looks where the record is."""
    state = State.make(tmp_path / '100% "$HOME"')
    service = next(text for text in unit_files(state, ["/usr/bin/python3", "/a/b.pyz"]).values() if "Exec" in text)

    assert f'ConditionPathExistsGlob={tmp_path}/100%% "$HOME"/record*.json\n' in service
    assert f'"guard" "--state" "{tmp_path}/100%% \\"$$HOME\\""\n' in service


def with_guard_that(node: Node, does: str) -> None:
    """Put a script in place of the node's own that runs it, but for this when it is the guard."""
    real = node.bundle.rename(node.folder / "real.pyz")
    lines = [
        "import sys, time",
        "if 'guard' in sys.argv:",
        f"    {does}",
        f"sys.path.insert(0, {str(real)!r})",
        "from tokenpeak.node.__main__ import main",
        "sys.exit(main())",
    ]
    node.bundle.write_text("\n".join(lines))


def test_a_guard_that_ends_at_once_is_not_waited_for(node: Node) -> None:
    """Production goes on, and whoever asked for a trial learns at once what the guard said."""
    node.serve()
    with_guard_that(node, "sys.exit('no room for a guard here')")
    begun = time.monotonic()

    launched = node.run_script("launch", node.launch_request())

    assert 60 > time.monotonic() - begun
    assert "no room for a guard here" in launched["error"]["text"]
    assert node.run("status")["production"]["running"]


def guards_of(node: Node) -> int:
    """How many guards of this node live."""
    found = command_lines(process_files.pids()).values()
    return sum("guard" in words and str(node.folder) in words for words in found)


def test_a_guard_that_is_slow_to_start_is_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose cores are all busy: heartbeats are answered meanwhile, and start no second one."""
    go = node.folder / "go"
    with_guard_that(node, f"import os\n    while not os.path.exists({str(go)!r}): time.sleep(0.02)")
    launching = node.start("launch", node.launch_request())
    assert clock.wait_until(lambda: guards_of(node) == 1, 60)

    answer = node.beat(monkeypatch, "sweep-1", "sweep-1")
    watching = node.read("guard.json")
    go.touch()

    assert json.loads(launching.communicate(timeout=60)[0])["ready"]
    assert (2, None) == (answer["renewals"], watching)
    assert 1 == guards_of(node)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_guard_that_dies_and_leaves_no_word_is_replaced(
    node: Node, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """The guard is killed and its file is gone, production down or long armed: the next heartbeat starts another.

    At once: without a unit nothing else brings one back.
    """
    monkeypatch.setattr("tokenpeak.node.guard.guard._COMES_BACK_WITHIN_S", 60.0)
    node.serve()
    launched = node.run("launch", node.launch_request())
    assert launched.get("ready"), launched
    before, record = node.read("guard.json"), node.read("record.json")
    os.kill(before["pid"], signal.SIGKILL)
    (node.folder / "guard.json").unlink()
    if not is_stopped:
        del record["stopped"]
        record["armed_at_unix_s"] -= 120
    node.rewrite("record.json", record)
    began_s = time.monotonic()

    node.beat(monkeypatch, "sweep-1")

    after = node.read("guard.json")
    assert time.monotonic() - began_s < 60
    assert process.is_alive(after)
    assert before["pid"] != after["pid"]
