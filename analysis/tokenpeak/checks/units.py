"""Units that do not add up: quotients, energy per token, and the identities between a run's own columns."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tokenpeak.checks.evidence import Evidence, place, value
from tokenpeak.checks.outcome import CheckOutcome, Finding, agrees, figure, looks, settled, undecided
from tokenpeak.errors import FactsError, suggestion

QUOTIENTS = {("W", "tok/s"): "J/token", ("J", "tok"): "J/token", ("J", "s"): "W", ("tok", "s"): "tok/s"}
"""Units above and below the line → that of their quotient."""


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
        return undecided("The archive lacks one of the two figures.")
    units = (numerator_unit, denominator_unit)
    if units not in QUOTIENTS:
        known = [" ÷ ".join(each) for each in QUOTIENTS]
        raise FactsError(f"Claims name a quotient {' ÷ '.join(units)}. {suggestion(' ÷ '.join(units), known)}")
    computed, named = top / bottom, QUOTIENTS[units]
    lines = [
        f"{figure(top)} {numerator_unit} ÷ {figure(bottom)} {denominator_unit} = {figure(computed)} {named}.",
        f"A W is a J/s, so W ÷ (tok/s) is J/token; stated: {figure(stated)} {stated_unit}.",
    ]
    if whole:
        lines.append(whole)
    holds = agrees(stated, computed, 0.001) and stated_unit == named
    return settled(lines, holds=holds, corrected=f"{figure(computed)} {named}")


def energy_per_million(
    evidence: Evidence, *, where: Mapping[str, object], stated_kwh: float, concurrency: float | None = None
) -> CheckOutcome:
    """Whether the stated kWh per million tokens follow from the run's J per token."""
    row = evidence.one(where)
    joule = value(row, "energy_j_per_output_tok") if row else None
    if joule is None:
        return undecided("The run has no energy figure.")
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
    return settled(lines, holds=agrees(stated_kwh, computed, 0.03), corrected=f"{figure(computed)} kWh at the boards")


IDENTITIES: Sequence[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = (
    ("J/token = W ÷ tok/s", "energy_j_per_output_tok", ("power_w",), ("output_tok_per_s",)),
    ("J/token = J ÷ tokens", "energy_j_per_output_tok", ("energy_j",), ("output_tokens",)),
    ("W = J ÷ s", "power_w", ("energy_j",), ("duration_s",)),
    ("req/s = requests ÷ s", "request_per_s", ("requests_ok",), ("duration_s",)),
    ("input tok/s = tokens ÷ s", "input_tok_per_s", ("input_tokens",), ("duration_s",)),
)
"""What a column is, by the columns multiplied above and below the line."""
WITHIN = 0.05


@looks
def guard(evidence: Evidence) -> Iterator[Finding | None]:
    """The columns of every run go together: energy, power, time, tokens and requests."""
    pue = evidence.spec.energy.pue
    for row in evidence.runs.iter_rows(named=True):
        pairs: list[tuple[str, str, float]] = []
        for name, column, top, bottom in IDENTITIES:
            above, below = (
                [part for each in parts if (part := value(row, each)) is not None] for parts in (top, bottom)
            )
            if (len(above), len(below)) == (len(top), len(bottom)) and all(below):
                pairs.append((name, column, prod(above) / prod(below)))
        if (joule := value(row, "energy_j_per_output_tok")) is not None:
            pairs.append(("kWh/1M = J/token ÷ 3.6 × PUE", "energy_kwh_per_1m_output_tok", joule / 3.6 * pue))
        both = value(row, "input_tok_per_s"), value(row, "output_tok_per_s")
        if both[0] is not None and both[1] is not None:
            pairs.append(("total = input + output tok/s", "total_tok_per_s", both[0] + both[1]))
        for name, column, computed in pairs:
            found = value(row, column)
            if found is None:
                continue
            # Two digits after the point are all that printed results keep of a small rate.
            is_wrong = not agrees(found, computed, WITHIN) and abs(found - computed) > 0.0051
            text = f"{column} is {figure(found)}, and {name} gives {figure(computed)}"
            yield Finding(where=place(row), text=text) if is_wrong else None
