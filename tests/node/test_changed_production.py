"""Production that somebody changed during a trial: another model or definition is said, and can be accepted."""

import sys

import pytest
from tests.node.conftest import STANDIN, Node

from tokenpeak.node.production.managers.command import OwnProcessManager


def serve(node: Node, model: str) -> None:
    """Have the trial's record start production with this model, as an operator's edit does."""
    record = node.read("record.json")
    port = record["production"]["url"].rsplit(":", 1)[1]
    argv = [sys.executable, str(STANDIN), "serve", model, "--port", port]
    record["production"]["declared"]["process"]["argv"] = argv
    node.rewrite("record.json", record)


@pytest.fixture
def edited(node: Node) -> Node:
    """A node whose production is edited to another model while a trial has it."""
    node.serve()
    assert node.run("launch", node.launch_request(production_ready_s=20))["ready"]
    serve(node, "another")
    return node


def test_another_model_is_named_and_accepted(edited: Node) -> None:
    """A restore says at once what is served in place of what, and how to take it so; then the node is given back."""
    refused = edited.run("restore")["restoration"]
    status = edited.run("status")
    accepted = edited.run("restore", {"accept": True})["restoration"]

    assert refused["restored"] is False
    assert "serves 'another' and not 'prod'" in refused["message"]
    assert "tokenpeak restore --accept" in refused["message"]
    assert status["armed"]
    assert (True, "another") == (accepted["restored"], accepted["model"]), accepted
    assert edited.read("record.json") is None


def test_another_definition_is_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Production serves the recorded model by a definition that somebody changed during the trial."""
    node.serve()
    node.run("launch", node.launch_request())
    described = OwnProcessManager.describe
    monkeypatch.setattr(OwnProcessManager, "describe", lambda self: {**described(self), "seen": "edited"})

    changed = node.run("finish", node.finish_request())["restoration"]

    assert (True, "changed") == (changed["restored"], changed["definition"])
    assert "Somebody else has changed its definition since the trial began" in changed["message"]
