"""What a check finds: the verdict on a claim with its arithmetic, or a mistake in a sweep's figures."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["supported", "not_supported", "contradicted", "undecided"]

VERDICT_WORDS: dict[Verdict, str] = {
    "supported": "supported",
    "not_supported": "not supported",
    "contradicted": "contradicted",
    "undecided": "undecided",
}


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The verdict on a claim: `computation` a line per step with its numbers, `corrected` the figure that holds."""

    verdict: Verdict
    computation: tuple[str, ...]
    corrected: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A mistake that a guard saw: where, what, and the two numbers that do not go together."""

    check: str
    where: str
    text: str
    value: float | None = None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """What a guard looked at, in how many places, and what it found; nothing looked at says nothing."""

    looked_at: int
    findings: tuple[Finding, ...] = ()


def figure(value: float | None) -> str:
    """A number for a line of arithmetic: four significant digits, thin thousands."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size == 0:
        return "0"
    text = f"{value:.4g}"
    return f"{value:.2e}" if "e" in text else text


def percent(share: float) -> str:
    """A signed share as a percentage."""
    return f"{share * 100:+.1f}%".replace("-", "−")


def agrees(stated: float, computed: float, within: float) -> bool:
    """Two figures agree within a share of the larger."""
    return abs(stated - computed) <= within * max(abs(stated), abs(computed))
