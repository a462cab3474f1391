"""Production comes back although the state folder is torn, garbled, emptied or read-only."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node import clock, process

GARBAGE = {"garbled": b"\x00\xff not json {{", "empty": b"", "a list": b"[1]", "other keys": b'{"a": 1}'}


def answers(node: Node) -> bool:
    """Whether production itself gives a completion."""
    url = node.declaration["production"]["url"]
    body = json.dumps({"model": "prod", "prompt": "x", "max_tokens": 1}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body), timeout=2) as response:
            return bool(json.load(response)["model"] == "prod")
    except OSError:
        return False


def engine_ended(engine: dict[str, object]) -> bool:
    """Whether nothing is left of the engine, by the kernel."""
    return not process.members(engine)


@pytest.fixture
def borrowed(node: Node) -> Node:
    """A node whose trial is under way."""
    node.production()
    node.run("produce")
    launched = node.run("launch", node.launch_request("--worker", lease_s=60, engine_stop_s=2))
    assert launched["ready"], launched
    assert not answers(node)
    return node


def fall_silent(node: Node) -> None:
    """The controller was last heard of before its lease."""
    lease = node.read("lease.json")
    assert lease is not None
    node.rewrite("lease.json", {**lease, "renewed_boot_s": lease["renewed_boot_s"] - 100})


@pytest.mark.parametrize("content", GARBAGE.values(), ids=list(GARBAGE))
def test_lease_that_cannot_be_read_has_lapsed(borrowed: Node, content: bytes) -> None:
    """The guard gives the node back; it does not wait for a lease that nobody can read."""
    (borrowed.folder / "lease.json").write_bytes(content)

    assert clock.wait_until(lambda: answers(borrowed), 40, poll_s=0.2)
    assert clock.wait_until(lambda: borrowed.read("record.json") is None, 10)


@pytest.mark.parametrize(
    ("name", "keep"), [("record.json", 0.5), ("record.copy.json", 0.0), ("engine.json", 0.5), ("engine.json", 0.0)]
)
def test_one_torn_file_does_not_matter(borrowed: Node, name: str, keep: float) -> None:
    """Of what production cannot come back without there are two copies."""
    engine = borrowed.read("engine.json")
    assert engine is not None
    torn = borrowed.folder / name
    raw = torn.read_bytes()
    torn.write_bytes(raw[: int(len(raw) * keep)])
    fall_silent(borrowed)

    assert clock.wait_until(lambda: answers(borrowed), 40, poll_s=0.2)
    assert clock.wait_until(lambda: not list(borrowed.folder.glob("record*.json")), 10)
    assert engine_ended(engine)
    outcome = borrowed.read("outcome.json")
    assert outcome is not None
    assert outcome["model"] == "prod"


def test_a_changed_byte_is_noticed(borrowed: Node) -> None:
    """A record that is JSON still, but not what was written, is not restored from."""
    path = borrowed.folder / "record.json"
    path.write_text(path.read_text().replace('"running": true', '"running": false'))
    fall_silent(borrowed)

    assert clock.wait_until(lambda: answers(borrowed), 40, poll_s=0.2)


@pytest.mark.parametrize("content", [b"\0" * 64, b'{"a": 1}'], ids=["zeros", "other keys"])
def test_nothing_readable_is_left(borrowed: Node, content: bytes) -> None:
    """Without any record the engine is ended all the same and production started as it is declared, said once."""
    engine = borrowed.read("engine.json")
    assert engine is not None
    for name in ("record", "engine", "lease"):
        for path in borrowed.folder.glob(f"{name}*.json"):
            path.write_bytes(content)

    assert clock.wait_until(lambda: answers(borrowed), 40, poll_s=0.2)
    assert clock.wait_until(lambda: not list(borrowed.folder.glob("record*.json")), 10)
    assert engine_ended(engine)

    def times_said() -> int:
        return (borrowed.folder / "guard.log").read_text().count("was started as declared")

    # The guard writes its log after the record is gone.
    assert clock.wait_until(lambda: times_said() > 0, 10)
    assert times_said() == 1
    outcome = borrowed.read("outcome.json")
    assert outcome is not None
    assert "record.json" in outcome["message"]


def test_restore_for_a_holder_whose_record_is_garbage(borrowed: Node) -> None:
    """The sweep's own restoration, not the guard's alone, gets by a record that cannot be read."""
    guard = borrowed.read("guard.json")
    assert guard is not None
    os.kill(guard["pid"], signal.SIGKILL)
    for path in borrowed.folder.glob("record*.json"):
        path.write_bytes(b"{")

    restoration = borrowed.run("restore", {"holder": "sweep-1"})["restoration"]

    assert restoration["restored"], restoration
    assert answers(borrowed)


def test_files_deleted_while_the_controller_lives(borrowed: Node) -> None:
    """`finish` ends an engine of which every file is gone, and status 0 is not said while production is down."""
    engine = borrowed.read("engine.json")
    assert engine is not None
    for path in [*borrowed.folder.glob("engine*.json"), borrowed.folder / "record.json"]:
        path.unlink()

    restoration = borrowed.run("finish", borrowed.finish_request())["restoration"]

    assert restoration["restored"], restoration
    assert answers(borrowed)
    assert engine_ended(engine)


@pytest.fixture
def read_only(borrowed: Node, tmp_path: Path) -> Iterator[Node]:
    """The trial's state folder as a disk that has turned read-only."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a read-only folder")
    copy = tmp_path / "copy"
    shutil.copytree(borrowed.folder, copy, symlinks=True)
    subprocess.run(["mount", "--bind", str(copy), str(borrowed.folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(borrowed.folder)], check=True)
    try:
        yield borrowed
    finally:
        Path(f"/dev/shm/tokenpeak-{digest(borrowed)}.json").unlink(missing_ok=True)
        # Production was started from here: it is known by its record below the mount, or by its mark.
        subprocess.run(["umount", "--lazy", str(borrowed.folder)], check=True)
        for pid in process.marked(f"production-{digest(borrowed)}"):
            os.kill(pid, signal.SIGKILL)


def digest(node: Node) -> str:
    from tokenpeak.node.state import State

    return State(node.folder).digest


def test_disk_that_turns_read_only(read_only: Node) -> None:
    """Giving the node back needs no write: engine ended, production started, and it stays up."""
    engine = read_only.read("engine.json")
    assert engine is not None
    under = read_only.folder.parent / "copy" / "lease.json"
    under.write_text(json.dumps({**json.loads(under.read_text()), "renewed_boot_s": 0.0}))

    assert clock.wait_until(lambda: answers(read_only), 40, poll_s=0.2)
    assert clock.wait_until(lambda: engine_ended(engine), 10)
    restoration = read_only.run("restore")["restoration"]
    assert restoration["restored"], restoration
    assert "cannot be removed" in restoration["message"]
    assert answers(read_only)
    started = process.marked(f"production-{digest(read_only)}")
    assert started, "and it was started once"


def test_an_outage_that_a_broken_disk_could_not_note_keeps_its_length(read_only: Node) -> None:
    """Asked again later, the node says how long production was down, not how long ago it was stopped."""
    first = read_only.run("restore")["restoration"]
    time.sleep(3)
    again = read_only.run("restore")["restoration"]

    assert first["restored"]
    assert first["downtime_s"] == again["downtime_s"]


def test_another_holders_heartbeats_renew_nothing(borrowed: Node) -> None:
    """A controller that had the node before keeps no dead one's lease alive."""
    argv = [sys.executable, str(borrowed.bundle), "lease", "--state", str(borrowed.folder)]
    channel = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert channel.stdin

    def beat() -> bool:
        assert channel.stdin
        channel.stdin.write('{"number": 1, "holder": "sweep-0"}\n')
        channel.stdin.flush()
        return borrowed.read("record.json") is None

    lease = borrowed.read("lease.json")
    assert lease is not None
    borrowed.rewrite("lease.json", {**lease, "lease_s": 3, "renewed_boot_s": clock.boot_s()})
    try:
        assert clock.wait_until(beat, 15, poll_s=0.3)
    finally:
        out, _ = channel.communicate()
    assert '"renewals": 0' in out
    assert clock.wait_until(lambda: answers(borrowed), 10, poll_s=0.2)
