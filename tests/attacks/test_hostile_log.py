"""An engine fills the disk with its log, or writes numbers there that are none, to keep production or a trial away.

The log is cut out of its middle while it grows and before production is started. A number is what one pattern takes
for one; what cannot be read is not known, and the trial is recorded.
"""

import base64
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.machine import root_files
from tokenpeak.node.production import production
from tokenpeak.records import StartupFacts
from tokenpeak.vllm.startup_log import startup_facts

KEPT_BYTES = 1 << 14
DISK_BYTES = 1 << 20
LINE = b"%07d is a line of the engine's\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_files, "KEPT_LOG_BYTES", KEPT_BYTES)
    monkeypatch.setattr(root_files, "MOST_LOG_BYTES", 4 * KEPT_BYTES)


def lines(first: int, last: int) -> bytes:
    return b"".join(LINE % number for number in range(first, last))


def is_whole(log: bytes, last: int) -> bool:
    """Whether a log has its first and its last lines, and says how many bytes it has not."""
    found = root_files._MARK.search(log)
    assert found
    all_bytes = len(log) - len(found[0]) + int(found[1])
    return log.startswith(lines(0, 100)) and log.endswith(lines(last - 100, last)) and last * len(LINE % 0) == all_bytes


def test_log_that_is_being_written_is_cut(tmp_path: Path) -> None:
    """The very file that the engine has open, again and again, with an account of what is left out."""
    log = tmp_path / "engine.log"
    with log.open("ab", buffering=0) as engine:
        for turn in range(10):
            engine.write(lines(turn * 3000, (turn + 1) * 3000))
            root_files.bound_log(log)

            assert log.stat().st_size <= KEPT_BYTES
        engine.write(lines(30_000, 30_100))

    assert is_whole(log.read_bytes(), 30_100)


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


LINES = {
    "kv_cache_tokens": "GPU KV cache size: {} tokens",
    "max_concurrency": "Maximum concurrency for 4,096 tokens per request: {}x",
    "kv_cache_bytes": "Available KV cache memory: {} GiB",
    "weights_load_s": "Loading weights took {} seconds",
    "weights_bytes": "Model loading took {} GiB and 3 seconds",
    "compile_s": "torch.compile takes {} s in total",
    "cuda_graph_bytes": "Graph capturing finished in 3 secs, took {} GiB",
}
NO_NUMBERS = [",", "1.2.3", "9" * 5000, "1e999", "-1", "²"]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=lambda number: number[:5])
@pytest.mark.parametrize("fact", LINES)
def test_number_that_is_none(fact: str, number: str) -> None:
    """The fact is not known, what else the log says is, and the record can be written."""
    log = f"LLM engine (v0.32.0)\n{LINES[fact].format(number)}\n"

    assert StartupFacts(engine_version="0.32.0") == startup_facts(log)
