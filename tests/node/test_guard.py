"""The node gives itself back: with the detached watchdog, as on a machine without systemd."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node import clock, process
from tokenpeak.node.guard import unit_files
from tokenpeak.node.state import State


def restored(node: Node, within_s: float = 15) -> bool:
    return clock.wait_until(lambda: node.read("record.json") is None, within_s, poll_s=0.05)


def test_silent_controller(node: Node) -> None:
    """When the lease lapses, the engine is ended and production answers again."""
    node.production()
    node.run("produce")
    launched = node.run("launch", node.launch_request(lease_s=6))
    engine = node.read("engine.json")
    guard = node.read("guard.json")

    assert launched["ready"]
    assert restored(node)
    outcome = node.read("outcome.json")
    assert outcome is not None
    assert "guard" == outcome["by"]
    assert outcome["restored"]
    assert "prod" == outcome["model"]
    assert process.is_alive(engine) is False
    assert node.run("status")["production"]["running"]
    assert clock.wait_until(lambda: not process.is_alive(guard), 5), "the watchdog ends with its trial"


def test_launch_killed_midway(node: Node) -> None:
    """A launch that is killed while the engine starts leaves nothing behind once the lease has lapsed."""
    node.production()
    node.run("produce")
    launching = node.start("launch", node.launch_request("--hang", "--worker", lease_s=2, deadline_s=60))
    assert clock.wait_until(lambda: "worker" in read_log(node) and node.read("engine.json") is not None, 30)
    engine = node.read("engine.json")
    assert engine is not None
    group = process.members(engine)

    launching.kill()
    launching.communicate()

    assert restored(node)
    assert [] == [pid for pid in group if process.stat_of(pid)]
    assert node.run("status")["production"]["running"]


def read_log(node: Node) -> str:
    path = node.folder / "engine.log"
    return path.read_text() if path.exists() else ""


def test_guard_fires_while_launch_waits(node: Node) -> None:
    """A launch whose node is given back under it says so instead of waiting for its deadline."""
    node.production()
    node.run("produce")

    launched = node.run("launch", node.launch_request("--hang", lease_s=1.5, deadline_s=60))

    assert (False, False) == (launched["ready"], launched["timed_out"])
    assert "guard gave the node back" in launched["message"]


def test_lease_is_renewed(node: Node) -> None:
    """As long as lines come on the lease's channel, the node is not given back."""
    node.run("launch", node.launch_request(lease_s=4))
    channel = subprocess.Popen(
        [sys.executable, str(node.bundle), "lease", "--state", str(node.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert channel.stdin
    until = time.monotonic() + 8
    while time.monotonic() < until:
        channel.stdin.write('{"number": 1, "holder": "sweep-1"}\n')
        channel.stdin.flush()
        time.sleep(0.3)
    held = node.read("record.json") is not None
    out, _ = channel.communicate()

    assert held
    assert '"renewals"' in out
    assert restored(node), "and once they stop, it is"


def test_restoring_twice(node: Node) -> None:
    """Whoever restores second finds nothing to do."""
    node.production()
    node.run("produce")
    node.run("launch", node.launch_request())

    first = node.run("restore")["restoration"]
    production = node.read("production.json")
    second = node.run("restore")["restoration"]

    assert (True, True) == (first["restored"], second["restored"])
    assert production == node.read("production.json"), "production was not started again"
    assert "No trial has this node. Production (command) runs and serves prod. It was given" in second["message"]


def test_finish_after_the_guard(node: Node) -> None:
    """A controller that comes back late learns that the guard was there before it."""
    node.production()
    node.run("produce")
    node.run("launch", node.launch_request(lease_s=1))
    assert restored(node)

    restoration = node.run("finish", node.finish_request())["restoration"]

    assert restoration["restored"]
    assert restoration["was_running"]
    assert "prod" == restoration["model"]
    assert "Given back by guard" in restoration["message"]


def test_production_that_refuses_once(node: Node) -> None:
    """The guard keeps trying until production answers."""
    declared = node.production()
    node.run("produce")
    # Long enough to put another program into the record before the guard acts.
    node.run("launch", node.launch_request(lease_s=6))
    working = declared["process"]["argv"]
    record = node.read("record.json")
    assert record is not None
    executable = node.folder / "sometimes"
    executable.write_text("#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    record["production"]["declared"]["process"]["argv"] = [str(executable), *working]
    node.rewrite("record.json", record)
    assert clock.wait_until(lambda: node.read("outcome.json") is not None, 30)
    failed = node.read("outcome.json")
    executable.write_text('#!/bin/sh\nexec "$@"\n')

    assert failed is not None
    assert failed["restored"] is False
    assert restored(node)
    assert node.run("status")["production"]["running"]


def test_guard_that_cannot_write_its_log(node: Node) -> None:
    """On a full disk the watchdog cannot log that it gives the node back, and does so all the same."""
    node.production()
    node.run("produce")
    (node.folder / "guard.log").symlink_to("/dev/full")

    node.run("launch", node.launch_request(lease_s=1))

    assert restored(node)


def test_watchdog_killed(node: Node) -> None:
    """`finish` needs no guard, and a launch sees that one watches."""
    node.run("launch", node.launch_request(trial_id="0000-a"))
    guard = node.read("guard.json")
    assert guard is not None
    os.kill(guard["pid"], signal.SIGKILL)
    assert clock.wait_until(lambda: not process.is_alive(guard), 5)
    node.run("finish", node.finish_request(trial_id="0000-a", restore_production=False))

    node.run("launch", node.launch_request(trial_id="0001-b"))

    assert node.run("status")["guard_alive"]


def test_trial_deadline(node: Node) -> None:
    """A trial that goes on past its own deadline is ended though the controller lives."""
    node.run("launch", node.launch_request(lease_s=60, trial_deadline_s=1.5))

    assert restored(node)


def test_reboot(node: Node) -> None:
    """A record of an earlier boot is restored at once, whatever its lease said."""
    node.production()
    node.run("produce")
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
    node.production()
    node.run("produce")
    node.run("launch", node.launch_request(lease_s=600))
    record = node.read("record.json")
    assert record is not None
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
    guard, record = node.read("guard.json"), node.read("record.json")
    assert guard is not None
    assert record is not None
    os.kill(guard["pid"], signal.SIGKILL)
    node.rewrite("record.json", {**record, "boot_id": "an earlier boot"})
    monkeypatch.setenv("PATH", login_path)
    monkeypatch.delenv("HOME")

    node.run("guard")

    assert node.read("record.json") is None
    assert "/home/ops" == flag.read_text()


def test_guard_follows_the_next_trial(node: Node) -> None:
    """A watch that still lives when the next trial begins watches that one, instead of ending with the one before."""
    node.run("launch", node.launch_request())
    guard, record = node.read("guard.json"), node.read("record.json")
    assert guard is not None
    assert record is not None

    node.rewrite("record.json", {**record, "nonce": "another"})

    assert clock.wait_until(lambda: (node.read("guard.json") or {}).get("nonce") == "another", 10)
    assert guard["pid"] == (node.read("guard.json") or {})["pid"]
    assert node.run("status")["guard_alive"]


def test_launch_after_a_lease_that_lapsed(node: Node) -> None:
    """A trial that the guard is about to end is given back first; the next one begins from a production that serves."""
    node.production()
    node.run("produce")
    node.run("launch", node.launch_request(trial_id="0000-a"))
    guard, before = node.read("guard.json"), node.read("record.json")
    assert guard is not None
    os.kill(guard["pid"], signal.SIGKILL)
    lease = node.read("lease.json")
    assert lease is not None
    node.rewrite("lease.json", {**lease, "renewed_boot_s": lease["renewed_boot_s"] - 60})

    launched = node.run("launch", node.launch_request(trial_id="0001-b"))
    outcome, record = node.read("outcome.json"), node.read("record.json")

    assert launched["ready"]
    assert outcome is not None
    assert record is not None
    assert "0000-a" == outcome["trial_id"]
    assert "launch" == outcome["by"]
    assert outcome["restored"]
    assert before is not None
    assert before["nonce"] != record["nonce"]
    assert node.run("status")["production"]["running"] is False


def test_launch_after_one_that_died_before_production_had_ended(node: Node) -> None:
    """The next trial of the sweep ends production itself; no engine starts beside it."""
    node.production()
    node.run("produce")
    node.run("launch", node.launch_request(trial_id="0000-a"))
    record = node.read("record.json")
    lock = node.read("lock.json")
    node.run("restore")
    assert record is not None
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
    """Production goes on, and whoever asked for a trial learns within seconds what the guard said."""
    node.production()
    node.run("produce")
    with_guard_that(node, "sys.exit('no room for a guard here')")
    begun = time.monotonic()

    launched = node.run("launch", node.launch_request())

    assert 10 > time.monotonic() - begun
    assert "no room for a guard here" in launched["error"]["text"]
    assert node.run("status")["production"]["running"]


def guards_of(node: Node) -> int:
    """How many guards of this node live."""
    found = [path.read_bytes().decode().split("\0") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return sum("guard" in words and str(node.folder) in words for words in found)


def test_a_guard_that_is_slow_to_start_is_waited_for(node: Node) -> None:
    """As on a machine whose cores are all busy: heartbeats are answered meanwhile, and start no second one."""
    with_guard_that(node, "time.sleep(8)")
    launching = node.start("launch", node.launch_request())
    assert clock.wait_until(lambda: node.read("record.json") is not None, 10)
    beats = subprocess.Popen(
        [sys.executable, str(node.bundle), "lease", "--state", str(node.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert beats.stdin and beats.stdout
    heard = []
    for number in range(1, 9):
        beats.stdin.write(f'{{"number": {number}, "holder": "sweep-1"}}\n')
        beats.stdin.flush()
        heard.append("heard" in json.loads(beats.stdout.readline()))
        time.sleep(1)

    assert json.loads(launching.communicate(timeout=60)[0])["ready"]
    assert [True] * 8 == heard
    assert 1 == guards_of(node)
    beats.communicate("")


def test_a_guard_that_dies_and_leaves_no_word_is_replaced(node: Node) -> None:
    """Production is down, the guard is killed and its file is gone: the next heartbeat starts another at once."""
    node.production()
    node.run("produce")
    node.run("launch", node.launch_request())
    guard = node.read("guard.json")
    assert guard is not None
    os.kill(guard["pid"], signal.SIGKILL)
    (node.folder / "guard.json").unlink()
    (node.folder / "guard.copy.json").unlink(missing_ok=True)

    beat = node.start("lease", {"number": 1, "holder": "sweep-1"})
    beat.communicate(timeout=60)

    assert clock.wait_until(lambda: guards_of(node) == 1, 10)
