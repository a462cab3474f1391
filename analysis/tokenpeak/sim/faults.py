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
from dataclasses import dataclass

from tokenpeak.errors import SpecError, suggestion

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
