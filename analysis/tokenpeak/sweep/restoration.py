"""Restoration: how production stands after a node was given back, as the node reports."""

from typing import TYPE_CHECKING

from tokenpeak.node.protocol.answers import RestoreAnswer, RestoreOutcome
from tokenpeak.sweep.node_result import NodeResult

if TYPE_CHECKING:
    from tokenpeak.records import Restoration


def unknown(reason: str) -> RestoreOutcome:
    """What is known of production whose node gave no account of it: nothing, and why."""
    return RestoreOutcome(restored=None, was_running=True, message=reason)


def recorded(outcome: RestoreOutcome | None) -> "Restoration | None":
    """The outcome as an archive has it: production that is not known to be back is not, and the message says so."""
    if outcome is None:
        return None
    # Imported here: `status` and `restore` are quick, and record nothing.
    from tokenpeak.records import Restoration

    message = f"Not known: {outcome.message}" if outcome.restored is None else outcome.message
    found = {name: getattr(outcome, name) for name in Restoration.model_fields}
    return Restoration(**{**found, "restored": bool(outcome.restored), "message": message})


def restored_by(result: NodeResult, holder: str = "", trial_id: str | None = None) -> RestoreOutcome:
    """How production stands after a restore; where the guard was first, its own account of this trial counts."""
    answer = result.answer(RestoreAnswer) or RestoreAnswer()
    not_usable = f"its answer is not usable: {', '.join(answer.unusable)}" if answer.unusable else ""
    reason = result.unreachable or result.failure or not_usable or "the restore gave no answer"
    outcome = answer.restoration or unknown(reason)
    last = answer.last_restoration
    if (
        last is not None
        and (last.holder, last.trial_id, last.restored) == (holder, trial_id, True)
        and outcome.restored
        and outcome.downtime_s is None
    ):
        return last
    return outcome
