"""The sign of life that the controller owes the node while it has it."""

from __future__ import annotations

import sys

from tokenpeak.node import clock
from tokenpeak.node.state import Json, State

FILE = "lease.json"


def renew(state: State, lease_s: float | None, holder: str) -> None:
    """`holder` was heard of now; `lease_s` None: it owes no further sign."""
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
        return float(lease["renewed_boot_s"] + lease["lease_s"] - clock.boot_s())
    except (KeyError, TypeError):
        return -1.0


def has_lapsed(state: State) -> bool:
    """Whether the controller has been silent for too long."""
    left_s = remaining_s(state)
    return left_s is not None and left_s <= 0


def listen(state: State) -> Json:
    """Renew the lease for each line on stdin that names its holder, until stdin closes.

    A lease that has already lapsed stays so, and nobody renews another's: the controller that had the node before may
    live on with its channel open while the one that has it now is dead. Raises Trouble when a trial has the node, no
    guard watches and none can be started: the controller then ends the trial while it can.
    """
    from tokenpeak.node import guard

    renewals = 0
    for line in sys.stdin:
        lease = state.read(FILE)
        if lease is not None and not has_lapsed(state) and lease.get("holder") == line.strip():
            guard.keep_armed(state)
            renew(state, lease["lease_s"], lease["holder"])
            renewals += 1
    return {"renewals": renewals}
