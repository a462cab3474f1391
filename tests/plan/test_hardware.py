import json

import pytest

from tokenpeak.predict.hardware import GIB, TABLE, gpu_facts

LISTED = [
    "V100 16GB", "V100 32GB", "V100 SXM2 16GB", "V100 SXM2 32GB", "T4", "A10", "A10G", "A30", "A40", "A100 40GB",
    "A100 80GB", "L4", "L40S", "RTX 4090", "RTX 6000 Ada", "H100 PCIe", "H100 SXM", "H100 NVL", "H200", "GH200", "B200",
    "MI210", "MI250X", "MI300X", "MI325X", "L40", "H20", "GB200", "B300", "GB300", "RTX 5090", "RTX PRO 6000",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition", "MI355X",
]  # fmt: skip


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("Tesla V100-PCIE-32GB", "Tesla V100-PCIE-32GB"),
        ("tesla v100-sxm2-16gb", "Tesla V100-SXM2-16GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada Generation"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
        ("Instinct MI210", "AMD Instinct MI210"),
    ],
)
def test_takes_names_as_tools_and_people_write_them(reported: str, expected: str) -> None:
    """A device is found whatever vendor, brand, case and punctuation its name carries."""
    facts = gpu_facts(reported)

    assert facts is not None
    assert expected == facts.name


BLACKWELL = ("B200", "GB200", "B300", "GB300", "RTX 5090", "RTX PRO 6000", "MI355X")


@pytest.mark.parametrize(
    ("name", "units", "operations", "mhz"),
    [
        ("L40", 142, 512, 2490),
        ("RTX 4090", 128, 512, 2520),
        ("RTX 5090", 170, 512, 2407),
        ("RTX PRO 6000", 188, 1024, 2617),
        ("A100 80GB", 108, 2048, 1410),
        ("H100 SXM", 132, 4096, 1830),
        ("MI300X", 304, 2048, 2100),
        ("MI355X", 256, 4096, 2400),
    ],
)
def test_rate_is_what_units_do_at_their_clock(name: str, units: int, operations: int, mhz: int) -> None:
    """The 16-bit rate is multiprocessors times their operations a clock times the boost clock."""
    facts = gpu_facts(name)

    assert facts is not None
    assert pytest.approx(units * operations * mhz * 1e6, rel=0.005) == facts.flops["fp16"]


def test_takes_a_mig_slice_for_its_share() -> None:
    """A slice has its gigabytes of memory, eighths of the bandwidth and sevenths of the arithmetic."""
    whole, part = gpu_facts("NVIDIA A100-SXM4-80GB"), gpu_facts("NVIDIA A100-SXM4-80GB MIG 3g.40gb")
    assert whole is not None
    assert part is not None

    assert 40 * GIB == part.vram_bytes
    assert whole.memory_bytes_per_s / 2 == part.memory_bytes_per_s
    assert pytest.approx(whole.flops["fp16"] * 3 / 7) == part.flops["fp16"]


def test_cites_a_source_for_each_figure() -> None:
    """Every figure of the table names a source that the table lists."""
    raw = json.loads(TABLE.read_text())
    uncited = [
        (entry["name"], key)
        for entry in raw["gpus"]
        for key, value in entry.items()
        if key not in ("name", "aliases", "vendor", "interconnect") and value[1] not in raw["sources"]
    ]

    assert [] == uncited
