"""Meters of a whole node: the BMC through ipmitool, and a command that the inventory declares."""

import os
import time
from pathlib import Path

import pytest
from tests.node.conftest import Node

from tokenpeak.node.probe import meters

READING = """\

    Instantaneous power reading:                   214 Watts
    Minimum during sampling period:                  1 Watts
    Maximum during sampling period:                448 Watts
    Average power reading over sample period:      209 Watts

    IPMI timestamp:                           Mon Nov 16 12:05:12 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def program(folder: Path, name: str, text: str) -> str:
    """A shell script that prints a text."""
    (folder / f"{name}.txt").write_text(text)
    (folder / name).write_text(f"#!/bin/sh\ncat {folder / name}.txt\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


@pytest.mark.parametrize(
    ("raw", "watts"),
    [
        (READING, 214.0),
        (READING.replace("activated", "deactivated"), None),
        (READING.replace(" 214 ", "   0 "), None),
        ("DCMI request failed because: Invalid command (c1)\n", None),
    ],
)
def test_reading_of_a_bmc(raw: str, watts: float | None) -> None:
    """A BMC that does not measure now, or says 0 W of a machine that runs, says nothing."""
    assert watts == meters.parse_dcmi(raw)


@pytest.mark.parametrize(
    ("raw", "watts"),
    [
        ("1234.5\n", 1234.5),
        ("outlet 7\n812 W\n", 812.0),
        ("812 Watts", 812.0),
        ("", None),
        ("error 5", None),
        ("-3", None),
    ],
)
def test_watts_of_a_declared_command(raw: str, watts: float | None) -> None:
    """One number alone on the last line, with or without its unit; nothing is guessed from other words."""
    assert watts == meters.parse_watts(raw)


def test_declared_command_that_prints_no_watts_is_a_problem(node: Node, tools: Path) -> None:
    node.declare(power_command=[program(tools, "pdu", "no such outlet\n")])

    problems = [problem for problem in node.run("probe")["problems"] if "tokenpeak_power_command" in problem]

    assert 1 == len(problems)
    assert "no such outlet" in problems[0]


def test_sampler_writes_the_node_s_power(node: Node, tools: Path) -> None:
    """A trial's samples have the node's power beside the machine's own."""
    node.declare(power_command=[program(tools, "pdu", "650 W\n")])
    node.run("launch", node.launch_request())
    time.sleep(1.5)

    columns = node.run("finish", node.finish_request())["telemetry"]["columns"]

    assert {650.0} == {value for value in columns["node_power_w"] if value is not None}
