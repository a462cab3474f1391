"""Units that do not add up: quotients, energy per token, and the identities between a run's own columns."""

from collections.abc import Mapping, Sequence

from tokenpeak.checks.evidence import Evidence, place, value
from tokenpeak.checks.outcome import CheckOutcome, Finding, Guarded, agrees, figure
from tokenpeak.errors import FactsError, suggestion

UNITS: dict[str, dict[str, int]] = {
    "W": {"J": 1, "s": -1},
    "J": {"J": 1},
    "tok/s": {"tok": 1, "s": -1},
    "tok": {"tok": 1},
    "s": {"s": 1},
    "J/token": {"J": 1, "tok": -1},
    "W/token": {"J": 1, "s": -1, "tok": -1},
}
"""Each unit in joules, seconds and tokens."""


def quotient(
    evidence: Evidence,
    *,
    where: Mapping[str, object],
    numerator_column: str,
    numerator_unit: str,
    denominator_column: str,
    denominator_unit: str,
    stated: float,
    stated_unit: str,
    whole: str = "",
) -> CheckOutcome:
    """Whether a quotient has the value and the unit stated; `whole` says what the denominator really is of."""
    row = evidence.one(where)
    top, bottom = (value(row, name) if row else None for name in (numerator_column, denominator_column))
    if top is None or not bottom:
        return CheckOutcome(verdict="undecided", computation=("The archive lacks one of the two figures.",))
    computed, unit = top / bottom, _divided(_unit(numerator_unit), _unit(denominator_unit))
    named = next(name for name, parts in UNITS.items() if parts == unit)
    lines = [
        f"{figure(top)} {numerator_unit} ÷ {figure(bottom)} {denominator_unit} = {figure(computed)} {named}.",
        f"A W is a J/s, so W ÷ (tok/s) is J/token; stated: {figure(stated)} {stated_unit}.",
    ]
    if whole:
        lines.append(whole)
    same = agrees(stated, computed, 0.001)
    if same and _unit(stated_unit) == unit:
        return CheckOutcome(verdict="supported", computation=tuple(lines))
    return CheckOutcome(verdict="contradicted", computation=tuple(lines), corrected=f"{figure(computed)} {named}")


def _unit(name: str) -> dict[str, int]:
    if name not in UNITS:
        raise FactsError(f"Claims name a unit {name!r}. {suggestion(name, UNITS)}")
    return UNITS[name]


def _divided(top: Mapping[str, int], bottom: Mapping[str, int]) -> dict[str, int]:
    parts = {key: top.get(key, 0) - bottom.get(key, 0) for key in {*top, *bottom}}
    return {key: power for key, power in parts.items() if power}


def energy_per_million(
    evidence: Evidence, *, where: Mapping[str, object], stated_kwh: float, concurrency: float | None = None
) -> CheckOutcome:
    """Whether the stated kWh per million tokens follow from the run's J per token."""
    row = evidence.one(where)
    joule = value(row, "energy_j_per_output_tok") if row else None
    if joule is None:
        return CheckOutcome(verdict="undecided", computation=("The run has no energy figure.",))
    computed = joule * 1e6 / 3.6e6
    ratio = computed / stated_kwh
    lines = [
        f"{figure(joule)} J/token × 1,000,000 tokens ÷ 3,600,000 J/kWh = {figure(computed)} kWh.",
        f"Stated: {figure(stated_kwh)} kWh, {figure(ratio)} times less.",
    ]
    if concurrency:
        lines.append(
            f"Were the speed that of the node, {figure(concurrency)} times one request's: "
            f"{figure(computed / concurrency)} kWh."
        )
    if agrees(stated_kwh, computed, 0.03):
        return CheckOutcome(verdict="supported", computation=tuple(lines))
    return CheckOutcome(
        verdict="contradicted", computation=tuple(lines), corrected=f"{figure(computed)} kWh at the boards"
    )


IDENTITIES: Sequence[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = (
    ("J/token = W ÷ tok/s", "energy_j_per_output_tok", ("power_w",), ("output_tok_per_s",)),
    ("J/token = J ÷ tokens", "energy_j_per_output_tok", ("energy_j",), ("output_tokens",)),
    ("W = J ÷ s", "power_w", ("energy_j",), ("duration_s",)),
    ("req/s = requests ÷ s", "request_per_s", ("requests_ok",), ("duration_s",)),
    ("input tok/s = tokens ÷ s", "input_tok_per_s", ("input_tokens",), ("duration_s",)),
)
"""What a column is, by the columns multiplied above and below the line."""
WITHIN = 0.05


def guard(evidence: Evidence) -> Guarded:
    """The columns of every run go together: energy, power, time, tokens and requests."""
    findings: list[Finding] = []
    looked_at = 0
    pue = evidence.spec.energy.pue
    for row in evidence.runs.iter_rows(named=True):
        pairs: list[tuple[str, str, float]] = []
        for name, column, top, bottom in IDENTITIES:
            above = [value(row, part) for part in top]
            below = [value(row, part) for part in bottom]
            if all(part is not None for part in above) and all(below):
                pairs.append((name, column, _product(above) / _product(below)))
        if (joule := value(row, "energy_j_per_output_tok")) is not None:
            pairs.append(("kWh/1M = J/token ÷ 3.6 × PUE", "energy_kwh_per_1m_output_tok", joule / 3.6 * pue))
        both = value(row, "input_tok_per_s"), value(row, "output_tok_per_s")
        if both[0] is not None and both[1] is not None:
            pairs.append(("total = input + output tok/s", "total_tok_per_s", both[0] + both[1]))
        for name, column, computed in pairs:
            found = value(row, column)
            if found is None:
                continue
            looked_at += 1
            # Two digits after the point are all that printed results keep of a small rate.
            if not agrees(found, computed, WITHIN) and abs(found - computed) > 0.0051:
                findings.append(
                    Finding(
                        check="units",
                        where=place(row),
                        text=f"{column} is {figure(found)}, and {name} gives {figure(computed)}",
                        value=found,
                        limit=computed,
                    )
                )
    return Guarded(looked_at=looked_at, findings=tuple(findings))


def _product(parts: Sequence[float | None]) -> float:
    product = 1.0
    for part in parts:
        product *= part or 0.0
    return product
