"""Broken behaviour that `TOKENPEAK_SIM_FAULT` asks for, to test what a sweep does about it.

A comma-separated list of: `hang_at_start`, `oom_at_start`, `crash_at_start`, `crash_after_s:S`,
`crash_after_requests:N`, `ignore_sigterm`, `stall_mid_stream:TOKENS`, `error_500:EVERY`, `slow_release:S`,
`orphan_worker` (a worker that outlives the engine and holds its memory), `throttle_after_s:S` (its GPUs get too hot:
their clock falls and nvidia-smi says why; the engine is no slower), `oom_under_load:SHARE` (an engine that may use more
than this share of the memory starts and answers, and runs out of memory once several requests run at a time),
`damaged_answers:NATS` (its log-probabilities are wrong by an error of this standard deviation).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tokenpeak.errors import SpecError, suggestion
from tokenpeak.predict.hardware import GIB, GpuFacts, gpu_facts

CUDA_ERROR = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"

_KNOWN = {
    "hang_at_start": None,
    "oom_at_start": None,
    "crash_at_start": None,
    "crash_after_s": 5.0,
    "crash_after_requests": 10.0,
    "ignore_sigterm": None,
    "stall_mid_stream": 8.0,
    "error_500": 2.0,
    "slow_release": 3.0,
    "orphan_worker": None,
    "throttle_after_s": 5.0,
    "oom_under_load": 0.93,
    "damaged_answers": 0.5,
}


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults to play; None or False: not this one."""

    hang_at_start: bool = False
    oom_at_start: bool = False
    crash_at_start: bool = False
    crash_after_s: float | None = None
    crash_after_requests: float | None = None
    ignore_sigterm: bool = False
    stall_mid_stream: float | None = None
    """Output tokens after which each stream says nothing more."""
    error_500: float | None = None
    """Every how many requests one is answered with status 500."""
    slow_release: float | None = None
    """Seconds for which the memory stays taken after the engine has gone."""
    orphan_worker: bool = False
    throttle_after_s: float | None = None
    oom_under_load: float | None = None
    """The highest gpu_memory_utilization that survives a load."""
    damaged_answers: float | None = None
    """Standard deviation, in nats, of the error on log-probabilities."""


def faults(environ: Mapping[str, str] = os.environ) -> Faults:
    """The faults that the environment names. Raises SpecError for one that is not known."""
    asked: dict[str, bool | float] = {}
    for word in filter(None, environ.get("TOKENPEAK_SIM_FAULT", "").split(",")):
        name, colon, value = word.strip().partition(":")
        if name not in _KNOWN:
            raise SpecError(f"TOKENPEAK_SIM_FAULT names {name!r}. {suggestion(name, _KNOWN)}")
        usual = _KNOWN[name]
        asked[name] = True if usual is None else float(value) if colon else usual
    return Faults(**asked)  # type: ignore[arg-type]


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
