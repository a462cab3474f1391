"""While many nodes are probed, a line now and then says how many have answered."""

import pytest

from tokenpeak.sweep import probe
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.probe import _Answered


def events(step: Step, nodes: range) -> list[Event]:
    return [
        Event(kind=kind, step=step, node=f"gpu-{number}")
        for number in nodes
        for kind in ("started", "unreachable" if number == 0 else "ok")
    ]


def said(monkeypatch: pytest.MonkeyPatch, seconds_each: float) -> list[str]:
    """What is said of three nodes, of which every event comes so many seconds after the one before."""
    clock = iter(range(1000))
    monkeypatch.setattr(probe.time, "monotonic", lambda: next(clock) * seconds_each)
    lines: list[str] = []
    hear = _Answered(3, lines.append)
    for event in [*events("install", range(3)), *events("probe", range(1, 4))]:
        hear(event)
    return lines


def test_slow_probe_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is a while after the one before, with both counts; the last node needs none."""
    assert [
        "  2 of 3 nodes have the node script, 0 have answered the probe",
        "  3 of 3 nodes have the node script, 1 have answered the probe",
    ] == said(monkeypatch, 8.0)


def test_quick_probe_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all answer soon, nothing is said."""
    assert [] == said(monkeypatch, 0.5)
