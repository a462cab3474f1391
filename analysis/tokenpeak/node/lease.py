"""The sign of life that the controller owes the node while it has it."""

from __future__ import annotations

import sys

from tokenpeak.node import clock
from tokenpeak.node.state import Json, State

FILE = "lease.json"


def renew(state: State, lease_s: float | None) -> None:
    """The controller was heard of now; `lease_s` None: it owes no further sign."""
    state.write(FILE, {"boot_id": clock.boot_id(), "renewed_boot_s": clock.boot_s(), "lease_s": lease_s}, durable=False)


def remaining_s(state: State) -> float | None:
    """Seconds until the lease lapses, negative when it has; None when it never does. A reboot ends every lease."""
    lease = state.read(FILE, durable=False)
    if lease is None or lease["boot_id"] != clock.boot_id():
        return -1.0
    if lease["lease_s"] is None:
        return None
    return float(lease["renewed_boot_s"] + lease["lease_s"] - clock.boot_s())


def has_lapsed(state: State) -> bool:
    """Whether the controller has been silent for too long."""
    left_s = remaining_s(state)
    return left_s is not None and left_s <= 0


def listen(state: State) -> Json:
    """Renew the lease for each line on stdin until it closes; a lease that has already lapsed stays so."""
    renewals = 0
    for _ in sys.stdin:
        lease = state.read(FILE, durable=False)
        if lease is not None and not has_lapsed(state):
            renew(state, lease["lease_s"])
            renewals += 1
    return {"renewals": renewals}
