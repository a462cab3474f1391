"""A simulated board warms slowly and draws more when warm: known truths, also for the drift that a sweep reports."""

from dataclasses import dataclass
from math import exp
from pathlib import Path

import numpy as np
import pytest

from tokenpeak.predict.physics import StepTime
from tokenpeak.records import Series
from tokenpeak.sim.boards import Meter, NodeState
from tokenpeak.sim.devices import devices
from tokenpeak.sim.nvidia_smi import PowerAverage, SimulatedGpu, simulated_gpus
from tokenpeak.sim.settings import Settings, parse_serve, resolve

STEP_S = 0.05
A100_W = 400.0
PER_DEGREE, FOLLOWS_S = 0.0015, 45.0
"""As the simulator's boards are meant to be."""


@dataclass
class Clock:
    """Time that passes as the test says."""

    now: float = 1_000_000.0

    def time(self) -> float:
        return self.now


@dataclass(frozen=True)
class Board:
    """One simulated A100 in a folder, with a clock of its own."""

    state: NodeState
    clock: Clock
    settings: Settings

    def seen(self) -> SimulatedGpu:
        return simulated_gpus(self.settings.devices, self.state, PowerAverage())[0]

    def launch(self, step: StepTime, busy_s: float) -> Series:
        """An engine that works for a while and leaves, as the sampler would see it from 2 s before until after."""
        meter = Meter(self.state, self.settings)
        meter.hold(1 << 30)
        columns: dict[str, list[float]] = {"gpu0_energy_j": [], "gpu0_temperature_c": []}
        t_s: list[float] = []
        meter.begins()
        for number in range(int((busy_s + 2) / STEP_S)):
            self.clock.now += STEP_S
            meter.worked(step, STEP_S)
            if number % 4 == 0:
                shown = self.seen()
                t_s.append(self.clock.now)
                columns["gpu0_energy_j"].append(shown.energy_j)
                columns["gpu0_temperature_c"].append(float(shown.temperature_c))
        meter.idle()
        meter.leave()
        return Series(
            t_s=tuple(t - t_s[0] for t in t_s), columns={name: tuple(values) for name, values in columns.items()}
        )


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    clock = Clock()
    for module in ("boards", "nvidia_smi"):
        monkeypatch.setattr(f"tokenpeak.sim.{module}.time", clock)
    node = devices({"TOKENPEAK_SIM_GPU": "A100 80GB", "TOKENPEAK_SIM_GPU_COUNT": "1"})
    settings = resolve(parse_serve(["meta-llama/Llama-3.1-8B-Instruct"], "0.32.0"), "0.32.0", node, {})
    state = NodeState(tmp_path)
    state.since_unix_s()
    return Board(state=state, clock=clock, settings=settings)


def step(memory: float, arithmetic: float) -> StepTime:
    """A step that binds these shares of its time."""
    return StepTime(
        weights_s=memory,
        kv_s=0.0,
        compute_s=arithmetic,
        attention_s=0.0,
        interconnect_s=0.0,
        launch_s=0.0,
        floor_s=0.0,
        scheduler_s=max(0.0, 1 - max(memory, arithmetic)),
    )


def test_board_warms_and_cools_with_one_time_constant(board: Board) -> None:
    """After one time constant of load it is 63% of the way, after another without any 37% of the way back is left."""
    cool = board.seen().celsius
    series = board.launch(step(1.0, 0.0), FOLLOWS_S - 2)
    warm = board.seen().celsius
    power_w = float(np.diff(series.columns["gpu0_energy_j"][-20:-1]).mean()) / 0.2  # type: ignore[arg-type]
    rest = 28 + 40 * power_w / A100_W

    assert cool == pytest.approx(28 + 40 * 0.12)
    assert warm == pytest.approx(cool + (1 - exp(-1)) * (rest - cool), abs=0.5)
    board.clock.now += FOLLOWS_S
    assert board.seen().celsius == pytest.approx(cool + (warm - cool) * exp(-1), abs=0.3)


def test_counter_never_goes_back(board: Board) -> None:
    """Through load, pause, load and the process's end."""
    meter = Meter(board.state, board.settings)
    meter.hold(1 << 30)
    seen = []
    for _ in range(3):
        meter.begins()
        for _ in range(100):
            board.clock.now += STEP_S
            meter.worked(step(1.0, 0.2), STEP_S)
            seen.append(board.seen().energy_j)
        meter.idle()
        for _ in range(50):
            board.clock.now += 0.2
            seen.append(board.seen().energy_j)
    meter.leave()
    seen.append(board.seen().energy_j)

    assert np.all(np.diff(seen) >= 0)
