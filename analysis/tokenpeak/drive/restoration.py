"""How production stands after a node was given back, as the node itself says."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tokenpeak.records import Restoration


def restoration_of(answer: Mapping[str, Any] | None, reason: str) -> Restoration:
    """How production stands as the node says; unrestored, for `reason`, when it says nothing."""
    if answer is None:
        return Restoration(restored=False, was_running=True, message=reason)
    told = answer.get("restoration", answer)
    try:
        return Restoration.model_validate({key: told[key] for key in Restoration.model_fields if key in told})
    except (ValidationError, TypeError):
        message = f"The node's answer is not understood, as of another version: {str(told)[:200]}"
        return Restoration(restored=False, was_running=True, message=message)
