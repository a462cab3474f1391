"""The record of a trial: production as it was, and by when it must be back. It is there while a trial has the node."""

from __future__ import annotations

from tokenpeak.node.state import Json, State, UnreadableError

NAME = "record.json"
_NEEDED = ("nonce", "holder", "boot_id", "trial_id", "production", "production_ready_s", "engine_stop_s")


def read(state: State) -> Json | None:
    """The record with all that giving the node back needs; None when no trial has the node.

    Raises UnreadableError when there is one that nobody can restore from.
    """
    found = state.read(NAME)
    if found is None:
        return None
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise UnreadableError(f"{state.path(NAME)} lacks {', '.join(missing)}: look at it, then remove it.")
    return found


def read_if_possible(state: State) -> Json | None:
    """The record; None also where it is there and cannot be read, or has just gone."""
    try:
        return read(state)
    except UnreadableError:
        return None
