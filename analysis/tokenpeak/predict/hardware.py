"""GPU boards: memory, bandwidth, arithmetic and power of each, from data/gpus.json.

Every figure of the table cites a source. Names are matched as nvidia-smi, rocm-smi, amd-smi or a person writes them.
A device that is not in the table has no facts; it can still be swept, without prediction.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "data" / "gpus.json"

MIB = 1024**2
GIB = 1024**3

DRIVER_RESERVED_BYTES = 606 * MIB
"""VRAM that the driver keeps and CUDA's own total leaves out: `Reserved` in `nvidia-smi -q` of an H200; other
devices since Turing keep 450 to 640 MiB, Volta next to nothing."""


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One device. Rates are dense; the link's bandwidth counts both directions together."""

    name: str
    vendor: str
    """nvidia, amd or cpu."""
    vram_bytes: int
    """As the vendor's tool reports the total."""
    memory_bytes_per_s: float
    flops: Mapping[str, float] = field(hash=False)
    """Dense FLOP/s by dtype (fp16, bf16, fp4, fp8, int8); a dtype without arithmetic units of its own is absent."""
    tdp_w: float
    compute_capability: str
    """`7.0` for NVIDIA, `gfx90a` for AMD, empty for a CPU."""
    interconnect: str
    """nvlink, infinity_fabric, pcie or none."""
    interconnect_bytes_per_s: float
    source: Mapping[str, str] = field(hash=False)
    taken_for: str | None = None
    """The board whose figures these are, of one that the table lacks."""
    """Figure → where it is from."""

    @property
    def usable_bytes(self) -> int:
        """The total that an engine's share (`gpu_memory_utilization`) is counted from."""
        reserved = 0 if self.compute_capability == "7.0" or self.vendor != "nvidia" else DRIVER_RESERVED_BYTES
        return self.vram_bytes - reserved

    def flops_for(self, dtype: str) -> float:
        """FLOP/s at `dtype`; one that the device lacks runs at its 16-bit rate, into which it is converted."""
        return self.flops.get(dtype) or self.flops.get("fp16") or max(self.flops.values())


def _normal(name: str) -> str:
    """A name without vendor, brand, case or punctuation: `Tesla V100-PCIE-32GB` is `v100pcie32gb`."""
    words = re.sub(r"\((r|tm)\)|[®™]", "", name.casefold())
    words = re.sub(r"\b(nvidia|tesla|quadro|geforce|amd|ati|instinct|radeon|graphics|gpu|generation|oam)\b", "", words)
    return re.sub(r"[^a-z0-9]", "", words)


@cache
def _table() -> Mapping[str, GpuFacts]:
    raw = json.loads(TABLE.read_text())
    boards: dict[str, GpuFacts] = {}
    for entry in raw["gpus"]:
        facts = _facts(entry, raw["sources"])
        for name in (facts.name, *entry["aliases"]):
            boards[_normal(name)] = facts
    return boards


def _facts(entry: Mapping[str, Any], sources: Mapping[str, str]) -> GpuFacts:
    figures = {key: value[0] for key, value in entry.items() if isinstance(value, list) and key != "aliases"}
    return GpuFacts(
        name=entry["name"],
        vendor=entry["vendor"],
        vram_bytes=int(figures["vram_mib"] * MIB),
        memory_bytes_per_s=figures["memory_gb_per_s"] * 1e9,
        flops={
            dtype: figures[f"{dtype}_tflops"] * 1e12
            for dtype in ("fp16", "bf16", "fp4", "fp8", "int8")
            if f"{dtype}_tflops" in entry
        },
        tdp_w=float(figures["tdp_w"]),
        compute_capability=str(figures["compute_capability"]),
        interconnect=entry["interconnect"],
        interconnect_bytes_per_s=figures["interconnect_gb_per_s"] * 1e9,
        source={key: sources[entry[key][1]] for key in figures},
    )


_MIG = re.compile(r"\bmig\s*(?P<slices>\d)g\.(?P<gib>\d+)gb", re.IGNORECASE)


def gpu_facts(name: str) -> GpuFacts | None:
    """The device called `name`, or None when the table has no such device.

    A MIG slice (`NVIDIA A100-SXM4-80GB MIG 3g.40gb`) has its share of the whole: sevenths of the arithmetic,
    its gigabytes of the memory and as much of the bandwidth.
    """
    slice_ = _MIG.search(name)
    whole = _table().get(_normal(_MIG.sub("", name)))
    if whole is None or slice_ is None:
        return whole
    memory = int(slice_["gib"]) * GIB
    share = min(1.0, round(memory / whole.vram_bytes * 8) / 8)
    return replace(
        whole,
        name=name,
        vram_bytes=memory,
        memory_bytes_per_s=whole.memory_bytes_per_s * share,
        flops={dtype: rate * int(slice_["slices"]) / 7 for dtype, rate in whole.flops.items()},
        tdp_w=whole.tdp_w * int(slice_["slices"]) / 7,
        interconnect="none",
        interconnect_bytes_per_s=0.0,
    )


def board_like(name: str, vram_bytes: int | None, compute_capability: str | None) -> GpuFacts | None:
    """A board that the table lacks by the one of its generation whose memory is nearest; None without such a one.

    Its memory is its own. Its bandwidth and its rates are a guess.
    """
    if not vram_bytes or not compute_capability:
        return None
    alike = [each for each in _table().values() if each.compute_capability == compute_capability]
    if not alike:
        return None
    nearest = min(alike, key=lambda each: (abs(each.vram_bytes - vram_bytes), each.memory_bytes_per_s))
    return replace(nearest, name=name, vram_bytes=vram_bytes, taken_for=nearest.name)


def gpu_names() -> tuple[str, ...]:
    """Every device of the table, by the name that its vendor's tool reports."""
    return tuple(dict.fromkeys(facts.name for facts in _table().values()))


_CPU_BYTES_PER_S_PER_CORE = 10e9
_CPU_FLOPS_PER_CORE = {"fp32": 60e9, "bf16": 60e9, "fp16": 60e9}
_CPU_W_PER_CORE = 4.0
_CPU_SOURCE = (
    "estimate for a server core of 2019–2025: STREAM gives 5 to 15 GB/s a core, AVX2 about 64 GFLOP/s at 2 GHz, "
    "and 200 to 350 W are shared by 48 to 96 cores"
)


def cpu_facts(name: str | None, cores: int | None, memory_bytes: int | None) -> GpuFacts:
    """A node without GPUs as one device: cores times what a server core does, right to about a factor of two."""
    count = cores or 1
    return GpuFacts(
        name=name or "CPU",
        vendor="cpu",
        vram_bytes=memory_bytes or 16 * GIB,
        memory_bytes_per_s=min(count * _CPU_BYTES_PER_S_PER_CORE, 400e9),
        flops={dtype: count * rate for dtype, rate in _CPU_FLOPS_PER_CORE.items()},
        tdp_w=count * _CPU_W_PER_CORE,
        compute_capability="",
        interconnect="none",
        interconnect_bytes_per_s=0.0,
        source=dict.fromkeys(("memory_bytes_per_s", "flops", "tdp_w"), _CPU_SOURCE),
    )
