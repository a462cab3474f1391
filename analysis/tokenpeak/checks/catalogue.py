"""All checks: those that judge claims, by the name that claims.yml gives, and those that guard every sweep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenpeak.checks import events, independence, lengths, limits, memory, pairs, rates, spread, units
from tokenpeak.checks.evidence import Evidence
from tokenpeak.checks.outcome import CheckOutcome, Guarded

ClaimCheck = Callable[..., CheckOutcome]

CLAIM_CHECKS: Mapping[str, ClaimCheck] = {
    "node_rate": rates.node_rate,
    "rate_product": rates.rate_product,
    "quotient": units.quotient,
    "energy_per_million": units.energy_per_million,
    "kv_cache_size": memory.kv_cache_size,
    "kv_capacity": memory.kv_capacity,
    "weights_size": memory.weights_size,
    "gap_comparison": events.gap_comparison,
    "matched_pairs": pairs.matched,
    "best_of_each": pairs.best_of_each,
    "scaling": pairs.scaling,
    "steady_gain": lengths.steady_gain,
    "independent": independence.independent,
    "measures_hardware": limits.measures_hardware,
    "binding_resource": limits.binding_resource,
    "needs_capability": limits.needs_capability,
    "needs_flag": limits.needs_flag,
    "plateau": spread.plateau,
    "best_against_worst": spread.best_against_worst,
    "highest_rate": spread.highest_rate,
    "boundary_spread": spread.boundary_spread,
    "stated_changes": spread.stated_changes,
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
        run=rates.guard,
    ),
    Guard(name="units", title="Units add up", mistake="units that do not add up", run=units.guard),
    Guard(
        name="memory",
        title="KV cache by KV heads",
        mistake="a formula that ignores grouped-query attention",
        run=memory.guard,
    ),
    Guard(name="events", title="Events are not tokens", mistake="events mistaken for tokens", run=events.guard),
    Guard(name="pairs", title="Matched pairs", mistake="comparison without matched pairs", run=pairs.guard),
    Guard(
        name="lengths",
        title="Equal output lengths",
        mistake="output lengths that differ between arms",
        run=lengths.guard,
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
        run=limits.guard,
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
        mistake="changed second variables",
        run=pairs.guard_second_variables,
    ),
)
"""In the order in which a reader would ask."""
