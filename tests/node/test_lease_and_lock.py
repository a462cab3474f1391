"""Who has the node, and until when: by the files alone."""

import io
import sys
from pathlib import Path

import pytest

from tokenpeak.node.guard import guard, heartbeats, lease, record
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.make(tmp_path / "state")


def heard(state: State, ago_s: float, lease_s: float | None, boot_id: str | None = None) -> None:
    """The controller was heard of so long ago."""
    found = {
        "boot_id": boot_id or clock.boot_id(),
        "renewed_boot_s": clock.boot_s() - ago_s,
        "lease_s": lease_s,
        "holder": "me",
    }
    state.write(lease.FILE, found)


@pytest.mark.parametrize(
    ("ago_s", "lease_s", "boot_id", "expected"),
    [
        (5, 60, None, False),
        (70, 60, None, True),
        (10_000, None, None, False),
        (5, 60, "an earlier boot", True),
        (5, None, "an earlier boot", True),
    ],
)
def test_lease_lapses_by_silence_or_a_boot(
    state: State, ago_s: float, lease_s: float | None, boot_id: str | None, expected: bool
) -> None:
    """A lease lasts from the last sign of life; one without a length ends with the boot alone."""
    heard(state, ago_s, lease_s, boot_id)

    assert expected == lease.has_lapsed(state)


def test_guard_that_takes_long_to_come_back(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat that has it brought back is one of a controller that lives: the lease does not lapse meanwhile."""
    heard(state, 59, 60)
    left_s = []
    monkeypatch.setattr(guard, "keep_armed", lambda state: left_s.append(lease.remaining_s(state)))
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"number": 1, "holder": "me"}\n'))

    heartbeats.listen(state)

    assert [True] == [left > 50 for left in left_s]


@pytest.mark.parametrize(
    ("ago_s", "borrowed", "holder", "free"),
    [
        (5, False, "sweep-1", True),
        (5, True, "sweep-1", True),
        (5, False, "sweep-2", False),
        (70, False, "sweep-2", True),
        (70, True, "sweep-2", False),
    ],
)
def test_one_sweep_at_a_time_has_the_node(state: State, ago_s: float, borrowed: bool, holder: str, free: bool) -> None:
    """Another sweep gets it from a holder that fell silent, but not before production is back."""
    lease.take_lock(state, "sweep-1")
    heard(state, ago_s, 60)
    if borrowed:
        state.write(record.NAME, {"nonce": "a"})
    if free:
        lease.take_lock(state, holder)
    else:
        with pytest.raises(
            ScriptError, match=r"is held by sweep-1 since .* run `tokenpeak restore --release --inventory NAME`"
        ):
            lease.take_lock(state, holder)

    assert (state.read(lease.LOCK_FILE) or {})["holder"] == (holder if free else "sweep-1")


def test_line_that_is_no_heartbeat(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line with other fields ends the channel with an error that names them."""
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"number": 1, "owner": "me"}\n'))

    with pytest.raises(ScriptError, match="'owner' is unknown; holder is missing"):
        heartbeats.listen(state)
