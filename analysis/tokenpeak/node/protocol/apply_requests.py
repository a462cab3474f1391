"""Requests of an apply to the node script: observe, change, confirm. They are checked as those of a trial are."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.protocol.requests import PRODUCTION_READY_S, NodeRequest, too_long

OBSERVE_MAX_S = 7200.0
CONCURRENCY_MAX = 64


@dataclass(frozen=True)
class ObserveRequest(NodeRequest):
    """Read production's metrics for `seconds`, every `period_s`, after `settle_s`; with a test load of so many."""

    seconds: float
    period_s: float
    settle_s: float = 0.0
    concurrency: int = 0


@dataclass(frozen=True)
class ChangeRequest(NodeRequest):
    """Change production's definition, and put it back unless a confirmation comes within `confirm_within_s`.

    `edit` is {words, env, image}: each word is a new one, or the number of the word of the present command that stays;
    which of them are the program, the node says itself. Without it, the last confirmed apply is undone. `was_sha256` is
    the definition that was shown.
    """

    apply_id: str
    holder: str
    was_sha256: str
    lease_s: float
    confirm_within_s: float
    edit: Json | None = None
    engine_version: str | None = None
    """The version that production is to report afterwards; None: any."""
    production_ready_s: float = PRODUCTION_READY_S
    script: str | None = None


@dataclass(frozen=True)
class ConfirmRequest(NodeRequest):
    """Make the changed definition production's own."""

    apply_id: str
    holder: str


def check_declared(declaration: Json, request: ChangeRequest) -> None:
    """Raise ScriptError for what the node's own declaration does not allow of a change."""
    if wrong := too_long(declaration, request.lease_s, request.confirm_within_s + request.production_ready_s):
        raise ScriptError("refused", f"The change request is refused, and nothing was touched: {'; '.join(wrong)}.")
