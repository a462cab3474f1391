"""Controllers of one sweep on one node: the newest generation works there, every older one is refused."""

import io
import json
import sys
from typing import Any

import pytest
from tests.node.conftest import Node

from tokenpeak.node.guard import heartbeats, lease
from tokenpeak.node.machine import process
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State

REFUSED = r"^Since .* UTC this sweep is carried on by s from b: generation 1 may do nothing here any more\.$"


def claim(generation: int, sweep: str = "s") -> dict[str, Any]:
    return {"sweep_id": sweep, "generation": generation}


def older(**changes: Any) -> dict[str, Any]:
    """What the first controller's requests have."""
    return {"holder": "s from a", "claim": claim(1), **changes}


def newer(**changes: Any) -> dict[str, Any]:
    """What those of the one that resumed its sweep have."""
    return {"holder": "s from b", "claim": claim(2), **changes}


def test_newer_controller_gives_back_what_the_older_one_borrowed(node: Node) -> None:
    """It need not wait for the lease; after that every command of the older one is refused and changes nothing."""
    node.serve()
    node.run("launch", node.launch_request(**older()))
    engine = node.read("engine.json")

    given = node.run("restore", newer())["restoration"]
    serving = node.read("production.json")
    refused = [
        node.run("launch", node.launch_request(**older())),
        node.run("finish", node.finish_request(**older())),
        node.run("restore", older()),
        node.run("launch", node.launch_request(holder="s from c", claim=claim(2))),
    ]

    assert (True, "0000-abc", "s from a") == (given["restored"], given["trial_id"], given["holder"])
    assert engine is not None
    assert not process.is_alive(engine)
    assert ["fenced"] * 4 == [answer["error"]["code"] for answer in refused]
    assert "this sweep is carried on by s from b: generation 1 may do nothing" in refused[0]["error"]["text"]
    assert serving is not None
    assert process.is_alive(serving)
    assert serving == node.read("production.json")
    assert (None, {"s": 2}) == (node.read("record.json"), node.run("status")["generations"])


def test_older_controller_cannot_touch_the_newer_ones_trial(node: Node) -> None:
    """A trial of equal id under the newer claim goes on, and its answer is the newer controller's alone."""
    node.run("launch", node.launch_request(**older()))
    launched = node.run("launch", node.launch_request(**newer()))
    engine = node.read("engine.json")
    late = [node.run("finish", node.finish_request(**older())), node.run("restore", older())]

    assert launched["ready"] is True
    assert ["fenced"] * 2 == [answer["error"]["code"] for answer in late]
    assert engine is not None
    assert process.is_alive(engine)
    assert (node.read("record.json") or {})["holder"] == "s from b"
    assert node.run("finish", node.finish_request(**newer()))["restoration"]["restored"]


def test_older_controllers_lease_is_not_renewed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heartbeats end with the sentence that says who has the sweep."""
    state = State(node.folder)
    lease.renew(state, 60, "s from a")
    lease.note_generation(state, claim(2), "s from b")
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"number": 1, **older()}) + "\n"))

    with pytest.raises(ScriptError, match=REFUSED):
        heartbeats.listen(state)


@pytest.mark.parametrize("torn", [("generations.json",), ("generations.json", "generations.copy.json")])
def test_torn_file_keeps_no_production_away(node: Node, torn: tuple[str, ...]) -> None:
    """One torn copy refuses as before; with both, the node gives itself back to whoever asks."""
    node.run("restore", newer())
    for name in torn:
        (node.folder / name).write_text("{")
    answer = node.run("restore", older())

    assert ("error" in answer) == (len(torn) == 1)
