"""How production stands after a node was given back, as the node itself says."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tokenpeak.drive.runner import NodeResult
from tokenpeak.records import Restoration


def restoration_of(answer: Mapping[str, Any] | None, reason: str) -> Restoration:
    """How production stands by the node's answer; unrestored, for `reason`, when it has none or an error."""
    if answer is None or "restored" not in answer.get("restoration", answer):
        return Restoration(restored=False, was_running=True, message=reason)
    found = answer.get("restoration", answer)
    try:
        return Restoration.model_validate({key: found[key] for key in Restoration.model_fields if key in found})
    except (ValidationError, TypeError):
        message = f"The node's answer is not understood, as of another version: {str(found)[:200]}"
        return Restoration(restored=False, was_running=True, message=message)


def restored_by(result: NodeResult, holder: str, trial_id: str | None) -> Restoration:
    """How production stands after restore.yml; where the guard was first, its own account of this trial counts."""
    answer = result.answers.get("restore")
    reason = result.unreachable or result.failure or "restore.yml gave no answer"
    restoration = restoration_of(answer, reason)
    last = (answer or {}).get("last_restoration") or {}
    is_of_trial = last.get("holder") == holder and last.get("trial_id") == trial_id
    if restoration.restored and restoration.downtime_s is None and is_of_trial and last.get("restored"):
        return restoration_of(last, reason)
    return restoration
