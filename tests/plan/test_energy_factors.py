"""Energy factors: ranges and sources."""

import pytest
from pydantic import ValidationError

from tokenpeak.spec.energy import EnergyFactors


def test_a_factor_with_range_and_source() -> None:
    given = EnergyFactors.model_validate(
        {"pue": {"value": 1.2, "low": 1.1, "high": 1.3, "source": "meter", "year": 2026}}
    )

    assert 1.2 == given.pue
    assert (1.1, 1.3, "meter", 2026) == tuple(dict(given.cited["pue"]).values())
    assert given == EnergyFactors.model_validate(given.model_dump(mode="json"))
    with pytest.raises(ValidationError, match=r"not within its range, 1\.3 to 1\.4"):
        EnergyFactors.model_validate({"pue": {"value": 1.2, "low": 1.3, "high": 1.4}})
    with pytest.raises(ValidationError, match=r"has a range from -0\.1, below zero"):
        EnergyFactors.model_validate({"kg_co2_per_kwh": {"value": 0.2, "low": -0.1}})


def test_the_default_for_all_water_gives_way() -> None:
    """To water on site, where that is given; a record that has both keeps both."""
    on_site = EnergyFactors.model_validate({"wue_l_per_kwh": 0.4})

    assert (0.0, 1.8) == (EnergyFactors().wue_l_per_kwh, EnergyFactors().water_l_per_kwh)
    assert (0.4, 0.0) == (on_site.wue_l_per_kwh, on_site.water_l_per_kwh)
    assert EnergyFactors() == EnergyFactors.model_validate(EnergyFactors().model_dump(mode="json"))
