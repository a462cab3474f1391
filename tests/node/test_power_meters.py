"""Meters of a node: its BMC through ipmitool, a command that the inventory declares, counters as powercap has them."""

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
    """The probe shows what it printed instead."""
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


SPAN_UJ = 1_000_000_000


def domain(root: Path, folder: str, name: str, energy_uj: int) -> Path:
    """One counter, and where it stands."""
    (root / folder).mkdir(exist_ok=True)
    (root / folder / "name").write_text(f"{name}\n")
    (root / folder / "max_energy_range_uj").write_text(f"{SPAN_UJ}\n")
    counter = root / folder / "energy_uj"
    counter.write_text(f"{energy_uj}\n")
    return counter


def test_packages_and_memory_add_up_apart(tmp_path: Path) -> None:
    """Two sockets, of which one wraps around; cores and the platform's counter are in none."""
    first = domain(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    second = domain(tmp_path, "intel-rapl:1", "package-1", SPAN_UJ - 1_000_000)
    memory = domain(tmp_path, "intel-rapl:0:1", "dram", 100)
    others = [domain(tmp_path, "intel-rapl:0:0", "core", 0), domain(tmp_path, "intel-rapl:2", "psys", 0)]
    sample = meters.processor_source(tmp_path)
    assert sample is not None

    first.write_text("9000000")
    second.write_text("999999")
    memory.write_text("2000100")
    for other in others:
        other.write_text("7000000")

    assert {"cpu_package_energy_j": pytest.approx(6.0), "cpu_dram_energy_j": 2.0} == sample(False)
