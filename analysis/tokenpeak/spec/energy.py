"""Energy factors: what a kWh of the GPUs stands for at the meter, in the air, in water and in money.

Each is one number, or a mapping with its range and source: `pue: {value: 1.2, low: 1.15, high: 1.25, source: our meter,
year: 2026}`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator, model_validator

from tokenpeak.errors import suggestion
from tokenpeak.spec import Declaration

MOST_KG_CO2_PER_KWH = 3.0
"""Lignite in an old power station has about 1.3."""


class Citation(Declaration):
    """Where a factor is from, and between what it lies."""

    low: float | None = None
    """The least that it may be."""
    high: float | None = None
    """The most that it may be."""
    source: str = ""
    """Who says so."""
    year: int | None = None
    """Of which year it is."""


class EnergyFactors(Declaration):
    """Factors from energy and time at the boards to CO₂, water and money.

    The default of `water_l_per_kwh` counts for all water; where `wue_l_per_kwh` is given, it is 0.
    """

    pue: float = Field(default=1.3, ge=1)
    """kWh at the meter per kWh of the GPUs."""
    kg_co2_per_kwh: NonNegativeFloat = 0.48
    """Of the grid's electricity, or by contracts and certificates, per kWh at the meter."""
    wue_l_per_kwh: NonNegativeFloat = 0.0
    """Water evaporated on site per kWh of the GPUs (WUE)."""
    water_l_per_kwh: NonNegativeFloat = 1.8
    """Water of making electricity, off site, or all water, per kWh at the meter."""
    price_per_node_hour: PositiveFloat | None = None
    """Price of an hour of a node."""
    price_per_kwh: float | None = None
    """Of electricity at the meter, where the node's price does not contain it."""
    currency: str = "USD"
    """Of all prices."""
    cited: dict[str, Citation] = {}
    """Range and source of each factor that is given with them."""

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, raw: object) -> object:
        """Each factor's value, and what is cited of it apart."""
        if not isinstance(raw, Mapping):
            return raw
        given: dict[str, Any] = dict(raw)
        cited = dict(given.get("cited") or {})
        for name in FACTORS:
            if isinstance(factor := given.get(name), Mapping):
                rest = dict(factor)
                given[name] = rest.pop("value", cls.model_fields[name].default)
                cited[name] = rest
        if "wue_l_per_kwh" in given:
            given.setdefault("water_l_per_kwh", 0.0)
        return {**given, "cited": cited}

    @field_validator("kg_co2_per_kwh")
    @classmethod
    def _in_kilograms(cls, value: float) -> float:
        if value > MOST_KG_CO2_PER_KWH:
            raise ValueError(
                f"{value:g} kg of CO₂ for a kWh is more than any power station's; of grams write {value / 1000:g}"
            )
        return value

    @model_validator(mode="after")
    def _ranges(self) -> "EnergyFactors":
        for name, citation in self.cited.items():
            if name not in FACTORS:
                raise ValueError(f"cited has {name!r}. {suggestion(name, FACTORS)}")
            value = getattr(self, name)
            low, high = (value if end is None else end for end in (citation.low, citation.high))
            if value is None or not low <= value <= high:
                raise ValueError(f"{name} is {value}, which is not within its range, {citation.low} to {citation.high}")
            if low < 0 and name != "price_per_kwh":
                raise ValueError(f"{name} has a range from {low}, below zero")
        return self

    @property
    def has_price(self) -> bool:
        """Whether a price is given, of the node or of electricity."""
        return self.price_per_node_hour is not None or self.price_per_kwh is not None


FACTORS = tuple(name for name in EnergyFactors.model_fields if name not in ("currency", "cited"))
"""Those that are one number."""
