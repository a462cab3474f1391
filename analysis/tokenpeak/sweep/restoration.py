"""Restoration: how production stands after a node was given back, as the node reports."""

from tokenpeak.node.protocol.answers import RestoreAnswer, RestoreOutcome
from tokenpeak.sweep.node_result import NodeResult


def unrestored(reason: str) -> RestoreOutcome:
    """What is taken for true of production whose node gave no account of it."""
    return RestoreOutcome(restored=False, was_running=True, message=reason)


def restored_by(result: NodeResult, holder: str = "", trial_id: str | None = None) -> RestoreOutcome:
    """How production stands after a restore; where the guard was first, its own account of this trial counts."""
    answer = result.answer(RestoreAnswer) or RestoreAnswer()
    not_usable = f"its answer is not usable: {', '.join(answer.unusable)}" if answer.unusable else ""
    reason = result.unreachable or result.failure or not_usable or "the restore gave no answer"
    outcome = answer.restoration or unrestored(reason)
    last = answer.last_restoration
    if (
        last is not None
        and (last.holder, last.trial_id, last.restored) == (holder, trial_id, True)
        and outcome.restored
        and outcome.downtime_s is None
    ):
        return last
    return outcome
