"""Idle power of a node, from samples of a known power and on a node whose meter is known."""

import pytest
import yaml
from driven_home import SPEC, Home
from tests.node.conftest import Node, node

from tokenpeak.records import Phase, Series
from tokenpeak.results.board_readings import ASKED_S, idle_power
from tokenpeak.results.power_sensor import UNKNOWN

__all__ = ["node"]


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


def test_node_is_sampled_before_its_engine_starts(node: Node) -> None:
    """A launch that asks for it has samples from its idle phase, which ends before the engine's start."""
    node.declare(power_command=["echo", "250"])

    launched = node.run("launch", node.launch_request(idle_s=2.5))
    finished = node.run("finish", node.finish_request())

    spans = {phase["name"]: phase for phase in launched["phases"]}
    idle, engine = spans["idle_power"], spans["engine_start"]
    assert 2.5 <= idle["duration_s"] < 4
    assert idle["started_s"] + idle["duration_s"] <= engine["started_s"]
    began = launched["started_at_unix_s"] + idle["started_s"]
    telemetry = finished["telemetry"]
    in_it = [
        watts
        for t, watts in zip(telemetry["t_s"], telemetry["columns"]["node_power_w"], strict=True)
        if began <= t <= began + idle["duration_s"] and watts is not None
    ]
    assert 250.0 in in_it


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
