"""Idle power of a node, from samples of a known power and on a node whose meter is known."""

import pytest
import yaml
from driven_home import SPEC, Home

from tokenpeak.records import Phase, Series
from tokenpeak.results.board_readings import ASKED_S, idle_power
from tokenpeak.results.power_sensor import UNKNOWN


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
