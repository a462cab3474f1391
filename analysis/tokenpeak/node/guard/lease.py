"""Lease of the node: the node gives itself back when its holder's heartbeats stop."""

from __future__ import annotations

import math

from tokenpeak.node.machine import clock
from tokenpeak.node.machine.state import State
from tokenpeak.node.protocol.field import SECONDS_MAX

FILE = "lease.json"
_AHEAD_S = 1.0
"""A heartbeat may be written while its lease is looked at, and none was later than now by more."""


def renew(state: State, lease_s: float | None, holder: str) -> None:
    """`holder` was heard of now; `lease_s` None: no further heartbeat is needed."""
    now = {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s()}
    state.write(FILE, {**now, "lease_s": lease_s, "holder": holder}, durable=False)


def remaining_s(state: State) -> float | None:
    """Seconds until the lease lapses, negative when it has; None when it never does.

    A reboot ends every lease, and so does whatever makes its file unreadable.
    """
    lease = state.read(FILE) or {}
    if lease.get("boot_id") != clock.boot_id():
        return -1.0
    if lease.get("lease_s", 0) is None:
        return None
    try:
        renewed_s, lease_s = float(lease["renewed_boot_s"]), float(lease["lease_s"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return -1.0
    left_s = renewed_s + lease_s - clock.boot_s()
    # A file without a checksum, of an older script, may hold numbers that `renew` never writes.
    is_possible = math.isfinite(left_s) and 0 < lease_s <= SECONDS_MAX and left_s <= lease_s + _AHEAD_S
    return left_s if is_possible else -1.0


def has_lapsed(state: State) -> bool:
    """Whether the controller has been silent for too long."""
    left_s = remaining_s(state)
    return left_s is not None and left_s <= 0
