"""Heartbeats of the lease's holder: a line on standard input each, answered by a line, until the input closes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress

from tokenpeak.node.guard import guard, lease, overlap
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.protocol import frame, requests
from tokenpeak.node.protocol.answers import HeardAnswer, LeaseAnswer, NodeAnswer, OverlapAnswer, as_json
from tokenpeak.node.protocol.parts import Overlap, picked

SILENT_S = 120.0
"""A channel without a line for so long ends: whoever left it there unread keeps a process of root's else."""
_LOOK_S = 0.5
_SILENT_STATUS = 3
_STANDARD_ERROR = 2


def listen(state: State) -> LeaseAnswer:
    """Renew the lease for each HeartbeatRequest (a line on stdin) of its holder, until stdin closes.

    A lease that has already lapsed stays so, and nobody renews another's: the controller that had the node before may
    live on with its channel open while the one that has it now is dead. Each is answered by a HeardAnswer; an
    overlap by an OverlapAnswer of its own, as soon as it is noted.

    Raises ScriptError for a line that is no heartbeat, for one of an older generation than was here, and when a trial
    has the node, no guard watches and none can be started.
    """
    renewals = 0
    heard_s = [time.monotonic()]
    is_over = threading.Event()
    threading.Thread(target=_report_overlaps, args=(state, is_over), daemon=True).start()
    threading.Thread(target=_await_silence, args=(heard_s, is_over), daemon=True).start()
    try:
        while line := _line():
            heard_s[0] = time.monotonic()
            beat = requests.parse(requests.HeartbeatRequest, frame.parsed(line))
            lease.refuse_older(state, beat.claim, beat.holder)
            held = state.read(lease.FILE)
            if held is not None and not lease.has_lapsed(state) and held.get("holder") == beat.holder:
                # First, because a guard may take longer to come back than the lease has left.
                lease.renew(state, held["lease_s"], beat.holder)
                guard.keep_armed(state)
                renewals += 1
            _say(HeardAnswer(heard=beat.number))
    finally:
        is_over.set()
    return LeaseAnswer(renewals=renewals)


def _line() -> str:
    """The next line of standard input; empty at its end. Raises ScriptError for one that is no heartbeat's."""
    try:
        line = sys.stdin.readline(requests.HEARTBEAT_BYTES + 1)
    except ValueError as error:
        raise ScriptError("request", "A line of the lease is no text.") from error
    if len(line) > requests.HEARTBEAT_BYTES:
        raise ScriptError("request", f"A line of the lease has more than {requests.HEARTBEAT_BYTES} characters.")
    return line


def _report_overlaps(state: State, is_over: threading.Event) -> None:
    reported: Json | None = None
    while not is_over.wait(_LOOK_S):
        noted = state.read(overlap.FILE)
        if noted and noted != reported:
            reported = noted
            _say(OverlapAnswer(overlap=picked(Overlap, noted)))


def _await_silence(heard_s: list[float], is_over: threading.Event) -> None:
    """End this process once no line has come for too long; it waits for one, or for somebody to read its answers."""
    while time.monotonic() - heard_s[0] <= SILENT_S:
        if is_over.wait(_LOOK_S):
            return
    with suppress(OSError):
        os.set_blocking(_STANDARD_ERROR, False)
        os.write(_STANDARD_ERROR, f"No line of the lease came for {SILENT_S:g} s.\n".encode())
    os._exit(_SILENT_STATUS)


def _say(answer: NodeAnswer) -> None:
    try:
        # One write: two threads speak.
        sys.stdout.write(json.dumps(as_json(answer), default=vars) + "\n")
        sys.stdout.flush()
    except OSError:
        # A controller that hung up is noticed by the end of its lines.
        return
