"""Catalogue of checks: those that judge claims, by the name that claims.yml gives, and those that guard every sweep."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenpeak import bounded
from tokenpeak.checks import independence, limits, pairs, spread, tokens, units
from tokenpeak.checks.evidence import CheckOutcome, Evidence, Guarded
from tokenpeak.errors import FactsError, suggestion

ClaimCheck = Callable[..., CheckOutcome]

CLAIM_CHECKS: Mapping[str, ClaimCheck] = {
    "node_rate": units.node_rate,
    "rate_product": units.rate_product,
    "quotient": units.quotient,
    "energy_per_million": units.energy_per_million,
    "faster_is_greener": units.faster_is_greener,
    "kv_cache_size": limits.kv_cache_size,
    "kv_capacity": limits.kv_capacity,
    "weights_size": limits.weights_size,
    "cache_added": limits.cache_added,
    "gap_comparison": tokens.gap_comparison,
    "matched_pairs": pairs.matched,
    "best_of_each": pairs.best_of_each,
    "scaling": pairs.scaling,
    "steady_gain": tokens.steady_gain,
    "cause_in_prefill": tokens.cause_in_prefill,
    "independent": independence.independent,
    "measures_hardware": limits.measures_hardware,
    "binding_resource": limits.binding_resource,
    "needs_capability": limits.needs_capability,
    "needs_flag": limits.needs_flag,
    "plateau": spread.plateau,
    "best_against_worst": spread.best_against_worst,
    "shared_pattern": spread.shared_pattern,
    "highest_rate": spread.highest_rate,
    "boundary_spread": spread.boundary_spread,
    "stated_changes": spread.stated_changes,
    "stated_ranges": spread.stated_ranges,
    "best_of_both": spread.best_of_both,
}


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A check of every sweep: what it makes sure of, and the mistake that it is there for."""

    name: str
    title: str
    mistake: str
    run: Callable[[Evidence], Guarded]


GUARDS: tuple[Guard, ...] = (
    Guard(
        name="rates",
        title="Throughput is the node's",
        mistake="a per-request rate taken for the node's",
        run=units.guard_rates,
    ),
    Guard(
        name="waves",
        title="Throughput in steady state",
        mistake="throughput includes ramp-up or drain",
        run=units.guard_waves,
    ),
    Guard(name="units", title="Units add up", mistake="units that do not add up", run=units.guard_units),
    Guard(
        name="memory",
        title="KV cache by KV heads",
        mistake="a formula that ignores grouped-query attention",
        run=limits.guard_memory,
    ),
    Guard(name="events", title="Events are not tokens", mistake="events mistaken for tokens", run=tokens.guard_events),
    Guard(name="pairs", title="Matched pairs", mistake="comparison without matched pairs", run=pairs.guard),
    Guard(
        name="lengths",
        title="Equal output lengths",
        mistake="configs compared at different output lengths",
        run=tokens.guard_lengths,
    ),
    Guard(
        name="independence",
        title="Independent figures",
        mistake="figures that cannot be independent",
        run=independence.guard,
    ),
    Guard(
        name="limits",
        title="Within the hardware's limits",
        mistake="speeds far from what the hardware can do",
        run=limits.guard_limits,
    ),
    Guard(
        name="spread",
        title="Effects beyond the spread",
        mistake="effects smaller than the run-to-run spread",
        run=spread.guard,
    ),
    Guard(
        name="second_variables",
        title="One variable at a time",
        mistake="more than one variable changed",
        run=pairs.guard_second_variables,
    ),
)
"""In the order in which a reader would ask."""


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
    raw = _read(path)
    if raw is None:
        return ()
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


def claims_about(sweep: str, folder: Path) -> tuple[Claim, ...]:
    """The published claims, of archives in a folder, that name a sweep as one that measures the same; none: no file."""
    paths = sorted(folder.glob("*/claims.yml"))
    return next((read_claims(path) for path in paths if sweep in _sweeps(path)), ())


def _sweeps(path: Path) -> list[object]:
    """The sweeps that a list of claims names; none in a file that is not as it should be, which its own site says."""
    try:
        named = (_read(path) or {}).get("sweeps")
    except FactsError:
        return []
    return named if isinstance(named, list) else []


def _read(path: Path) -> dict[str, Any] | None:
    """A file's content; None without one. FactsError for one that holds no keys."""
    if not path.is_file():
        return None
    raw = bounded.read_yaml(path, error=FactsError)
    if not isinstance(raw, dict):
        raise FactsError(f"{path} is no list of claims: it needs a key claims.")
    return raw


def judge(claim: Claim, evidence: Evidence) -> Judged:
    """The claim's verdict on these frames; FactsError when its parameters do not fit its check."""
    check = CLAIM_CHECKS[claim.check]
    try:
        bound = inspect.signature(check).bind(evidence, **claim.parameters)
    except TypeError as error:
        raise FactsError(f"{claim.id}: check {claim.check}: {error}.") from error
    return Judged(claim=claim, outcome=check(*bound.args, **bound.kwargs))


def guarded(evidence: Evidence) -> dict[str, Guarded]:
    """The findings of each guard."""
    return {guard.name: guard.run(evidence) for guard in GUARDS}
