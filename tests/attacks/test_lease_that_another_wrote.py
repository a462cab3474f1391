"""A disk, or somebody's editor, leaves a file beside the record that is JSON still, with other numbers in it.

One digit of `lease.json` kept production down until the trial's deadline, and 400 of them ended the guard in a
traceback. A lease whose numbers nobody writes has lapsed; of other files no content ends a guard, a restore or a
status.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.guard import guard, lease, lock, overlap, record
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production import restore

RECORD = {"nonce": "n", "trial_id": "t", "boot_id": clock.boot_id()}
HUGE = 10**400


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.make(tmp_path / "state")


def test_one_digit_of_a_lease(state: State) -> None:
    """It has lapsed, though nothing but its checksum shows it."""
    lease.renew(state, 8.0, "me")
    assert not lease.has_lapsed(state)
    path = state.path(lease.FILE)
    path.write_text(re.sub(r'("lease_s": )8', r"\g<1>9", path.read_text()))

    assert lease.has_lapsed(state)
    assert "silent" in str(guard.is_due(state, RECORD))


@pytest.mark.parametrize(
    "change",
    [
        {"renewed_boot_s": HUGE},
        {"lease_s": HUGE},
        {"renewed_boot_s": float("nan")},
        {"renewed_boot_s": float("inf")},
        {"lease_s": 1e9},
        {"lease_s": float("nan")},
        {"renewed_boot_s": clock.boot_s() + 9e6},
        {"renewed_boot_s": []},
        {"renewed_boot_s": "x"},
    ],
    ids=["huge renewal", "huge lease", "nan renewal", "endless renewal", "long", "nan lease", "future", "list", "text"],
)
def test_numbers_that_nobody_writes(state: State, change: dict[str, Any]) -> None:
    """Of a lease without a checksum too, as an older node script wrote it."""
    now = {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s(), "lease_s": 60.0, "holder": "me"}
    state.path(lease.FILE).write_text(json.dumps({**now, **change}))

    assert lease.has_lapsed(state)
    assert "silent" in str(guard.is_due(state, RECORD))


@pytest.mark.parametrize(
    "at", [None, "x", 1e300, HUGE, [], float("nan")], ids=["null", "text", "late", "huge", "list", "nan"]
)
def test_times_in_other_files(state: State, at: object) -> None:
    """A hold is one still, a lock that of its holder, and who watches is not known; each in words."""
    state.path(lock.HOLD_FILE).write_text(json.dumps({"at_unix_s": at}))
    state.path(lock.FILE).write_text(json.dumps({"holder": "other", "taken_at_unix_s": at, "served": at}))
    state.path(guard.FILE).write_text(json.dumps({"nonce": "n", "boot_id": clock.boot_id(), "pid": at}))
    state.path(overlap.FILE).write_text(json.dumps({"nonce": at}))
    state.path(record.OUTCOME_FILE).write_text(json.dumps({"restored": True, "at_unix_s": at, "earlier": at}))
    lease.renew(state, 60.0, "other")

    assert "is held for production" in str(lock.hold_problem(state))
    with pytest.raises(ScriptError, match="is held by other"):
        lock.take(state, "me")
    assert lock.served(state, "other", None, {"running": True}) is None
    assert not guard.is_armed(state, "n")
    assert guard.is_due(state, RECORD) is None
    assert "given back last" in restore._free_node(state, {})


def test_a_deadline_comes_before_a_lease(state: State) -> None:
    """What the record says is kept whatever the lease says."""
    lease.renew(state, 60.0, "me")

    assert "past its deadline" in str(guard.is_due(state, {**RECORD, "deadline_boot_s": 0.0}))
