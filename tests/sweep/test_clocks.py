"""GPU clocks of a run, as the node's telemetry reports them."""

import json
from pathlib import Path

import pytest

from archive_factory import sweep_spec, trial_record
from tokenpeak.records import RunRecord, Series
from tokenpeak.results.board_readings import clock_reasons
from tokenpeak.spec.workload import ClosedLoad, LoadLevel, Stage, StagedLoad

H100 = json.loads((Path(__file__).parent / "recordings" / "h100_clocks.json").read_text())
"""What a healthy H100 did under vLLM 0.24 with 256 requests at once: prefill at 1380 MHz, decode at 1980, by turns."""


def run(level: LoadLevel) -> RunRecord:
    """A run of the factory at this load."""
    trial, _ = trial_record(sweep_spec())
    return trial.runs[0].model_copy(update={"level": level, "level_label": level.label})


def telemetry(clocks: list[float], utilization: list[float], slowed: list[float] | None = None) -> Series:
    columns = {"gpu1_sm_clock_mhz": tuple(clocks), "gpu1_utilization": tuple(utilization)}
    if slowed is not None:
        columns["gpu1_slowed"] = tuple(slowed)
    return Series(t_s=tuple(range(len(clocks))), columns=columns)


FALLING = [1980.0] * 20 + [1500.0] * 20
CLOSED = ClosedLoad(concurrency=4, requests=100)
STAGED = StagedLoad(stages=(Stage(duration_s=10, concurrency=1), Stage(duration_s=10, concurrency=8)))


@pytest.mark.parametrize(
    ("level", "series", "window", "codes"),
    [
        (CLOSED, telemetry(FALLING, [1.0] * 40), (10, 30), ["clock_throttled"]),
        (CLOSED, telemetry(FALLING, [1.0] * 40, [0.0] * 40), (10, 30), []),
        (CLOSED, telemetry(FALLING[::-1], [1.0] * 40), (10, 30), []),
        (CLOSED, telemetry(FALLING, [1.0] * 40), (22, 38), []),
        (CLOSED, telemetry(FALLING, [1.0] * 20 + [0.1] * 20), (10, 30), []),
        (CLOSED, telemetry([1980.0] * 40, [1.0] * 40, [0.0] * 20 + [1.0] * 20), (10, 30), ["clock_throttled"]),
        (STAGED, telemetry(FALLING, [1.0] * 40), (10, 30), []),
        (CLOSED, Series(), (10, 30), []),
    ],
    ids=[
        "falls",
        "falls, not held back",
        "rises",
        "fell before",
        "idle after",
        "slowed by its driver",
        "load changes",
        "no telemetry",
    ],
)
def test_clock(level: LoadLevel, series: Series, window: tuple[float, float], codes: list[str]) -> None:
    """Only what a busy GPU's clock did within the run speaks against it, and the GPU is named."""
    reasons = clock_reasons(run(level), series, from_s=window[0], to_s=window[1])

    assert codes == [reason.code for reason in reasons]
    assert all("GPU 1" in reason.text for reason in reasons)


@pytest.mark.parametrize("reported", [True, False], ids=["driver reports", "clocks alone"])
@pytest.mark.parametrize("recorded", H100, ids=lambda recorded: str(recorded["config"]))
def test_healthy_board_under_its_power_limit(recorded: dict[str, object], *, reported: bool) -> None:
    """A clock that follows prefill and decode under the power limit says nothing against a run."""
    columns = {str(name): tuple(values) for name, values in recorded["columns"].items()}  # type: ignore[attr-defined]
    if not reported:
        del columns["gpu0_slowed"]
    series = Series(t_s=tuple(recorded["t_s"]), columns=columns)  # type: ignore[arg-type]
    clocks = columns["gpu0_sm_clock_mhz"]

    assert min(clocks) < 0.85 * max(clocks)
    assert not clock_reasons(run(CLOSED), series, from_s=0.0, to_s=1000.0)
