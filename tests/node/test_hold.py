"""A restore by a person holds the node: a sweep that lives does not get it again until a person releases it."""

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import lease
from tokenpeak.node.guard.lease import RELEASE
from tokenpeak.node.machine.error import ScriptError


@pytest.fixture
def had(node: Node) -> Node:
    """A node that a sweep has in a trial."""
    node.serve()
    assert node.run("launch", node.launch_request())["ready"]
    return node


def test_the_sweep_does_not_take_it_again(had: Node) -> None:
    """The next trial is refused before production is touched; restore, status, probe and the refusal say why."""
    said = had.run("restore")["restoration"]
    finished = had.run("finish", had.finish_request(keep_lock=True))
    refused = had.run("launch", had.launch_request(trial_id="0001-abc"))
    status = had.run("status")
    problems = had.run("probe")["problems"]

    assert said["restored"]
    assert f"It is held: no trial begins here until {RELEASE}" in said["message"]
    assert "restore" == finished["given_back_by"]
    assert lease.HELD == refused["error"]["code"]
    assert RELEASE in refused["error"]["text"]
    assert (True, False) == (status["production"]["running"], status["armed"])
    assert status["held_since_unix_s"] is not None
    assert any("is held for production" in problem for problem in problems), problems


def test_a_person_releases_it(had: Node) -> None:
    """Then a trial begins again."""
    had.run("restore")
    said = had.run("restore", {"release": True})["restoration"]
    launched = had.run("launch", had.launch_request(trial_id="0001-abc"))

    assert "It is released" in said["message"]
    assert launched.get("ready"), launched
    assert had.run("status")["held_since_unix_s"] is None


def test_a_hold_that_cannot_be_read_is_one(node: Node) -> None:
    """A torn file does not give the node to a sweep."""
    from tokenpeak.node.machine.state import State

    state = State(node.folder)
    state.path(lease.HOLD_FILE).write_bytes(b"{")

    with pytest.raises(ScriptError, match="is held for production"):
        lease.require_no_hold(state)
    assert not lease.is_had_by_living_sweep(state)
    lease.take_lock(state, "sweep-1")
    lease.renew(state, 60, "sweep-1")
    assert lease.is_had_by_living_sweep(state)
