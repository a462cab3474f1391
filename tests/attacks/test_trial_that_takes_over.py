"""The tuner sends a launch, a finish or a restore for what is not his: an apply that waits, or production that is down.

By the name of an apply's holder, which `status` shows, a launch moved the deadline of its confirmation and had the
changed definition stay. A sweep that never had the node, or had found production down, had production started that an
administrator had stopped; or a model made up that production had to serve before the record went.
"""

from typing import Any

import pytest
from tests.node.conftest import APPLY_HOLDER, Node
from tests.node.test_broken_state import answers
from tests.node.test_change import Applied

from tokenpeak.node.guard import lock
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.state import State

SERVED = {"running": True, "model": "prod"}


@pytest.fixture
def waiting(node: Node) -> Applied:
    """An apply that waits to be confirmed."""
    node.production()
    assert node.run("produce")["ready"]
    applied = Applied(node)
    assert node.run("change", applied.node.change_request("--say", "new"))["changed"]
    return applied


def test_launch_takes_over_no_apply(waiting: Applied) -> None:
    """Its deadline, its lease and production stay as they are."""
    node = waiting.node
    before = node.read("record.json"), node.read("lease.json")

    answer = node.run("launch", node.launch_request(holder=APPLY_HOLDER, trial_id="a-1", trial_deadline_s=80_000))

    assert "locked" == answer["error"]["code"], answer
    assert "apply a-1" in answer["error"]["text"]
    assert before == (node.read("record.json"), node.read("lease.json"))
    assert waiting.answers()
    assert waiting.node.confirm()["confirmed"]


@pytest.mark.parametrize("restore_production", [True, False])
def test_finish_ends_no_apply(waiting: Applied, restore_production: bool) -> None:
    """It ends trials, and says who has the node."""
    node = waiting.node
    before = node.read("record.json"), node.read("lease.json")
    request = node.finish_request(holder=APPLY_HOLDER, trial_id="a-1", restore_production=restore_production)

    answer = node.run("finish", request)

    assert "has the node; it was not touched" in answer["restoration"]["message"], answer
    assert before == (node.read("record.json"), node.read("lease.json"))
    assert waiting.node.confirm()["confirmed"]


def stopped_by_an_administrator(node: Node) -> None:
    node.serve()
    node.stop_production()


def test_restore_starts_nothing_that_the_sweep_never_had(node: Node) -> None:
    """Whatever it says that production was."""
    stopped_by_an_administrator(node)

    restoration = node.run("restore", {"holder": "evil", "production_at_start": SERVED})["restoration"]
    of_nobody = node.run("restore", {"production_at_start": SERVED})["restoration"]

    assert "no trial stopped it" in restoration["message"], restoration
    assert "no trial stopped it" in of_nobody["message"], of_nobody
    assert not answers(node)


def test_launch_starts_nothing_that_the_sweep_never_had(node: Node) -> None:
    """Nor by a trial's end."""
    stopped_by_an_administrator(node)

    launched = node.run("launch", node.launch_request(production_at_start=SERVED))
    finished = node.run("finish", node.finish_request())

    assert not launched["production_found_down"], launched
    assert finished["restoration"]["restored"], finished
    assert not answers(node)


def test_restore_starts_nothing_that_its_trials_found_down(node: Node) -> None:
    """One trial of the sweep saw that it was stopped: the sweep's word that it ran is not taken."""
    stopped_by_an_administrator(node)
    assert node.run("launch", node.launch_request())["ready"]
    node.run("finish", node.finish_request(keep_lock=True))

    restoration = node.run("restore", {"holder": "sweep-1", "production_at_start": SERVED})["restoration"]

    assert "ended by itself" not in restoration["message"], restoration
    assert not answers(node)


def test_launch_makes_no_model_up(node: Node) -> None:
    """What production is to serve again is what this node saw it serve."""
    node.serve()
    assert node.run("launch", node.launch_request())["ready"]
    node.run("finish", node.finish_request(keep_lock=True))
    node.stop_production()

    made_up = {"running": True, "model": "no-such-model"}
    launched = node.run("launch", node.launch_request(production_at_start=made_up))
    finished = node.run("finish", node.finish_request(production_ready_s=5))

    assert launched["production_found_down"], launched
    assert finished["restoration"]["restored"], finished
    assert "prod" == finished["restoration"]["model"]
    assert answers(node)


@pytest.mark.parametrize(
    ("word", "holder", "sweep", "expected"),
    [
        (SERVED, "two", "s", {"running": True, "model": "seen"}),
        (SERVED, "two", "another", None),
        ({"running": False, "model": None}, "two", "s", None),
        (None, "two", "s", None),
    ],
)
def test_what_the_node_saw(node: Node, word: Any, holder: str, sweep: str, expected: Any) -> None:
    """It stays with the sweep whose next controller takes the node, and goes to no other sweep."""
    state = State(node.folder)
    lock.take(state, "one", "s")
    lock.note_served(state, "seen")
    state.write("lease.json", {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s() - 9, "lease_s": 5.0})

    lock.take(state, holder, sweep)

    assert expected == lock.served(state, holder, sweep, word)


@pytest.mark.parametrize(
    ("holder", "sweep", "ago_s", "boot_id", "is_had"),
    [
        ("one", None, 0, None, True),
        ("two", None, 0, None, False),
        ("two", "s", 0, None, True),
        (None, None, 0, None, False),
        ("one", None, 500, None, True),
        ("one", None, 5000, None, False),
        ("one", None, 0, "another", False),
    ],
)
def test_who_had_the_node(node: Node, holder: Any, sweep: Any, ago_s: float, boot_id: Any, is_had: bool) -> None:
    """Its holder, or another controller of its sweep, for as long as a lease may be, in this boot."""
    state = State(node.folder)
    state.write(lock.FILE, {"holder": "one", "sweep_id": "s", "taken_at_unix_s": 0.0})
    renewed = {"boot_id": boot_id or clock.boot_id(), "renewed_boot_s": clock.boot_s() - ago_s}
    state.write("lease.json", {**renewed, "lease_s": 5.0, "holder": "one"})

    assert is_had == lock.is_had_by(state, holder, sweep)
