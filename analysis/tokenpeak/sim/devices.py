"""The simulated node by its environment: the devices that its shims name, and the faults to play.

`TOKENPEAK_SIM_FAULT` is a comma-separated list, each with its number where it has one:

    hang_at_start, oom_at_start, crash_at_start
    crash_after_requests:N   the engine's process dies of a CUDA error
    ignore_sigterm           only a kill ends it
    error_500:EVERY          of so many requests one is answered with status 500
    oom_under_load:SHARE     given more of the memory than this share, it runs out of it once several requests run
    damaged_answers:NATS     its log-probabilities are wrong by an error of this standard deviation
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tokenpeak.errors import SpecError, suggestion
from tokenpeak.predict.hardware import GpuFacts, cpu_facts, gpu_facts

CUDA_ERROR = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"

_USUAL = {
    "hang_at_start": 1.0,
    "oom_at_start": 1.0,
    "crash_at_start": 1.0,
    "crash_after_requests": 10.0,
    "ignore_sigterm": 1.0,
    "error_500": 2.0,
    "oom_under_load": 0.93,
    "damaged_answers": 0.5,
}

Faults = Mapping[str, float]
"""The faults to play, each with its number."""


def faults(environ: Mapping[str, str] = os.environ) -> Faults:
    """The faults that the environment names. Raises SpecError for one that is not known."""
    played = {}
    for word in filter(None, environ.get("TOKENPEAK_SIM_FAULT", "").split(",")):
        name, colon, value = word.strip().partition(":")
        if name not in _USUAL:
            raise SpecError(f"TOKENPEAK_SIM_FAULT names {name!r}. {suggestion(name, _USUAL)}")
        played[name] = float(value) if colon else _USUAL[name]
    return played


DRIVER = "570.172.08"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The node's devices. `indexes` are those that a process may use, and `gpu` is what the first of them is."""

    gpu: GpuFacts
    count: int
    indexes: tuple[int, ...]
    kinds: tuple[GpuFacts, ...] = ()
    """Facts of each of them, where they are not all alike."""
    links: str = ""
    """The link between two of them, as `nvidia-smi topo -m` shows it."""
    driver: str = DRIVER

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
    where it is not what such boards usually have, and `TOKENPEAK_SIM_DRIVER` their driver.
    """
    count = int(environ.get("TOKENPEAK_SIM_GPU_COUNT", "1"))
    if count == 0:
        return Devices(gpu=cpu_facts("CPU", 4, None), count=0, indexes=())
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
    )


def _board(name: str) -> GpuFacts:
    """The facts of a board; one that the hardware table lacks is played as an L4."""
    known = gpu_facts(name)
    if known is None:
        usual = gpu_facts("NVIDIA L4")
        assert usual is not None, "the hardware table has it"
        return replace(usual, name=name)
    return known


def _links(gpu: GpuFacts) -> str:
    """NVLink as its number of links, else the host bridge."""
    return f"NV{max(1, round(gpu.interconnect_bytes_per_s / 50e9))}" if gpu.interconnect == "nvlink" else "PHB"
