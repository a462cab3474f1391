"""The sign of life that the controller owes the node while it has it."""

from __future__ import annotations

import json
import sys
import threading

from tokenpeak.node import clock, overlap
from tokenpeak.node.state import Json, State
from tokenpeak.node.trouble import Trouble

FILE = "lease.json"
_LOOK_S = 0.5


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
    """Renew the lease for each line on stdin until it closes; a lease that has already lapsed stays so.

    Each line is answered by `{"heard": LINE}`, so that the controller knows that it is heard; an overlap by a line of
    its own, as soon as it is noted.
    """
    renewals = 0
    is_over = threading.Event()
    threading.Thread(target=_report_overlaps, args=(state, is_over), daemon=True).start()
    try:
        for line in sys.stdin:
            lease = state.read(FILE, durable=False)
            if lease is not None and not has_lapsed(state):
                renew(state, lease["lease_s"])
                renewals += 1
            _say({"heard": line.strip()})
    finally:
        is_over.set()
    return {"renewals": renewals}


def _report_overlaps(state: State, is_over: threading.Event) -> None:
    reported: Json | None = None
    while not is_over.wait(_LOOK_S):
        try:
            found = state.read(overlap.FILE, durable=False)
        except Trouble:
            found = None
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
