"""The door, made once, and the table of commands at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.conftest import boot_node
from tests.front_door.door import Door
from tests.rig.conftest import why_no_rig

from tokenpeak import paths

KEPT = paths.ROOT / ".tokenpeak" / "front-door.txt"
"""Each row as it comes, and why it failed: a run that is cut short has no table."""
_rows: list[tuple[str, str, float]] = []


@pytest.fixture(scope="session")
def door() -> Iterator[Door]:
    """A clean clone with an empty home, and a V100 machine with production on it."""
    reason = why_no_rig()
    if reason:
        pytest.skip(reason)
    place = Path(tempfile.mkdtemp(prefix="tokenpeak-door-", dir=os.environ.get("FRONT_DOOR_PLACE")))
    place.chmod(0o755)
    node = boot_node(place, "door", 190)
    made = Door(place=place, node=node)
    try:
        made.make()
        made.prepare_node()
        made.edit_inventory()
        made.marks |= {"started": made.started(), "files": made.own_files()}
        yield made
    finally:
        made.end_simulated()
        node.testnode("down")
        shutil.rmtree(place, ignore_errors=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep each command's row."""
    properties = dict(report.user_properties)
    if "command" in properties and (report.when == "call" or not report.passed):
        seconds = float(str(properties.get("seconds", 0)))
        row = (str(properties["command"]), "ok" if report.passed else report.outcome, seconds)
        _rows.append(row)
        KEPT.parent.mkdir(exist_ok=True)
        with KEPT.open("a") as stream:
            print(*row, "" if report.passed else f"\n{report.longreprtext[-2500:]}", sep="  ", file=stream)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Command, status, seconds."""
    if not _rows:
        return
    terminalreporter.section("front door")
    width = min(66, max(len(row[0]) for row in _rows))
    for command, status, seconds in _rows:
        terminalreporter.write_line(f"{command[:width]:<{width}} {status:>7} {seconds:6.1f} s")
    failed = sum(row[1] != "ok" for row in _rows)
    terminalreporter.write_line(f"{len(_rows)} commands, {len(_rows) - failed} ok")
