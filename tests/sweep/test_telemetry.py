"""What a trial's samples say: clocks, temperature, idle power, and whose time its seconds were."""

import json
from pathlib import Path

import pytest
import yaml
from driven_home import SPEC, Home

from archive_factory import sweep_spec, trial_record
from tokenpeak.node.protocol.answers import LaunchAnswer
from tokenpeak.records import Phase, RunRecord, Series
from tokenpeak.results.board_readings import ASKED_S, board_temperature_c, clock_reasons, idle_power
from tokenpeak.results.power_sensor import UNKNOWN
from tokenpeak.results.trial_time import clock_offset_s, fill_gaps, merged, node_phases
from tokenpeak.spec.load import ClosedLoad, LoadLevel, Stage, StagedLoad

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


TIMES = (0.0, 0.2, 1.0, 1.2, 2.0, 2.2, 9.0)
FIRST = (40.0, None, 50.0, None, 60.0, None, 70.0)
SECOND = (44.0, None, 54.0, None, 64.0, None, None)


def test_nearest_readings_of_all_boards_are_averaged() -> None:
    series = Series(t_s=TIMES, columns={"gpu0_temperature_c": FIRST, "gpu1_temperature_c": SECOND})

    assert board_temperature_c(series, 1.2) == 52.0


def test_a_board_without_a_reading_near_gives_none() -> None:
    both = Series(t_s=TIMES, columns={"gpu0_temperature_c": FIRST, "gpu1_temperature_c": SECOND})

    assert board_temperature_c(both, 8.0) is None
    assert board_temperature_c(Series(t_s=TIMES, columns={"gpu0_temperature_c": FIRST}), 8.0) == 70.0
    assert board_temperature_c(Series(t_s=TIMES, columns={"gpu0_power_w": FIRST}), 1.0) is None


def test_idle_power_is_that_before_the_engine() -> None:
    """Boards at 70 W each and a node at 310 W until the engine starts, then nine times as much."""
    times = tuple(0.2 * number for number in range(60))
    drawn = tuple(1.0 if t < ASKED_S else 9.0 for t in times)
    columns = {
        **{f"gpu{board}_power_w": tuple(70.0 * each for each in drawn) for board in (0, 1)},
        "node_power_w": tuple(310.0 * each for each in drawn),
    }
    phases = [Phase(name="idle_power", kind="orchestration", started_s=0.0, duration_s=ASKED_S - 0.5)]

    found = {each.boundary: each for each in idle_power(Series(t_s=times, columns=columns), phases, UNKNOWN)}

    assert found["gpu_boards"].power_w == pytest.approx(140, rel=0.02)
    assert found["gpu_boards"].low_w < 140 < found["gpu_boards"].high_w
    assert found["node"].low_w < 310 < found["node"].high_w


@pytest.mark.e2e
def test_first_trial_measures_the_idle_node(home: Home) -> None:
    """A simulated L4 idles at 12% of its 72 W; the second trial of the sweep does not measure it again."""
    spec = {**SPEC, "axes": {"max_num_seqs": [8, 64]}}
    (home.root / "analysis" / "sweeps" / "idle.yml").write_text(yaml.safe_dump(spec))
    done = home.run("sweep", "--inventory", "lone", "--sweep", "idle", "--no-report")
    first, second = home.trials(home.archives()[-1])[:2]

    (boards,) = (each for each in first["idle_power"] if each["boundary"] == "gpu_boards")
    assert boards["power_w"] == pytest.approx(0.12 * 72, rel=0.05), done.stdout
    assert not second["idle_power"]


def test_unclaimed_time_is_named_after_the_step_that_ran() -> None:
    """The load client's own start and end are distinguished from Ansible's."""
    load = Phase(name="load", kind="load", started_s=3.0, duration_s=5.0)
    filled = fill_gaps([load], 10.0, [("load", 1.0, 9.0)])

    expected = [("ansible", 1.0), ("load client", 2.0), ("load", 5.0), ("load client", 1.0), ("ansible", 1.0)]
    assert expected == [(phase.name, phase.duration_s) for phase in filled]


def test_node_phases_are_put_on_the_trials_clock() -> None:
    """A node whose clock is a minute ahead has its phases where they happened here."""
    started = Phase(name="engine_start", kind="engine_start", started_s=1.0, duration_s=9.0)
    answer = LaunchAnswer(started_at_unix_s=1065.0, phases=(started,))
    offset_s = clock_offset_s(answer, 1015.0, is_local=False)
    (phase,) = node_phases(answer, offset_s=offset_s, trial_started_unix_s=1000.0)

    assert (60.0, 6.0) == (offset_s, phase.started_s)


def test_merged_series_keep_every_sample() -> None:
    """Two samplers' columns stand on one clock, with None where one of them did not sample."""
    first = Series(t_s=(0.0, 1.0), columns={"a": (1.0, 2.0)})
    second = Series(t_s=(0.5, 1.0), columns={"b": (3.0, 4.0)})

    expected = Series(t_s=(0.0, 0.5, 1.0), columns={"a": (1.0, None, 2.0), "b": (None, 3.0, 4.0)})
    assert expected == merged(first, second)
