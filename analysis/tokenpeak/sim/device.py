"""The devices of the simulated node, from the environment that its shims carry."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The node's devices, all alike. `indexes` are those that a process may use."""

    gpu: GpuFacts
    count: int
    indexes: tuple[int, ...]
    links: str = ""
    """What is between two of them, as `nvidia-smi topo -m` shows it."""

    @property
    def is_cpu(self) -> bool:
        """True when there is no GPU."""
        return self.count == 0

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor); (99, 0) where there is none to lack anything: a CPU, an AMD GPU."""
        major, _, minor = self.gpu.compute_capability.partition(".")
        return (int(major), int(minor or 0)) if major.isdigit() else (99, 0)


def devices(environ: Mapping[str, str] = os.environ) -> Devices:
    """The devices that `TOKENPEAK_SIM_GPU` (default L4) and `TOKENPEAK_SIM_GPU_COUNT` (default 1) name.

    `CUDA_VISIBLE_DEVICES` limits those a process may use, as on a real node. `TOKENPEAK_SIM_LINKS` is what their
    topology shows between them, where it is not what such boards usually have.
    """
    count = int(environ.get("TOKENPEAK_SIM_GPU_COUNT", "1"))
    name = environ.get("TOKENPEAK_SIM_GPU", "NVIDIA L4")
    if count == 0:
        return Devices(gpu=GpuFacts(name="CPU", **_CPU), count=0, indexes=())  # type: ignore[arg-type]
    gpu = gpu_facts(name) or GpuFacts(name=name, **_UNKNOWN)  # type: ignore[arg-type]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    indexes = tuple(range(count))
    if visible is not None:
        indexes = tuple(int(word) for word in visible.split(",") if word.strip().isdigit() and int(word) < count)
    return Devices(gpu=gpu, count=count, indexes=indexes, links=environ.get("TOKENPEAK_SIM_LINKS") or _links(gpu))


def _links(gpu: GpuFacts) -> str:
    """NVLink as its number of links, else the host bridge."""
    return f"NV{max(1, round(gpu.interconnect_bytes_per_s / 50e9))}" if gpu.interconnect == "nvlink" else "PHB"
