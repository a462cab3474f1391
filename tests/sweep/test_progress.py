"""What a sweep says, and to whom: on a terminal, and to those that its inventory names."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from driven_home import notified, receiver_to
from rich.console import Console

from tokenpeak.errors import InventoryError
from tokenpeak.node.machine import clock
from tokenpeak.records import EndRecord
from tokenpeak.search.remaining import TrialCount
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.progress import Notifier, ProgressDisplay, lacking


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """A standard output whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    before, sys.stdout = sys.stdout, os.fdopen(writer, "w")
    try:
        yield
    finally:
        closed, sys.stdout = sys.stdout, before
        with contextlib.suppress(BrokenPipeError):
            closed.close()


@pytest.mark.parametrize("terminal", [True, False])
def test_nobody_reads_any_more(terminal: bool) -> None:
    """A terminal that hung up, or a pipe that closed, ends neither the worker that says something nor the table."""
    with unread():
        progress = ProgressDisplay(terminal=terminal)
        progress.expect(TrialCount(remaining=1), ("one",), 1)
        with progress.shown():
            progress.trial_begins("one", "0001-a", "max_num_seqs=8", "first")
            progress.phase(Event(kind="started", node="one", step="launch"))
            progress.say("one is done")


def test_each_node_has_a_line_of_a_narrow_terminal() -> None:
    """How far the sweep is stands first, then a line for each node, those at work first."""
    progress = ProgressDisplay(terminal=True)
    progress.expect(TrialCount(remaining=40), ("gpu-node-001", "gpu-node-002"), 1)
    progress.trial_begins("gpu-node-002", "0012-abcdef12", "max_num_seqs=64,max_num_batched_tokens=2048", "first")
    progress.phase(Event(kind="started", node="gpu-node-002", step="launch"))
    screen = Console(width=80, file=io.StringIO())
    with screen.capture() as captured:
        screen.print(progress.table())

    standing, heading, *nodes = captured.get().splitlines()
    assert "0 of 40 trials" == standing.strip()
    assert heading.startswith("node")
    assert [("gpu-node-002", "0012"), ("gpu-node-001", "waiting")] == [tuple(line.split()[:2]) for line in nodes]


def test_a_node_without_production_has_none_to_return(capsys: pytest.CaptureFixture[str]) -> None:
    """The steps are named after the engine alone."""
    progress = ProgressDisplay(terminal=False)
    progress.expect(TrialCount(remaining=1), ("one", "two"), 1, idle=frozenset({"one"}))
    for node in ("one", "two"):
        progress.phase(Event(kind="started", node=node, step="finish"))

    one, two = capsys.readouterr().out.splitlines()
    assert one.endswith("one engine ends, results are collected")
    assert two.endswith("two production returns, results are collected")


def test_only_declared_nodes_are_idle() -> None:
    """A node is without production where its declaration says so, not where nothing is known of it."""
    declarations = {"none": {"manager": "none"}, "absent": None, "systemd": {"manager": "systemd"}}
    nodes = [Node(name=name, variables={}, declaration={"production": it}) for name, it in declarations.items()]
    nodes.append(Node(name="unknown", variables={}))
    lab = Inventory(name="lab", hosts_path=Path("hosts.yml"), nodes=tuple(nodes))

    assert {"none", "absent"} == lab.idle


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


def test_ends_and_excluded_nodes_are_notified(tmp_path: Path) -> None:
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

    assert [("node_excluded", "two"), ("sweep_aborted", ""), ("sweep_aborted", "")] == got(path, 3)
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
