"""The sign of life that the controller owes the node while it has it."""

from __future__ import annotations

import json
import sys
import threading

from tokenpeak.node import clock, overlap
from tokenpeak.node.state import Json, State

FILE = "lease.json"
_LOOK_S = 0.5


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
    """Renew the lease for each line `NUMBER HOLDER` on stdin that names its holder, until stdin closes.

    A lease that has already lapsed stays so, and nobody renews another's: the controller that had the node before may
    live on with its channel open while the one that has it now is dead. Each line is answered by `{"heard": NUMBER}`,
    so that the controller knows that it is heard; an overlap by a line of its own, as soon as it is noted.

    Raises Trouble when a trial has the node, no guard watches and none can be started: the controller then hears
    nothing more.
    """
    from tokenpeak.node import guard

    renewals = 0
    is_over = threading.Event()
    threading.Thread(target=_report_overlaps, args=(state, is_over), daemon=True).start()
    try:
        for line in sys.stdin:
            number, _, holder = line.strip().partition(" ")
            lease = state.read(FILE)
            if lease is not None and not has_lapsed(state) and lease.get("holder") == holder:
                guard.keep_armed(state)
                renew(state, lease["lease_s"], holder)
                renewals += 1
            _say({"heard": number})
    finally:
        is_over.set()
    return {"renewals": renewals}


def _report_overlaps(state: State, is_over: threading.Event) -> None:
    reported: Json | None = None
    while not is_over.wait(_LOOK_S):
        found = state.read(overlap.FILE)
        if found and found != reported:
            reported = found
            _say({"overlap": found})


def _say(answer: Json) -> None:
    try:
        # One write: two threads speak.
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except OSError:
        # A controller that hung up is noticed by the end of its lines.
        return
