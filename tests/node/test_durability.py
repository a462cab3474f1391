"""What is acknowledged survives a power loss: the order of system calls, on the node and on the controller."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.node.conftest import Node, node  # noqa: F401

from tokenpeak.node.machine import clock, process_files

pytestmark = [pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")]

CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,pidfd_open,pidfd_send_signal"
LINE = re.compile(r"^(?P<name>\w+)\((?P<rest>.*)\) += (?P<result>-?\d+)")


NAMED = re.compile(r'(?:\d+<([^>]+)>, )?"([^"]+)"')
"""A path, or a name below the folder of a descriptor."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A system call that succeeded."""

    name: str
    rest: str


def traced(argv: list[str], trace: Path, cwd: Path | None = None) -> list[Call]:
    """The calls of a command and its children that change files, in order."""
    command = ["strace", "-I", "1", "-f", "-y", "-s", "200", "-e", f"trace={CALLS}", "-o", str(trace), *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd) as running:
        assert running.stdout
        assert running.stderr
        said = running.stdout.readline()
        if not said and "ptrace" in (why := running.stderr.read()):
            pytest.skip(f"this machine lets nobody trace system calls: {why}")
        leader = int(trace.read_text().split(maxsplit=1)[0])
        # The command's own children live on, and strace with them, unless it lets go.
        clock.wait_until(lambda: process_files.stat_of(leader) is None, 60)
        running.terminate()
    found = (LINE.match(line) for line in whole_lines(trace.read_text()))
    return [Call(name=m["name"], rest=m["rest"]) for m in found if m and not m["result"].startswith("-")]


def whole_lines(trace: str) -> list[str]:
    """A line for each call, where it ended; strace cuts those in two during which another thread called."""
    begun: dict[str, str] = {}
    lines = []
    for line in trace.splitlines():
        pid, _, text = line.partition(" ")
        text = text.lstrip()
        if text.endswith("<unfinished ...>"):
            begun[pid] = text.removesuffix("<unfinished ...>")
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>", text)
        lines.append(begun.pop(pid, "") + text[resumed.end() :] if resumed else text)
    return lines


def positions(calls: list[Call], name: str, *words: str) -> list[int]:
    """Where calls by this name with these words are."""
    return [
        number
        for number, call in enumerate(calls)
        if call.name.startswith(name) and all(word in call.rest for word in words)
    ]


def named(call: Call) -> list[str]:
    """The paths of a call; a name below a descriptor as the path that it is."""
    return [f"{folder}/{name}" if folder else name for folder, name in NAMED.findall(call.rest)]


def renames_to(calls: list[Call], target: Path) -> list[tuple[int, str]]:
    """Where a file was put at `target`, and what it was called before."""
    found = []
    for number in positions(calls, "rename"):
        names = named(calls[number])
        if names[-1] == str(target):
            found.append((number, names[0]))
    return found


def durable_at(calls: list[Call], target: Path) -> list[int]:
    """Where each version of `target` had become durable: written, fsynced, renamed, its folder fsynced."""
    done = []
    for renamed, part in renames_to(calls, target):
        writes = [at for at in positions(calls, "write", f"<{part}>") if at < renamed]
        opened = max(at for at in positions(calls, "openat") if at < renamed and part in named(calls[at]))
        synced = [at for at in positions(calls, "fsync", f"<{part}>") if opened < at < renamed]
        assert synced, f"{target.name} was renamed without an fsync"
        assert all(at < synced[-1] for at in writes), f"{target.name} was written to after its fsync"
        folder = [at for at in positions(calls, "fsync", f"<{target.parent}>") if at > renamed]
        assert folder, f"the folder of {target.name} was not fsynced after the rename"
        done.append(folder[0])
    return done


@pytest.mark.integration
def test_record_is_durable_before_production_is_touched(node: Node, tmp_path: Path) -> None:  # noqa: F811
    """Write, fsync, rename, fsync of the folder; only then does anything happen to production."""
    node.serve()
    leader = node.read("production.json")
    request = tmp_path / "request.json"
    request.write_text(json.dumps(node.launch_request()))
    argv = [sys.executable, str(node.bundle), "launch", "--state", str(node.folder), "--request", str(request)]

    calls = traced(argv, tmp_path / "trace")

    durable = durable_at(calls, node.folder / "record.json")
    (opened, *_) = positions(calls, "pidfd_open", f"{leader['pid']}, ")
    stopped = [at for at in positions(calls, "pidfd_send_signal", "SIGTERM") if at > opened]
    assert 3 == len(durable)
    assert durable[1] < stopped[0]


@pytest.mark.integration
def test_record_goes_durably(node: Node, tmp_path: Path) -> None:  # noqa: F811
    """The record's removal is fsynced too, and comes after the outcome has been written."""
    node.serve()
    node.run("launch", node.launch_request())
    argv = [sys.executable, str(node.bundle), "restore", "--state", str(node.folder)]

    calls = traced(argv, tmp_path / "trace")

    removed = [at for at in positions(calls, "unlink") if str(node.folder / "record.json") in named(calls[at])]
    assert 1 == len(removed)
    assert durable_at(calls, node.folder / "outcome.json")[0] < removed[0]
    assert [at for at in positions(calls, "fsync", f"<{node.folder}>") if at > removed[0]]


ARCHIVE = """
import sys
from pathlib import Path
from archive_factory import node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.store.archive import Archive

archive = Archive(Path(sys.argv[1]))
spec = sweep_spec({"max_num_seqs": [8, 64]})
node = node_facts("node-1", "NVIDIA L4")
planned = plan_of(spec, node).feasible[0]
record, _ = trial_record(spec, node=node, planned=planned, replicate=0, number=1)
requests = Path(sys.argv[2])
requests.write_bytes(b"requests")
archive.write_trial(record, requests, "the log")
sys.stdout.write("acknowledged\\n")
sys.stdout.flush()
"""


def test_trial_is_durable_before_it_is_acknowledged(tmp_path: Path) -> None:
    """A trial's requests and log are durable before its record is, and that before the answer."""
    archive = tmp_path / "archive"
    archive.mkdir()
    tests = Path(__file__).parents[1]
    argv = [sys.executable, "-c", ARCHIVE, str(archive), str(tmp_path / "given.parquet")]

    calls = traced(argv, tmp_path / "trace", cwd=tests)

    files = {path.name.split(".", 1)[1]: path for path in (archive / "trials").iterdir()}
    record = durable_at(calls, files.pop("json"))
    answered = positions(calls, "write", '"acknowledged')
    large = [durable_at(calls, path)[-1] for path in files.values()]
    made = positions(calls, "fsync", f"<{archive}>")
    assert 2 == len(large)
    assert max(large) < record[0] < answered[0]
    assert made[0] < record[0], "the folder of trials was not made durable"
