"""Power meter of the simulated GPUs: utilization, power and energy, second by second, written for nvidia-smi.

Power is a rough model and marked as simulated wherever it is shown: a board idles at 12% of its TDP, holds
6% more once a process has a context on it, and works between 35% and 97% as memory or arithmetic binds. A warm
board draws more (thermal.py); in a pause it goes on drawing what it drew when the pause began.
"""

import os
import time

from tokenpeak.predict.physics import StepTime
from tokenpeak.sim.settings import Settings
from tokenpeak.sim.state import Holder, NodeState, process_started
from tokenpeak.sim.thermal import IDLE_SHARE, after_c, leakage_w, resting_c

CONTEXT_SHARE = 0.06
WINDOW_S = 0.1


def idle_power_w(tdp_w: float) -> float:
    """What a board draws with nothing on it."""
    return tdp_w * IDLE_SHARE


def step_power_w(tdp_w: float, step: StepTime) -> float:
    """What a board draws during a step."""
    if step.total_s <= 0:
        return tdp_w * (IDLE_SHARE + CONTEXT_SHARE)
    memory = min(1.0, (step.weights_s + step.kv_s) / step.total_s)
    arithmetic = min(1.0, step.compute_s / step.total_s)
    return tdp_w * min(0.97, 0.35 + 0.30 * memory + 0.55 * arithmetic)


class Meter:
    """Adds up steps and writes the process's record, at most ten times a second while there is work."""

    def __init__(
        self, state: NodeState | None, settings: Settings, release_s: float, throttle_after_s: float | None
    ) -> None:
        self._state = state if settings.gpus else None
        self._tdp_w = settings.devices.gpu.tdp_w
        self._limit_w = settings.devices.power_limit_w
        self._gpus = settings.gpus
        self._release_s = release_s
        self._slowed_from = float("inf") if throttle_after_s is None else time.time() + throttle_after_s
        self._pid = os.getpid()
        self._started = process_started(self._pid) or ""
        self._vram_bytes = 0
        self._energy_j = 0.0
        self._busy_s = 0.0
        self._memory_s = 0.0
        self._above_j = 0.0
        self._window_from = time.time()
        self._temperature_c = self._found_c()
        self._is_steady = False
        self._steady_w = 0.0
        self._context_w = self._tdp_w * CONTEXT_SHARE
        self._base_w = 0.0

    @property
    def active(self) -> bool:
        """True when there is a node whose state is to be written."""
        return self._state is not None

    def hold(self, vram_bytes: int) -> None:
        """Take this much memory on each GPU from now on, and be there."""
        self._settle_window()
        self._vram_bytes = vram_bytes
        self._base_w = self._context_w
        self._rest()

    def worked(self, step: StepTime, duration_s: float) -> None:
        """A step that took `duration_s` has ended."""
        if self._state is None:
            return
        self._busy_s += duration_s
        if step.total_s > 0:
            self._memory_s += duration_s * min(1.0, (step.weights_s + step.kv_s) / step.total_s)
        busy_w = min(self._limit_w, step_power_w(self._tdp_w, step)) - idle_power_w(self._tdp_w)
        self._above_j += duration_s * (busy_w - self._base_w)
        if time.time() - self._window_from >= WINDOW_S:
            self._write(steady=False)

    def begins(self) -> None:
        """Work begins after a pause: what was drawn in the pause is settled."""
        if self._state is not None:
            self._settle_window()
            self._write(steady=False)

    def idle(self) -> None:
        """There is nothing to do until `begins`."""
        if self._state is not None:
            self._write(steady=False)
            self._rest()

    def leave(self) -> None:
        """The process ends and gives its memory back, unless it does so slowly."""
        if self._state is not None and not self._release_s:
            self._settle_window()
            self._write(steady=False)
            self._state.remove(self._pid)

    def _found_c(self) -> float:
        """How warm the board is when the process begins: it cools from what it was when it was last used."""
        last = self._state.warmth(self._gpus[0]) if self._state is not None and self._gpus else None
        if last is None:
            return resting_c(IDLE_SHARE)
        return after_c(last[0], IDLE_SHARE, self._window_from - last[1])

    def _rest(self) -> None:
        """There is nothing to do from now on."""
        if self._state is not None:
            self._is_steady = True
            self._steady_w = self._base_w + self._leakage_w(self._base_w)
            self._write(steady=True)

    def _leakage_w(self, above_idle_w: float) -> float:
        return leakage_w(idle_power_w(self._tdp_w) + above_idle_w, self._temperature_c)

    def _settle_window(self) -> tuple[float, float, float]:
        now = time.time()
        window_s = max(1e-9, now - self._window_from)
        power_w = self._base_w + self._above_j / window_s
        # What a reader was shown of a pause holds, so that no counter goes back.
        power_w = self._steady_w if self._is_steady else power_w + self._leakage_w(power_w)
        self._is_steady = False
        self._energy_j += power_w * window_s
        share = (idle_power_w(self._tdp_w) + power_w) / self._tdp_w
        self._temperature_c = after_c(self._temperature_c, share, window_s)
        shares = min(1.0, self._busy_s / window_s), min(1.0, self._memory_s / window_s)
        self._busy_s = self._memory_s = self._above_j = 0.0
        self._window_from = now
        return power_w, *shares

    def _write(self, *, steady: bool) -> None:
        if self._state is None:
            return
        power_w, utilization, memory = (self._steady_w, 0.0, 0.0) if steady else self._settle_window()
        self._state.write(
            Holder(
                pid=self._pid,
                process_started=self._started,
                name="VLLM::EngineCore",
                gpus=self._gpus,
                vram_bytes=self._vram_bytes,
                utilization=utilization,
                memory_utilization=memory,
                power_w=power_w,
                energy_j=self._energy_j,
                steady=steady,
                written_at_unix_s=self._window_from,
                release_s=self._release_s,
                temperature_c=self._temperature_c,
                slowed=self._window_from >= self._slowed_from,
            )
        )
