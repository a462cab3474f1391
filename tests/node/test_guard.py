"""The node gives itself back: with the detached watchdog, as on a machine without systemd."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import guard
from tokenpeak.node.guard.guard import unit_files
from tokenpeak.node.machine import clock, process, process_files
from tokenpeak.node.machine.process_files import command_lines
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import production


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


def test_launch_killed_midway(node: Node) -> None:
    """A launch that is killed while the engine starts leaves nothing behind once the lease has lapsed."""
    node.serve()
    launching = node.start("launch", node.launch_request("--hang", "--worker", deadline_s=600, engine_stop_s=0.5))
    assert clock.wait_until(lambda: "worker" in read_log(node) and node.read("engine.json") is not None, 60)
    engine = node.read("engine.json")
    group = process.members(engine)
    folder = Path(f"/proc/{engine['pid']}/cwd").readlink()

    launching.kill()
    launching.communicate()
    node.fall_silent()

    assert restored(node)
    assert [] == [pid for pid in group if process_files.stat_of(pid)]
    assert Path("/") == folder, "an engine takes nothing from the folder of whoever asked for it"
    assert node.run("status")["production"]["running"]


def read_log(node: Node) -> str:
    path = node.folder / "engine.log"
    return path.read_text() if path.exists() else ""


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


def test_lease_is_renewed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the holder's on the lease's channel is as good as a new lease; without one the node is given back."""
    node.run("launch", node.launch_request(lease_s=60))
    lapsing = node.read("lease.json")
    node.rewrite("lease.json", {**lapsing, "renewed_boot_s": lapsing["renewed_boot_s"] - 50})

    answer = node.beat(monkeypatch, "sweep-1", "sweep-1")
    renewed = node.read("lease.json")
    held = node.read("record.json") is not None
    node.fall_silent()

    assert held
    assert 2 == answer["renewals"]
    assert lapsing["renewed_boot_s"] < renewed["renewed_boot_s"]
    assert restored(node), "and once they stop, it is"


def test_restoring_twice(node: Node) -> None:
    """Whoever restores second finds nothing to do."""
    node.serve()
    node.run("launch", node.launch_request())

    first = node.run("restore")["restoration"]
    production = node.read("production.json")
    second = node.run("restore")["restoration"]

    assert (True, True) == (first["restored"], second["restored"])
    assert production == node.read("production.json"), "production was not started again"
    assert "No trial has this node. Production (command) runs and serves prod. It was given" in second["message"]


def test_finish_after_the_guard(node: Node) -> None:
    """A controller that comes back late learns that the guard was there before it."""
    node.serve()
    node.run("launch", node.launch_request())
    node.fall_silent()
    assert restored(node)

    restoration = node.run("finish", node.finish_request())["restoration"]

    assert restoration["restored"]
    assert restoration["was_running"]
    assert "prod" == restoration["model"]
    assert "Given back by guard" in restoration["message"]


def test_production_that_refuses_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard keeps trying until production answers."""
    monkeypatch.setattr(production, "_START_PAUSE_S", 0.0)
    node.serve()
    node.run("launch", node.launch_request())
    start = node.production_starts_by()
    outcomes = []

    def wait(*_: object) -> None:
        outcomes.append(node.read("outcome.json"))
        start.chmod(0o755)

    monkeypatch.setattr(guard, "watch", partial(guard.watch, wait=wait))
    node.lapse()

    failed, done = outcomes
    assert failed is not None
    assert done is not None
    assert (False, True) == (failed["restored"], done["restored"])
    assert "start" in failed["message"]
    assert node.run("status")["production"]["running"]


def test_guard_that_cannot_write_its_log(node: Node) -> None:
    """On a full disk the watchdog cannot log that it gives the node back, and does so all the same."""
    node.serve()
    (node.folder / "guard.log").symlink_to("/dev/full")

    node.run("launch", node.launch_request())
    node.fall_silent()

    assert restored(node)


def test_watchdog_killed(node: Node) -> None:
    """`finish` needs no guard, and a launch sees that one watches."""
    node.run("launch", node.launch_request(trial_id="0000-a"))
    node.end_guard()
    node.run("finish", node.finish_request(trial_id="0000-a", restore_production=False))

    node.run("launch", node.launch_request(trial_id="0001-b"))

    assert node.run("status")["guard_alive"]


def test_trial_deadline(node: Node) -> None:
    """A trial that goes on past its own deadline is ended though the controller lives."""
    node.run("launch", node.launch_request(lease_s=60, trial_deadline_s=100))
    record = node.read("record.json")
    left_s = record["deadline_boot_s"] - clock.boot_s()
    node.rewrite("record.json", {**record, "deadline_boot_s": record["deadline_boot_s"] - 100})

    assert 0 < left_s <= 100
    assert restored(node)


def test_reboot(node: Node) -> None:
    """A record of an earlier boot is restored at once, whatever its lease said."""
    node.serve()
    node.run("launch", node.launch_request(lease_s=600))
    for name in ("record.json", "lease.json"):
        content = node.read(name)
        assert content is not None
        node.rewrite(name, {**content, "boot_id": "an earlier boot"})

    assert restored(node)
    assert node.run("status")["production"]["running"]


@pytest.mark.parametrize("left", [b"", bytes(64)], ids=["empty", "zeros"])
def test_power_loss_while_the_engine_started(node: Node, left: bytes) -> None:
    """What was not written durably may be empty or zeros after a power loss; production comes back all the same."""
    node.serve()
    node.run("launch", node.launch_request(lease_s=600))
    record = node.read("record.json")
    for name in ("telemetry.json", "lease.json", "output.json"):
        (node.folder / name).write_bytes(left)
    node.rewrite("record.json", {**record, "boot_id": "an earlier boot"})

    assert restored(node)
    assert node.run("status")["production"]["running"]


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


def test_guard_follows_the_next_trial(node: Node) -> None:
    """A watch that still lives when the next trial begins watches that one, instead of ending with the one before."""
    node.run("launch", node.launch_request())
    watchdog, record = node.read("guard.json"), node.read("record.json")

    node.rewrite("record.json", {**record, "nonce": "another"})

    assert clock.wait_until(lambda: (node.read("guard.json") or {}).get("nonce") == "another", 60)
    assert watchdog["pid"] == (node.read("guard.json") or {})["pid"]
    assert node.run("status")["guard_alive"]


def test_launch_after_a_lease_that_lapsed(node: Node) -> None:
    """A trial that the guard is about to end is given back first; the next one begins from a production that serves."""
    node.serve()
    first = node.run("launch", node.launch_request(trial_id="0000-a"))
    assert first["ready"], first
    before = node.read("record.json")
    node.end_guard()
    node.fall_silent()

    launched = node.run("launch", node.launch_request(trial_id="0001-b"))
    outcome, record = node.read("outcome.json"), node.read("record.json")

    assert launched["ready"]
    assert "0000-a" == outcome["trial_id"]
    assert "launch" == outcome["by"]
    assert outcome["restored"]
    assert before["nonce"] != record["nonce"]
    assert node.run("status")["production"]["running"] is False


def test_launch_after_one_that_died_before_production_had_ended(node: Node) -> None:
    """The next trial of the sweep ends production itself; no engine starts beside it."""
    node.serve()
    node.run("launch", node.launch_request(trial_id="0000-a"))
    record = node.read("record.json")
    lock = node.read("lock.json")
    node.run("restore", {"release": True})
    unfinished = {key: value for key, value in record.items() if key not in ("baseline_bytes", "stopped")}
    node.rewrite("record.json", unfinished)
    node.rewrite("lock.json", lock)

    launched = node.run("launch", node.launch_request(trial_id="0001-b"))
    during = node.run("status")["production"]["running"]
    finished = node.run("finish", node.finish_request(trial_id="0001-b"))

    assert (True, False) == (launched["ready"], during)
    assert finished["restoration"]["restored"]


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


def test_script_is_replaced_under_the_guard(node: Node) -> None:
    """Another script in the place of its own, as a renewal puts it there, ends no guard in a traceback."""
    node.run("launch", node.launch_request())
    node.end_guard()
    guarding = node.start("guard")
    assert clock.wait_until(lambda: process.is_alive(node.read("guard.json")), 60)
    other = node.folder / "other"
    other.write_bytes(b"another version" * 100)

    other.replace(node.bundle)
    node.fall_silent()
    out, err = guarding.communicate(timeout=60)

    assert "Traceback" not in err
    assert 0 == guarding.returncode
    assert json.loads(out)["watched"]
