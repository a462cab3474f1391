"""Nodes to strike, one for each process that runs tests, and the matrix printed at the end."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docker_daemon import why_no_docker
from tests.faults.bench import Bench
from tests.rig.conftest import TESTNODE, RigNode, why_no_rig

from tokenpeak import paths

NUMBERS = range(20)
_LAST = {"f": 100, "k": 220}
"""Of the first node's address, by the first letter of its name."""
_names: dict[str, int] = {}
"""Locks on the names of nodes that this process has used; another that wants one waits for the end of its tests."""


def boot_node(folder: Path, name: str, last: int, disk: str = "2g") -> RigNode:
    """Boot a node of the rig, in place of one that a killed session may have left under this name."""
    if name not in _names:
        _names[name] = os.open(f"/tmp/tokenpeak-rig-{name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(_names[name], fcntl.LOCK_EX)
    key = folder / "key"
    if not key.exists():
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)
    node = RigNode(name=name, address=f"10.77.0.{last}", folder=folder, key=key)
    environment = {
        **os.environ,
        "TESTNODE_DIR": str(folder),
        "TESTNODE_DISK": disk,
        "TESTNODE_SHARE": str(paths.ROOT),
    }
    argv = [str(TESTNODE), "up", name, node.address, f"{key}.pub"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return node


def _free_number() -> tuple[int, int]:
    """A number that no other process on this machine has, and the descriptor whose lock keeps it."""
    for number in NUMBERS:
        lock = os.open(f"/tmp/tokenpeak-faults-{number}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return number, lock
    raise AssertionError(f"{len(NUMBERS)} processes use the rig already")


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder for this process's nodes; `number` in it is what their names and addresses are made of."""
    reason = why_no_rig()
    if reason:
        pytest.skip(reason)
    number, lock = _free_number()
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-faults-"))
    (folder / "number").write_text(str(number))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    while _names:
        os.close(_names.popitem()[1])
    os.close(lock)


def number_of(place: Path) -> int:
    """What distinguishes this process's nodes from those of others."""
    return int((place / "number").read_text())


@pytest.fixture(scope="session")
def _benches(place: Path) -> Iterator[dict[str, Bench]]:
    benches: dict[str, Bench] = {}
    yield benches
    for bench in benches.values():
        bench.node.testnode("down")


def _bench(kind: str, place: Path, benches: dict[str, Bench], request: pytest.FixtureRequest) -> Iterator[Bench]:
    if kind not in benches:
        number = number_of(place)
        home = Path(tempfile.mkdtemp(dir=place, prefix="home-"))
        made = Bench(
            node=boot_node(place, f"{kind}{number}", _LAST[kind] + number),
            root=home / "checkout",
            state=home / "state",
            in_container=kind == "k",
        )
        try:
            made.prepare()
        except BaseException:
            made.node.testnode("down")
            raise
        benches[kind] = made
    yield benches[kind]
    if getattr(request.node, "went_wrong", False):
        benches.pop(kind).node.testnode("down")
        (place / "known_hosts").unlink(missing_ok=True)


@pytest.fixture
def bench(place: Path, _benches: dict[str, Bench], request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A node of this process with its controller; a node that a test has left in disorder is thrown away."""
    yield from _bench("f", place, _benches, request)


@pytest.fixture
def container_bench(place: Path, _benches: dict[str, Bench], request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A node as `bench` whose engine build is an image and whose production is a container, of a Docker of its own."""
    if reason := why_no_docker():
        pytest.skip(reason)
    yield from _bench("k", place, _benches, request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let the fixture know whether its test went wrong."""
    report = yield
    if report.when == "call" and report.failed:  # type: ignore[attr-defined]
        item.went_wrong = True  # type: ignore[attr-defined]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep each cell's outcome for the table."""
    properties = dict(report.user_properties)
    if "cell" not in properties or (report.when != "call" and report.passed):
        return
    _seen[properties["cell"]] = "ok" if report.passed else report.outcome
    if report.passed and "recovered_s" in properties:
        _times.append((float(properties["recovered_s"]), str(properties["cell"])))


_seen: dict[str, str] = {}
_times: list[tuple[float, str]] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The fault matrix: each fault with its phase and what came of it."""
    if not _seen:
        return
    write = terminalreporter.write_line
    terminalreporter.section("fault matrix")
    for name, outcome in sorted(_seen.items()):
        write(f"{outcome:>8}  {name}")
    write(f"{len(_seen)} cells tried, {sum(outcome == 'ok' for outcome in _seen.values())} passed")
    if _times:
        longest_s, where = max(_times)
        write(f"Production answered again {longest_s:.1f} s after the fault at the latest ({where}).")
