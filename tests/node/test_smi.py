"""nvidia-smi and amd-smi, read from recorded outputs of many kinds of machine."""

from pathlib import Path

import pytest

from tokenpeak.node.probe import boards

RECORDINGS = Path(__file__).with_name("recordings")


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text()


PAIRS = """\
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV4\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A
GPU1\tNV4\t X \tSYS\tSYS\tNODE\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV4\tSYS\t32-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNV4\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPXB\tNODE\tSYS\tSYS\t X

Legend:

  X    = Self
  NIC0: mlx5_0
"""
"""Two pairs of boards under a network card, as driver 550 prints them."""


@pytest.mark.parametrize(
    ("raw", "interconnect"),
    [
        (PAIRS, "2x NV4, 4x SYS"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-3\nGPU1\tNV12\t X \t0-3\n", "NV12"),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n", None),
        ("Failed to run topology matrix\n", None),
    ],
    ids=["pairs", "alike", "one board", "refused"],
)
def test_topology(raw: str, interconnect: str | None) -> None:
    """Each pair of boards counts once; cards for the network do not."""
    assert interconnect == boards.parse_topology(raw)


@pytest.mark.parametrize(
    ("name", "count", "first", "vram_mib", "power_limit_w", "capability"),
    [
        ("h100x8.csv", 8, "NVIDIA H100 80GB HBM3", 81559, 700.0, "9.0"),
        ("a100_mig.csv", 2, "NVIDIA A100-SXM4-40GB", 40960, 400.0, "8.0"),
        ("gh200.csv", 1, "NVIDIA GH200 480GB", 97871, None, "9.0"),
        ("geforce_laptop.csv", 1, "NVIDIA GeForce RTX 4060 Laptop GPU", 8188, None, "8.9"),
        ("warning_first.csv", 1, "Tesla T4", 15360, 70.0, "7.5"),
    ],
)
def test_nvidia_machines(
    name: str, count: int, first: str, vram_mib: int, power_limit_w: float | None, capability: str
) -> None:
    """Boards are read from each kind of machine; what its driver does not report is None."""
    gpus = boards.parse_gpus(recorded(name))

    found = (
        len(gpus),
        gpus[0]["name"],
        gpus[0]["vram_bytes"],
        gpus[0]["power_limit_w"],
        gpus[0]["compute_capability"],
    )
    assert (count, first, vram_mib * boards.MIB, power_limit_w, capability) == found


def test_sample() -> None:
    """A sample holds a column for each quantity that was reported, in the raw format's units."""
    assert {
        "gpu0_power_w": 689.41,
        "gpu0_sm_clock_mhz": 1755.0,
        "gpu0_temperature_c": 63.0,
        "gpu0_vram_used_bytes": 73412.0 * boards.MIB,
        "gpu0_utilization": 1.0,
        "gpu1_sm_clock_mhz": 345.0,
        "gpu1_temperature_c": 38.0,
        "gpu1_vram_used_bytes": 0.0,
    } == boards.parse_sample(recorded("samples.csv"))


@pytest.mark.parametrize(
    ("bits", "slowed"),
    [("0x0000000000000004", 0.0), ("0x0000000000000048", 1.0), ("0x0000000000000020", 1.0), ("[N/A]", None)],
)
def test_slowed(bits: str, slowed: float | None) -> None:
    """Heat and the power supply slow a board down, its power limit does not; what is not said is left out."""
    fields = (*boards.SAMPLE_FIELDS, boards.SLOWED_FIELDS[0])
    found = boards.parse_sample(f"0, 689.41, 1755, 63, 73412, 100, {bits}\n", fields)

    assert (slowed, 1755.0) == (found.get("gpu0_slowed"), found["gpu0_sm_clock_mhz"])


@pytest.mark.parametrize(
    ("machine", "name", "vram_mib", "used_mib", "power_limit_w"),
    [
        ("mi210", "AMD Instinct MI210", 65520, [58211], [300.0]),
        ("mi300x", "AMD Instinct MI300X", 196592, [285, None], [750.0, None]),
    ],
)
def test_amd_smi(
    machine: str, name: str, vram_mib: int, used_mib: list[int | None], power_limit_w: list[float | None]
) -> None:
    """Both shapes of amd-smi's JSON: a list of numbers, and mappings with units after a warning; N/A is None."""
    gpus = boards.parse_amd_smi(recorded(f"{machine}_amd_smi_static.json"), recorded(f"{machine}_amd_smi_metric.json"))

    assert (name, vram_mib * boards.MIB) == (gpus[0]["name"], gpus[0]["vram_bytes"])
    assert [None if used is None else used * boards.MIB for used in used_mib] == [
        gpu["vram_used_bytes"] for gpu in gpus
    ]
    assert power_limit_w == [gpu["power_limit_w"] for gpu in gpus]


def test_amd_sample() -> None:
    """An AMD sample has NVIDIA's column names, energy counter included."""
    assert {
        "gpu0_power_w": 283.0,
        "gpu0_energy_j": 1834421.5,
        "gpu0_sm_clock_mhz": 1700.0,
        "gpu0_temperature_c": 74.0,
        "gpu0_vram_used_bytes": 58211.0 * boards.MIB,
        "gpu0_utilization": 0.97,
    } == boards.parse_amd_sample(recorded("mi210_amd_smi_metric.json"))


@pytest.mark.parametrize(
    "raw", ["", "No devices were found\n", "{", "[1, 2]", '{"gpu_data": 7}', "null", recorded("unknown_field.txt")]
)
def test_rubbish(raw: str) -> None:
    """Output that is nothing of the kind gives no boards, whichever tool printed it: an old driver refuses a field."""
    assert [] == boards.parse_gpus(raw)
    assert [] == boards.parse_amd_smi(raw, raw)
    assert {} == boards.parse_amd_sample(raw)
