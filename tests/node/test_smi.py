"""nvidia-smi, amd-smi and rocm-smi, read from recorded outputs of many kinds of machine."""

from pathlib import Path

import pytest

from tokenpeak.node import smi

RECORDINGS = Path(__file__).with_name("recordings")


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text()


@pytest.mark.parametrize(
    ("name", "count", "first", "vram_mib", "power_limit_w", "capability"),
    [
        ("h100.csv", 1, "NVIDIA H100 80GB HBM3", 81559, 700.0, "9.0"),
        ("h100x8.csv", 8, "NVIDIA H100 80GB HBM3", 81559, 700.0, "9.0"),
        ("v100x4.csv", 4, "Tesla V100-PCIE-32GB", 32768, 250.0, "7.0"),
        ("a100_mig.csv", 2, "NVIDIA A100-SXM4-40GB", 40960, 400.0, "8.0"),
        ("mixed_a10_t4.csv", 2, "NVIDIA A10", 23028, 150.0, "8.6"),
        ("gh200.csv", 1, "NVIDIA GH200 480GB", 97871, None, "9.0"),
        ("geforce_laptop.csv", 1, "NVIDIA GeForce RTX 4060 Laptop GPU", 8188, None, "8.9"),
        ("decimal_comma.csv", 1, "NVIDIA L40S", 46068, 350.0, "8.9"),
        ("warning_first.csv", 1, "Tesla T4", 15360, 70.0, "7.5"),
    ],
)
def test_nvidia_machines(
    name: str, count: int, first: str, vram_mib: int, power_limit_w: float | None, capability: str
) -> None:
    """Boards are read from each kind of machine; what its driver does not tell is None."""
    gpus = smi.parse_gpus(recorded(name))

    found = (
        len(gpus),
        gpus[0]["name"],
        gpus[0]["vram_bytes"],
        gpus[0]["power_limit_w"],
        gpus[0]["compute_capability"],
    )
    assert (count, first, vram_mib * smi.MIB, power_limit_w, capability) == found


def test_mig() -> None:
    """A partitioned board says so, and its memory in use is unknown rather than zero."""
    gpus = smi.parse_gpus(recorded("a100_mig.csv"))

    assert [("Enabled", None), ("Disabled", 4 * smi.MIB)] == [(gpu["mig"], gpu["vram_used_bytes"]) for gpu in gpus]


def test_old_driver() -> None:
    """A driver that refuses a field of the query gives no boards rather than wrong ones."""
    assert [] == smi.parse_gpus(recorded("unknown_field.txt"))


def test_holders() -> None:
    """Who holds VRAM, also where the driver does not tell how much."""
    apps = smi.parse_apps(recorded("apps.csv"))

    assert [(48213, "VLLM::EngineCore", 73396 * smi.MIB), (50012, "/usr/bin/python3.12", None)] == [
        (app["pid"], app["name"], app["vram_bytes"]) for app in apps
    ]


def test_sample() -> None:
    """A sample holds a column for each quantity that was told, in the raw format's units."""
    assert {
        "gpu0_power_w": 689.41,
        "gpu0_sm_clock_mhz": 1755.0,
        "gpu0_temperature_c": 63.0,
        "gpu0_vram_used_bytes": 73412.0 * smi.MIB,
        "gpu0_utilization": 1.0,
        "gpu1_sm_clock_mhz": 345.0,
        "gpu1_temperature_c": 38.0,
        "gpu1_vram_used_bytes": 0.0,
    } == smi.parse_sample(recorded("samples.csv"))


@pytest.mark.parametrize(
    ("bits", "slowed"), [("0x0000000000000004", 0.0), ("0x0000000000000048", 1.0), ("0x0000000000000020", 1.0)]
)
def test_slowed(bits: str, slowed: float) -> None:
    """Heat and the power supply slow a board down; its power limit does not count."""
    fields = (*smi.SAMPLE_FIELDS, smi.SLOWED_FIELDS[0])
    found = smi.parse_sample(f"0, 689.41, 1755, 63, 73412, 100, {bits}\n", fields)

    assert (slowed, 1755.0) == (found["gpu0_slowed"], found["gpu0_sm_clock_mhz"])


def test_slowed_is_not_told() -> None:
    """A board that does not say why its clock is as it is has no such column."""
    fields = (*smi.SAMPLE_FIELDS, smi.SLOWED_FIELDS[0])

    assert "gpu0_slowed" not in smi.parse_sample("0, 689.41, 1755, 63, 73412, 100, [N/A]\n", fields)


@pytest.mark.parametrize(
    ("machine", "count", "name", "vram_mib", "used_mib", "power_limit_w"),
    [
        ("mi210", 1, "AMD Instinct MI210", 65520, 58211, 300.0),
        ("mi300x", 2, "AMD Instinct MI300X", 196592, 285, 750.0),
    ],
)
def test_amd_smi(machine: str, count: int, name: str, vram_mib: int, used_mib: int, power_limit_w: float) -> None:
    """Both shapes of amd-smi's JSON are read: a list of numbers, and mappings with units after a warning."""
    gpus = smi.parse_amd_smi(recorded(f"{machine}_amd_smi_static.json"), recorded(f"{machine}_amd_smi_metric.json"))

    first = gpus[0]
    assert (count, name, vram_mib * smi.MIB, used_mib * smi.MIB, power_limit_w) == (
        len(gpus),
        first["name"],
        first["vram_bytes"],
        first["vram_used_bytes"],
        first["power_limit_w"],
    )


def test_amd_untold() -> None:
    """What amd-smi answers with N/A is None."""
    second = smi.parse_amd_smi(recorded("mi300x_amd_smi_static.json"), recorded("mi300x_amd_smi_metric.json"))[1]

    assert (None, None) == (second["vram_used_bytes"], second["power_limit_w"])


def test_amd_sample() -> None:
    """An AMD sample has NVIDIA's column names, energy counter included."""
    assert {
        "gpu0_power_w": 283.0,
        "gpu0_energy_j": 1834421.5,
        "gpu0_sm_clock_mhz": 1700.0,
        "gpu0_temperature_c": 74.0,
        "gpu0_vram_used_bytes": 58211.0 * smi.MIB,
        "gpu0_utilization": 0.97,
    } == smi.parse_amd_sample(recorded("mi210_amd_smi_metric.json"))


def test_rocm_smi() -> None:
    """Cards come in the order of their numbers, each with what it told."""
    gpus = smi.parse_rocm_smi(recorded("mi100_rocm_smi.json"))

    assert [
        (0, "AMD Instinct MI100", 290.0, "5.13.11"),
        (2, "AMD Instinct MI100", None, "5.13.11"),
        (10, "AMD Instinct MI100", None, "5.13.11"),
    ] == [(gpu["index"], gpu["name"], gpu["power_limit_w"], gpu["driver"]) for gpu in gpus]


@pytest.mark.parametrize("raw", ["", "No devices were found\n", "{", "[1, 2]", '{"gpu_data": 7}', "null"])
def test_rubbish(raw: str) -> None:
    """Output that is nothing of the kind gives no boards, whichever tool printed it."""
    assert ([], [], [], {}) == (
        smi.parse_gpus(raw),
        smi.parse_amd_smi(raw, raw),
        smi.parse_rocm_smi(raw),
        smi.parse_amd_sample(raw),
    )
