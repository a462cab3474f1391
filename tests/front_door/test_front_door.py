"""Every documented command, run as typed in a clean clone with an empty home against a machine over SSH."""

import os
import re
import subprocess
from collections.abc import Callable

import pytest
from tests.front_door.documented import help_commands
from tests.front_door.door import Done, Door
from tests.front_door.entries import DEVELOP, ENTRIES, Entry, in_background, typed

from tokenpeak import paths

pytestmark = [pytest.mark.front_door, pytest.mark.xdist_group("front_door")]

IS_LONG = os.environ.get("FRONT_DOOR") == "long"
TRACEBACK = "Traceback (most recent call last)"


def _name(entry: Entry) -> str:
    return f"{ENTRIES.index(entry):02d}-{entry.line}"


@pytest.mark.parametrize("entry", ENTRIES, ids=_name)
def test_line(door: Door, entry: Entry, record_property: Callable[[str, object], None]) -> None:
    """The line ends as documented, prints no traceback, and what it says is so."""
    if "archive SWEEP" in (entry.typed or ""):
        door.ids["archive SWEEP"] = f"archive {door.sweeps()[-1].name}"
    line = typed(entry, door)
    record_property("command", line)
    how = "dry" if entry.how == "long" and not IS_LONG else entry.how
    if how == "dry":
        done = door.run(line.replace("make ", "make -n ", 1), 60)
        assert (0, True) == (done.status, bool(done.said.strip())), done.said
        record_property("seconds", done.seconds)
        return
    if how == "background":
        done = in_background(entry, door)
        assert done.status in (0, 2, 130, -2), done.said
    elif how == "node":
        done = Done(line=line, status=0, said=door.node.sh("bash", "-c", line), seconds=0.0)
    elif how == "ctrl-c":
        done = door.interrupt_when(line, entry.word, entry.timeout_s)
        # make says 2 for a recipe that ended with 130.
        assert done.status in (2, 130, -2), (done.status, done.said[-3000:])
    else:
        done = door.run(line, entry.timeout_s)
        for _ in range(2):
            if not (entry.verdict and re.search(entry.verdict, done.said)):
                break
            print(done.said[-2000:])
            done = door.run(line, entry.timeout_s)
        expected = 2 if entry.status and line.startswith("make") else entry.status
        assert expected == done.status, f"status {done.status}:\n{done.said[-3000:]}"
    record_property("seconds", done.seconds)
    assert TRACEBACK not in done.said, done.said[-3000:]
    if how != "background":
        entry.check(door, done)


@pytest.mark.parametrize("target", [*DEVELOP])
def test_development_target(target: str, record_property: Callable[[str, object], None]) -> None:
    """`make -n` expands it to commands whose programs and files are there."""
    record_property("command", f"make {target}")
    done = subprocess.run(
        ["make", "-n", target], cwd=paths.ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    programs = re.findall(r"(?:^|\s)(?:\.\./)?(\.venv/bin/[a-z-]+|tests/\S+\.py|\.ci/[a-z_]+)", done.stdout)

    assert 0 == done.returncode, done.stderr
    assert [] == [name for name in programs if not (paths.ROOT / name).exists()]


def test_every_command_is_run() -> None:
    """Each command of `tokenpeak --help` is run by an entry, by name or by the target that runs it."""
    printed = subprocess.run(
        [str(paths.ROOT / ".venv/bin/tokenpeak"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    lines = []
    for entry in ENTRIES:
        line = entry.typed or entry.line
        if line.startswith("make "):
            argv = ["make", "-n", *line.split()[1:]]
            line = subprocess.run(argv, cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout
        lines.append(line)
    run = set(re.findall(r"\.venv/bin/tokenpeak ([a-z]+)", "\n".join(lines)))

    assert len(help_commands(printed)) > 10
    assert [] == [name for name in help_commands(printed) if name not in run]
