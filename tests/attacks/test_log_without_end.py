"""An engine prints without end, to fill the disk of the state folder.

Production that needs some room there did not come back, and later launches were refused. The log is cut out of its
middle while it grows, and to what is collected before production is started; its beginning and its end are kept.
"""

import base64
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.engine import bounded_log
from tokenpeak.node.guard import guard
from tokenpeak.node.machine.containers import Runtime
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import production

KEPT_BYTES = 1 << 14
DISK_BYTES = 1 << 20
LINE = b"%07d is a line of the engine's\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_log, "KEPT_BYTES", KEPT_BYTES)
    monkeypatch.setattr(bounded_log, "MOST_BYTES", 4 * KEPT_BYTES)


def lines(first: int, last: int) -> bytes:
    return b"".join(LINE % number for number in range(first, last))


def is_whole(log: bytes, last: int) -> bool:
    """Whether a log has its first and its last lines, and says how many bytes it has not."""
    found = bounded_log._MARK.search(log)
    assert found
    all_bytes = len(log) - len(found[0]) + int(found[1])
    return log.startswith(lines(0, 100)) and log.endswith(lines(last - 100, last)) and last * len(LINE % 0) == all_bytes


def test_log_that_is_being_written_is_cut(tmp_path: Path) -> None:
    """The very file that the engine has open, again and again, with an account of what is left out."""
    log = tmp_path / "engine.log"
    with log.open("ab", buffering=0) as engine:
        for turn in range(10):
            engine.write(lines(turn * 3000, (turn + 1) * 3000))
            bounded_log.bound(log)

            assert log.stat().st_size <= KEPT_BYTES
        engine.write(lines(30_000, 30_100))

    assert is_whole(log.read_bytes(), 30_100)


def test_small_log_is_left_alone(tmp_path: Path) -> None:
    """As is one that is not there."""
    log = tmp_path / "engine.log"
    log.write_bytes(b"x" * KEPT_BYTES)
    bounded_log.cut(log)
    bounded_log.cut(tmp_path / "none.log")

    assert b"x" * KEPT_BYTES == log.read_bytes()


def test_room_that_is_only_reserved(tmp_path: Path) -> None:
    """An engine can have the disk reserve room for its log, which shows in no length."""
    log = tmp_path / "engine.log"
    log.write_bytes(b"x" * 100)
    if shutil.which("fallocate") is None:
        pytest.skip("needs fallocate")
    if subprocess.run(["fallocate", "--keep-size", "-l", str(1 << 20), str(log)], check=False).returncode:
        pytest.skip("this file system reserves nothing")

    bounded_log.bound(log)

    assert b"x" * 100 == log.read_bytes()
    assert log.stat().st_blocks * 512 < 1 << 16


def test_guard_looks_at_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that it looks at the trial's deadlines."""
    node.run("launch", node.launch_request())
    node.end_guard()
    log = node.folder / "engine.log"
    log.write_bytes(lines(0, 10_000))

    def once(is_gone: Any, timeout_s: float) -> None:
        (node.folder / "record.json").unlink(missing_ok=True)
        (node.folder / "record.copy.json").unlink(missing_ok=True)

    guard.watch(State(node.folder), wait=once)

    assert is_whole(log.read_bytes(), 10_000)


def test_log_is_cut_before_production_is_started(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """To what is collected: production finds the room that the log had."""
    node.serve()
    node.run("launch", node.launch_request())
    log = node.folder / "engine.log"
    log.write_bytes(lines(0, 10_000))
    sizes = []
    bring_back = production.bring_back

    def started(*arguments: Any) -> Any:
        sizes.append(log.stat().st_size)
        return bring_back(*arguments)

    monkeypatch.setattr(production, "bring_back", started)
    finished = node.run("finish", node.finish_request())

    assert finished["restoration"]["restored"], finished
    assert sizes
    assert max(sizes) <= KEPT_BYTES
    assert is_whole(zlib.decompress(base64.b64decode(finished["log"])), 10_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("needs a disk of its own")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a disk of its own")
def test_disk_that_the_log_has_filled(disk: Path) -> None:
    """It is cut there too: that needs no room."""
    log = disk / "engine.log"
    with log.open("ab", buffering=0) as engine, pytest.raises(OSError, match="No space"):
        while engine.write(lines(0, 10_000)):
            continue

    bounded_log.bound(log)

    assert shutil.disk_usage(disk).free > DISK_BYTES - 4 * KEPT_BYTES
    assert log.read_bytes().startswith(lines(0, 100))


def test_log_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its runtime has kept is not put beside it whole."""
    log, runtime = tmp_path / "engine.log", Runtime("docker", None, "engine")
    script = "import sys; sys.stdout.writelines('%07d is a line\\n' % each for each in range(300_000))"
    monkeypatch.setattr(runtime, "command", lambda *words: ["/usr/bin/python3", "-c", script])

    runtime.write_log("0" * 64, log, 30)
    bounded_log.cut(log)

    assert log.stat().st_size <= KEPT_BYTES
    assert log.read_bytes().startswith(b"0000000 is a line\n0000001 is")
    assert log.read_bytes().endswith(b"0299999 is a line\n")
