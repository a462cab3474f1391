"""Whom a sweep notifies of its nodes and of its end, by real processes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from driven_home import notified, receiver_to

from tokenpeak.errors import InventoryError
from tokenpeak.node.machine import clock
from tokenpeak.records import EndRecord
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.progress import Notifier, lacking


def inventory(*receivers: object) -> Inventory:
    """Two nodes that have the same receivers."""
    variables = {"tokenpeak_notify": list(receivers)}
    nodes = tuple(Node(name=name, variables=variables) for name in ("one", "two"))
    return Inventory(name="lab", hosts_path=Path("hosts.yml"), nodes=nodes)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of its own, for the log of what did not get through."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))


def got(path: Path, count: int) -> list[tuple[str, str | None]]:
    """Event and node of what the receiver got, once that is so many."""
    assert clock.wait_until(lambda: len(notified(path)) >= count, 20), notified(path)
    return sorted((sent["event"], sent["node"] or "") for sent in notified(path))


def test_an_outage_is_notified_once_and_its_end(tmp_path: Path) -> None:
    """However often a node is asked: production of it is down, then back; a node that was never down is no news."""
    path = tmp_path / "notified.jsonl"
    notifier = Notifier(inventory(receiver_to(path)), "sweep-1")

    notifier.production("two", is_back=True)
    for is_back in (False, False, True, True):
        notifier.production("one", is_back=is_back)

    assert [("production_back", "one"), ("production_down", "one")] == got(path, 2)


def test_ends_and_lemons_are_notified(tmp_path: Path) -> None:
    """A node left out, an interrupted sweep, one that an error ended: a receiver of two nodes gets each once."""
    path = tmp_path / "notified.jsonl"
    notifier = Notifier(inventory(receiver_to(path)), "sweep-1")

    notifier.left_out("two", 2)
    end = EndRecord(
        sweep_id="sweep-1",
        status="interrupted",
        ended_at=datetime.now(UTC),
        trials=3,
        unrestored=("one",),
        problems=("x",),
    )
    notifier.ended(end)
    notifier.aborted(ValueError("with a secret in it"))

    assert [("lemon_node", "two"), ("sweep_aborted", ""), ("sweep_aborted", "")] == got(path, 3)
    texts = " ".join(sent["text"] for sent in notified(path))
    assert "3 trials, 1 problem; production is not back on one." in texts
    assert "was aborted by ValueError." in texts and "secret" not in texts


def test_what_cannot_be_called_is_said_before() -> None:
    """A mistake is an error before anything is stopped; what this machine lacks is a warning."""
    with pytest.raises(InventoryError, match="Node one: tokenpeak_notify, receiver 1: it has mail"):
        lacking(inventory({"mail": "a@b"}))

    assert ["tokenpeak_notify, receiver 1: there is no program /opt/none here"] == [
        text.partition(";")[0] for text in lacking(inventory({"command": ["/opt/none"]}))
    ]
