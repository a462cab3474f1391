"""The devices of the simulated node, from the environment that its shims carry."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tokenpeak.predict.hardware import GIB, GpuFacts, gpu_facts

_UNKNOWN = {
    "vendor": "nvidia",
    "vram_bytes": 24 * GIB,
    "memory_bytes_per_s": 600e9,
    "flops": {"fp16": 120e12, "bf16": 120e12, "fp8": 240e12, "int8": 240e12},
    "tdp_w": 300.0,
    "compute_capability": "8.9",
    "interconnect": "pcie",
    "interconnect_bytes_per_s": 64e9,
    "source": {},
}
"""What a GPU that the hardware table does not know is played as: a middling card of 24 GiB."""

_CPU = {
    "vendor": "cpu",
    "vram_bytes": 16 * GIB,
    "memory_bytes_per_s": 40e9,
    "flops": {"fp16": 1e12, "bf16": 1e12, "fp8": 1e12, "int8": 1e12},
    "tdp_w": 100.0,
    "compute_capability": "",
    "interconnect": "none",
    "interconnect_bytes_per_s": 0.0,
    "source": {},
}
"""What a node without GPUs computes on: two memory channels of a server."""


DRIVER = "570.172.08"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The node's devices. `indexes` are those that a process may use, and `gpu` is what the first of them is."""

    gpu: GpuFacts
    count: int
    indexes: tuple[int, ...]
    kinds: tuple[GpuFacts, ...] = ()
    """What each of them is, where they are not all alike."""
    links: str = ""
    """What is between two of them, as `nvidia-smi topo -m` shows it."""
    driver: str = DRIVER
    limit_w: float | None = None
    """The power limit that its boards are set to; None: their TDP."""

    @property
    def power_limit_w(self) -> float:
        """The most that one of its boards may draw."""
        return self.gpu.tdp_w if self.limit_w is None else self.limit_w

    @property
    def is_cpu(self) -> bool:
        """True when there is no GPU."""
        return self.count == 0

    def of(self, index: int) -> "Devices":
        """The same node, as one of its devices sees it."""
        return replace(self, gpu=self.kinds[index]) if self.kinds else self

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor); (99, 0) where there is none to lack anything: a CPU, an AMD GPU."""
        major, _, minor = self.gpu.compute_capability.partition(".")
        return (int(major), int(minor or 0)) if major.isdigit() else (99, 0)


def devices(environ: Mapping[str, str] = os.environ) -> Devices:
    """The devices that `TOKENPEAK_SIM_GPU` (default L4) and `TOKENPEAK_SIM_GPU_COUNT` (default 1) name.

    Several names, with commas between, make a node of mixed boards; the last one is repeated. `CUDA_VISIBLE_DEVICES`
    limits those a process may use, as on a real node. `TOKENPEAK_SIM_LINKS` is what their topology shows between them,
    where it is not what such boards usually have, and `TOKENPEAK_SIM_DRIVER` their driver. What each board may draw is
    `TOKENPEAK_SIM_POWER_LIMIT_W`; how slow that makes the engine is a setting of its own.
    """
    count = int(environ.get("TOKENPEAK_SIM_GPU_COUNT", "1"))
    if count == 0:
        return Devices(gpu=GpuFacts(name="CPU", **_CPU), count=0, indexes=())  # type: ignore[arg-type]
    named = [_board(word.strip()) for word in environ.get("TOKENPEAK_SIM_GPU", "NVIDIA L4").split(",")]
    kinds = (*named, *[named[-1]] * count)[:count]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    indexes = tuple(range(count))
    if visible is not None:
        indexes = tuple(int(word) for word in visible.split(",") if word.strip().isdigit() and int(word) < count)
    gpu = kinds[indexes[0] if indexes else 0]
    return Devices(
        gpu=gpu,
        count=count,
        indexes=indexes,
        kinds=kinds if len(named) > 1 else (),
        links=environ.get("TOKENPEAK_SIM_LINKS") or _links(gpu),
        driver=environ.get("TOKENPEAK_SIM_DRIVER") or DRIVER,
        limit_w=float(environ["TOKENPEAK_SIM_POWER_LIMIT_W"]) if environ.get("TOKENPEAK_SIM_POWER_LIMIT_W") else None,
    )


def _board(name: str) -> GpuFacts:
    return gpu_facts(name) or GpuFacts(name=name, **_UNKNOWN)  # type: ignore[arg-type]


def _links(gpu: GpuFacts) -> str:
    """NVLink as its number of links, else the host bridge."""
    return f"NV{max(1, round(gpu.interconnect_bytes_per_s / 50e9))}" if gpu.interconnect == "nvlink" else "PHB"
