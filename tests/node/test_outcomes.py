"""How a trial's restoration ended is known to its controller, whoever has had the node since."""

import time

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import record
from tokenpeak.node.machine.state import State


def borrowed_by(node: Node, holder: str) -> None:
    launched = node.run("launch", node.launch_request(holder=holder, engine_stop_s=0.3))
    assert launched.get("ready"), launched


@pytest.mark.integration
def test_controller_that_slept_while_another_took_the_node(node: Node) -> None:
    """Its trial's end, asked for late, has the outage as long as it was, and leaves the other's trial alone."""
    node.serve()
    began_s = time.monotonic()
    borrowed_by(node, "asleep")
    borrowed_s = time.monotonic()
    time.sleep(1.0)
    least_s = time.monotonic() - borrowed_s
    node.lapse()
    most_s = time.monotonic() - began_s
    borrowed_by(node, "awake")
    time.sleep(0.5)

    finished = node.run("finish", node.finish_request(holder="asleep"))

    restoration = finished["restoration"]
    # By this test's own clock: down from some moment of the launch until some moment of the guard's return.
    assert least_s <= restoration["downtime_s"] <= most_s
    assert ("asleep", "guard", True) == (restoration["holder"], finished["given_back_by"], restoration["restored"])
    assert "awake has the node; it was not touched" in restoration["message"]
    assert node.read("record.json") is not None


@pytest.mark.integration
def test_every_trials_outcome_is_kept(node: Node) -> None:
    """Status has the last restoration and those before it, one of each trial and no more than can be kept."""
    node.serve()
    for holder in ("first", "second"):
        borrowed_by(node, holder)
        node.lapse()
    answer = node.run("status")
    own = node.run("restore", {"holder": "first"})["last_restoration"]
    state = State(node.folder)
    for number in range(60):
        record.note_outcome(
            state, {"restored": True, "trial_id": f"{number:04d}", "holder": "many", "by": "guard"}, None
        )

    assert "second" == answer["last_restoration"]["holder"]
    assert ["first"] == [known["holder"] for known in answer["earlier_restorations"]]
    assert "first" == own["holder"]
    assert 25 == len(record.known_outcomes(state))
    assert record.outcome_of_trial(state, "0040", "many") is not None
    assert state.path(record.OUTCOME_FILE).stat().st_size < 10_000
