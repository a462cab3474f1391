"""Shortfall of production: what keeps it from being as it was recorded, and what to do about that."""

from __future__ import annotations

from typing import NamedTuple

from tokenpeak.node.shown import shown_value


class Shortfall(NamedTuple):
    """Why production is not as it was; where not `is_known`, it could not be looked at."""

    text: str
    is_known: bool = True
    other_model: str | None = None
    """What it serves, well, in place of the recorded model."""

    def words(self, was_model: str | None) -> str:
        """What is wrong, and where production serves another model than `was_model`, how that is accepted."""
        if self.other_model is None:
            return self.text
        return (
            f"{self.text} It served {shown_value(was_model)} when it was recorded, and answers well by "
            f"{shown_value(self.other_model)} now: somebody has changed it since. If that is meant, `make restore "
            "ACCEPT=1` takes it as it is; if not, mend its definition and start it again."
        )


def standing(restored: bool | None) -> str:
    """How production stands after it was given back, before the reason: what is not known is not called down."""
    if restored is None:
        return "whether production is back is not known"
    return "production is back" if restored else "production is not back"


def is_restored(wrong: Shortfall | None, *, engine_stopped: bool = True) -> bool | None:
    """Whether production is as it was, with nothing of the engine left; None where that is not known."""
    if wrong is not None and not wrong.is_known and engine_stopped:
        return None
    return wrong is None and engine_stopped
