"""Production comes back although the state folder is torn, garbled, emptied or read-only."""

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.machine import clock, process
from tokenpeak.node.production import restore


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
    node.serve()
    launched = node.run("launch", node.launch_request("--worker", engine_stop_s=0.3))
    assert launched.get("ready"), launched
    assert not answers(node)
    return node


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
    borrowed.lapse()

    assert answers(borrowed)
    assert [] == list(borrowed.folder.glob("record*.json"))
    assert engine_ended(engine)
    outcome = borrowed.read("outcome.json")
    assert outcome["model"] == "prod"


def test_a_changed_byte_is_noticed(borrowed: Node) -> None:
    """A record that is JSON still, but not what was written, is not restored from."""
    path = borrowed.folder / "record.json"
    path.write_text(path.read_text().replace('"running": true', '"running": false'))
    borrowed.lapse()

    assert answers(borrowed)


@pytest.mark.parametrize("content", [b"\0" * 64, b'{"a": 1}'], ids=["zeros", "other keys"])
def test_nothing_readable_is_left(
    borrowed: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """Without any record the engine is ended all the same and production started as it is declared, said once."""
    engine = borrowed.read("engine.json")
    assert engine is not None
    borrowed.end_guard()
    for name in ("record", "engine", "lease"):
        for path in borrowed.folder.glob(f"{name}*.json"):
            path.write_bytes(content)
    monkeypatch.setattr(restore, "UNKNOWN_STOP_S", 0.3)
    borrowed.run("guard")

    assert answers(borrowed)
    assert [] == list(borrowed.folder.glob("record*.json"))
    assert engine_ended(engine)
    assert 1 == capsys.readouterr().err.count("was started as declared")
    outcome = borrowed.read("outcome.json")
    assert "record.json" in outcome["message"]


@pytest.mark.parametrize("content", [b"", b"{", None], ids=["empty", "torn", "gone"])
def test_declaration_that_cannot_be_read(node: Node, content: bytes | None) -> None:
    """Without a record nothing says what production is: no restoration calls that well, and each says what to do."""
    node.production()
    file = node.folder / "node.json"
    file.unlink() if content is None else file.write_bytes(content)

    restoration = node.run("restore")["restoration"]

    assert restoration["restored"] is None, restoration
    assert "has no production" not in restoration["message"]
    assert "node.json" in restoration["message"]
    assert "tokenpeak install" in restoration["message"]


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
    from tokenpeak.node.machine.state import State

    return State(node.folder).digest


def test_disk_that_turns_read_only(read_only: Node) -> None:
    """Giving the node back needs no write: engine ended, production started once; the trial's end knows by whom."""
    engine = read_only.read("engine.json")
    under = read_only.folder.parent / "copy" / "lease.json"
    under.write_text(json.dumps({**json.loads(under.read_text()), "renewed_boot_s": 0.0}))
    assert clock.wait_until(lambda: answers(read_only), 60, poll_s=0.1)
    assert clock.wait_until(lambda: engine_ended(engine), 60)
    started = process.marked(f"production-{digest(read_only)}")

    first, again = (read_only.run("finish", read_only.finish_request()) for _ in range(2))
    restoration = read_only.run("restore")["restoration"]

    assert ("guard", "guard") == (first["given_back_by"], again["given_back_by"])
    assert first["restoration"]["restored"]
    assert "could not be written down" in first["restoration"]["message"]
    assert restoration["restored"], restoration
    assert "cannot be removed" in restoration["message"]
    assert started == process.marked(f"production-{digest(read_only)}"), "and it was started once"
    assert answers(read_only)
    assert "guard" == finished_without_memory(read_only)["given_back_by"]


def finished_without_memory(node: Node) -> dict[str, object]:
    """The trial's end where the machine kept nothing in memory either: the lease has lapsed, and that is enough."""
    Path(f"/dev/shm/tokenpeak-{digest(node)}.json").unlink(missing_ok=True)
    return node.run("finish", node.finish_request())


def test_another_holders_heartbeats_renew_nothing(borrowed: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that had the node before keeps no dead one's lease alive, and nobody one that has lapsed."""
    before = borrowed.read("lease.json")
    of_another = borrowed.beat(monkeypatch, "sweep-0", "sweep-0")
    unchanged = before == borrowed.read("lease.json")
    borrowed.end_guard()
    borrowed.fall_silent()
    too_late = borrowed.beat(monkeypatch, "sweep-1")

    assert (0, 0) == (of_another["renewals"], too_late["renewals"])
    assert unchanged
    borrowed.run("guard")
    assert answers(borrowed)
