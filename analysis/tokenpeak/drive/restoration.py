"""How production stands after a node was given back, as the node itself says."""

from collections.abc import Mapping
from typing import Any

from tokenpeak.records import Restoration


def restoration_of(answer: Mapping[str, Any] | None, reason: str) -> Restoration:
    """How production stands by the node's own word; unrestored, for `reason`, when it gave none."""
    if answer is None:
        return Restoration(restored=False, was_running=True, message=reason)
    told = answer.get("restoration", answer)
    return Restoration.model_validate({key: told[key] for key in Restoration.model_fields if key in told})
