"""When memory has come to rest."""

import pytest

from tokenpeak.node.probe import facts
from tokenpeak.node.probe.facts import Gauge, wait_level


def gauge(*readings: int | None) -> Gauge:
    """Shows these readings in turn, and the last one from then on."""
    left = list(readings)
    return Gauge("vram", lambda: left.pop(0) if len(left) > 1 else left[0], 5)


def test_what_never_comes_to_rest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that moves on is given up after a while, with what is in use then."""
    monkeypatch.setattr(facts, "REST_TIMEOUT_S", 0.3)
    readings = iter(range(1000, 0, -10))
    found = wait_level(Gauge("vram", lambda: next(readings), 5), baseline_bytes=10)

    assert not found.is_level
    assert found.waited_s >= 0.3


def test_rest_above_a_known_baseline_proves_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something may still hold memory for a moment, so a level above the baseline is not taken at once."""
    monkeypatch.setattr(facts, "REST_TIMEOUT_S", 0.3)

    assert not wait_level(gauge(100), baseline_bytes=10).is_level
