import json

import pytest

from node_models import known_board
from tokenpeak.predict.hardware import GIB, TABLE, board_like


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("Tesla V100-PCIE-32GB", "Tesla V100-PCIE-32GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada Generation"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
    ],
)
def test_takes_names_as_tools_and_people_write_them(reported: str, expected: str) -> None:
    """A device is found whatever vendor, brand, case and punctuation its name carries."""
    facts = known_board(reported)

    assert expected == facts.name


@pytest.mark.parametrize(
    ("name", "units", "operations", "mhz"),
    [
        ("RTX 5090", 170, 512, 2407),
        ("H100 SXM", 132, 4096, 1830),
        ("MI300X", 304, 2048, 2100),
        ("MI355X", 256, 4096, 2400),
    ],
)
def test_rate_is_what_units_do_at_their_clock(name: str, units: int, operations: int, mhz: int) -> None:
    """The 16-bit rate is multiprocessors times their operations a clock times the boost clock."""
    facts = known_board(name)

    assert pytest.approx(units * operations * mhz * 1e6, rel=0.005) == facts.flops["fp16"]


def test_takes_a_mig_slice_for_its_share() -> None:
    """A slice has its gigabytes of memory, eighths of the bandwidth and sevenths of the arithmetic."""
    whole, part = known_board("NVIDIA A100-SXM4-80GB"), known_board("NVIDIA A100-SXM4-80GB MIG 3g.40gb")

    assert 40 * GIB == part.vram_bytes
    assert whole.memory_bytes_per_s / 2 == part.memory_bytes_per_s
    assert pytest.approx(whole.flops["fp16"] * 3 / 7) == part.flops["fp16"]


def test_a_board_of_tomorrow_is_taken_for_its_generation() -> None:
    """Its own memory, the rates of the nearest, and the name of that one; nothing without a generation."""
    board = board_like("NVIDIA L9", 24 * GIB, "8.9")
    assert board is not None

    assert ("NVIDIA L9", 24 * GIB) == (board.name, board.vram_bytes)
    assert board.taken_for in ("NVIDIA GeForce RTX 4090", "NVIDIA L4")
    assert board_like("NVIDIA Z1", 24 * GIB, "99.0") is None
    assert board_like("NVIDIA Z1", None, "8.9") is None


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
