"""Claims as data: what a source says, where, and by which check and parameters it is judged."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenpeak import bounded
from tokenpeak.checks.catalogue import CLAIM_CHECKS, GUARDS
from tokenpeak.checks.evidence import Evidence
from tokenpeak.checks.outcome import CheckOutcome, Guarded
from tokenpeak.errors import FactsError, suggestion


class Claim(BaseModel):
    """One claim of a source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^C\d+$")
    statement: str
    source: str
    check: str
    parameters: dict[str, Any] = {}
    matters: str
    """Why it matters whether it is so."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with its verdict."""

    claim: Claim
    outcome: CheckOutcome


def read_claims(path: Path) -> tuple[Claim, ...]:
    """The claims of a claims.yml; none when there is no such file. FactsError says what is wrong in it."""
    if not path.is_file():
        return ()
    raw = bounded.read_yaml(path, error=FactsError)
    try:
        claims = tuple(Claim.model_validate(item) for item in raw["claims"])
    except (ValidationError, KeyError, TypeError) as error:
        raise FactsError(f"{path} is no list of claims: {str(error).splitlines()[0]}") from error
    for claim in claims:
        if claim.check not in CLAIM_CHECKS:
            raise FactsError(
                f"{path}: {claim.id} asks for a check {claim.check!r}. {suggestion(claim.check, CLAIM_CHECKS)}"
            )
    return claims


def judge(claim: Claim, evidence: Evidence) -> Judged:
    """The claim's verdict on these frames; FactsError when its parameters do not fit its check."""
    check = CLAIM_CHECKS[claim.check]
    try:
        bound = inspect.signature(check).bind(evidence, **claim.parameters)
    except TypeError as error:
        raise FactsError(f"{claim.id}: check {claim.check}: {error}.") from error
    return Judged(claim=claim, outcome=check(*bound.args, **bound.kwargs))


def guarded(evidence: Evidence) -> dict[str, Guarded]:
    """What each guard found."""
    return {guard.name: guard.run(evidence) for guard in GUARDS}
