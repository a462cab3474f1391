"""What a check finds: the verdict on a claim with its arithmetic, or a mistake in a sweep's figures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

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
    """A mistake that a guard saw: where, and what, with the numbers that do not go together."""

    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """What a guard looked at, in how many places, and what it found; nothing looked at says nothing."""

    looked_at: int
    findings: tuple[Finding, ...] = ()


def undecided(*lines: str, corrected: str = "") -> CheckOutcome:
    """The outcome of a claim that the archive does not decide, and why."""
    return CheckOutcome(verdict="undecided", computation=lines, corrected=corrected)


def settled(lines: Sequence[str], *, holds: bool, corrected: str, otherwise: Verdict = "contradicted") -> CheckOutcome:
    """The outcome of a claim that the arithmetic decides, with the figure that holds where it does not."""
    return CheckOutcome(
        verdict="supported" if holds else otherwise, computation=tuple(lines), corrected="" if holds else corrected
    )


Seen = TypeVar("Seen")


def looks(places: Callable[[Seen], Iterator[Finding | None]]) -> Callable[[Seen], Guarded]:
    """The guard that looks at these places: None where nothing is wrong."""

    def guard(seen: Seen) -> Guarded:
        found = list(places(seen))
        return Guarded(looked_at=len(found), findings=tuple(each for each in found if each is not None))

    guard.__doc__ = places.__doc__
    return guard


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
