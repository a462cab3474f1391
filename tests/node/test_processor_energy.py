"""Energy counters of processors and memory, in a folder laid out as the kernel's powercap."""

from pathlib import Path

import pytest

from tokenpeak.node.probe.meters import processor_source

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
    sample = processor_source(tmp_path)
    assert sample is not None

    first.write_text("9000000")
    second.write_text("999999")
    memory.write_text("2000100")
    for other in others:
        other.write_text("7000000")

    assert {"cpu_package_energy_j": pytest.approx(6.0), "cpu_dram_energy_j": 2.0} == sample(False)
