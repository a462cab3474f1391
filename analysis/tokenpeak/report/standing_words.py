"""Words of a row's standing: whether it completed, whether the SLO held, and what its rank is by."""

import math

import polars as pl

from tokenpeak.ranking.intervals import CONFIDENCE

COMPLETED = "completed"
"""It gave a result; whether that is good is said by other columns."""
ENDED_EARLY = "ended early"
"""It gave a result, so far behind that its other load levels were left out."""
BEHIND = "behind"
"""Ranked, and not tied with the best."""
RESULT = f"recommended, best, tied, or {BEHIND}: ranked and not tied with the best; else why it is not ranked"
STATUS = f"Whether it ran to its end, or {ENDED_EARLY}, far behind; whether its result is good is said elsewhere"
HELD, BROKEN, NOT_PROVEN = "held", "broken", "held, not proven"
RANK = "By the objective's mean before rounding; equal means in the order of their first launches, as in exports"
SLO = f"{NOT_PROVEN}: within its limits, with less than {CONFIDENCE:.0%} confidence that more requests would be"


def slo_word(met: pl.Expr, confidence: pl.Expr) -> pl.Expr:
    """Held, broken, or held with less confidence than CONFIDENCE; null where it was not looked at."""
    return (
        pl.when(met & (confidence < CONFIDENCE))
        .then(pl.lit(NOT_PROVEN))
        .when(met)
        .then(pl.lit(HELD))
        .when(~met)
        .then(pl.lit(BROKEN))
    )


def confidence_words(confidence: float) -> str:
    """A confidence in percent, rounded down: it is never 100%."""
    return f"{min(math.floor(confidence * 1000), 999) / 10:.1f}%"
