"""Energy factors: ranges and sources, tables by region and hour, and their means by the hour of the day."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from archive_factory import sweep_spec, trial_record
from tokenpeak.errors import InputError, SpecError
from tokenpeak.ranking.objective import metric_value
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.energy_table import read_factor_table
from tokenpeak.spec.sweep import read_spec

SPEC = """
workloads:
  - workload: {kind: fixed, name: x, prompt: Hello, output_tokens: 8}
    levels: [{concurrency: 1, requests: 4}]
"""
MAPS = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle),Carbon-free energy percentage (CFE%),Data source\n"
    "2026-11-23 10:00:00,Germany,Germany,DE,320.5,380.25,52.1,entsoe.eu\n"
    "2026-11-23 11:00:00,Germany,Germany,DE,301,362,54,entsoe.eu\n"
)
NESO = "DATETIME,GAS,CARBON_INTENSITY\n2026-11-23 10:00:00+00:00,9000,152.0\n2026-11-23 10:30:00+00:00,8800,144.0\n"
ENERGINET = "Minutes5UTC;Minutes5DK;PriceArea;CO2Emission\n2026-11-23T10:55:00;2026-11-23T11:55:00;DK1;109,5\n"
OWN = "region,hour,kg_co2_per_kwh,kg_co2_per_kwh_market,price_per_kwh\nDE,3,0.25,0.01,0.12\nFR,3,0.05,0.01,0.1\n"


def table(folder: Path, text: str, region: str = "") -> EnergyFactors:
    path = folder / "factors.csv"
    path.write_text(text)
    return EnergyFactors.model_validate({"hours": read_factor_table(path, region, error=InputError)})


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 23, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "region", "kg_by_hour"),
    [
        (MAPS, "", {10: 0.38025, 11: 0.362}),
        (MAPS, "DE", {10: 0.38025, 11: 0.362}),
        (NESO, "", {10: 0.148}),
        (ENERGINET, "DK1", {10: 0.1095, 11: 0.1095}),
        (OWN, "FR", {hour: 0.05 if hour == 3 else 0.48 for hour in range(24)}),
    ],
)
def test_each_hour_has_its_factor(tmp_path: Path, text: str, region: str, kg_by_hour: dict[int, float]) -> None:
    """What grid operators export is read as it is, grams as kilograms; life-cycle intensity goes before the direct.

    Hours of each day without a row have the plain factor; where rows are dated, only theirs are known.
    """
    found = table(tmp_path, text, region).hourly["kg_co2_per_kwh"].by_hour

    assert kg_by_hour == pytest.approx({hour: kg for hour, kg in enumerate(found) if kg is not None})


def test_a_day_counts_by_its_hours(tmp_path: Path) -> None:
    """Spans of any length, of which each minute is counted here; the mean, and the ends of its range."""
    begins = [at(22, 40) - timedelta(days=9), at(3, 10) - timedelta(days=7), at(0), at(7, 20), at(18)]
    ends = [*begins[1:], at(21, 50)]
    prices = [0.12, -0.02, 0.31, 0.25, 0.4]
    text = "from,to,price_per_kwh\n"
    text += "".join(f"{b},{e},{p}\n" for b, e, p in zip(begins, ends, prices, strict=True))
    given = table(tmp_path, text)
    minutes: dict[int, list[float]] = defaultdict(list)
    for begin, end, price in zip(begins, ends, prices, strict=True):
        for minute in range(int((end - begin).total_seconds() // 60)):
            minutes[(begin + timedelta(minutes=minute)).hour].append(price)
    wanted = [sum(minutes[hour]) / len(minutes[hour]) for hour in range(24)]

    assert wanted == pytest.approx(given.hourly["price_per_kwh"].by_hour)
    assert sum(wanted) / 24 == pytest.approx(given.typical.price_per_kwh)
    cited = given.typical.cited["price_per_kwh"]
    assert (-0.02, 0.4, "mean over 2026-11-14 to 2026-11-23, 5 rows") == (cited.low, cited.high, cited.source)


@pytest.mark.parametrize(
    ("text", "region", "words"),
    [
        (OWN, "", "has 2 regions. Say which one with region: DE, FR"),
        (OWN, "UK", "no region 'UK'"),
        ("zone,time\nDE,3\n", "", "no column from, hour or Datetime"),
        ("hour,kg\n3,1\n", "", "has no factor"),
        (OWN.replace("0.25", "low"), "DE", "line 2: kg_co2_per_kwh is 'low', which is no number"),
        (MAPS.replace("2026-11-23 10", "23.11. 10"), "", "line 2: from is '23.11. 10:00:00'"),
        ("hour,price_per_kwh\n", "", "has no rows"),
        ("hour,price_per_kwh\n24,0.2\n", "", "line 2: hour is '24'. Write 0 to 23 (UTC)"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(tmp_path: Path, text: str, region: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        table(tmp_path, text, region)

    assert words in str(caught.value)


def test_prices_by_the_hour_of_each_day() -> None:
    """Hours across midnight, in UTC; their mean is what configs are compared by."""
    given = EnergyFactors.model_validate(
        {"hours": [{"hours": "22-6", "price_per_kwh": 0.1}, {"hours": "6-22", "price_per_kwh": 0.3}]}
    )

    assert [0.3 if 6 <= hour < 22 else 0.1 for hour in range(24)] == list(given.hourly["price_per_kwh"].by_hour)
    assert (0.1 * 8 + 0.3 * 16) / 24 == pytest.approx(given.typical.price_per_kwh)
    assert given.has_price
    assert given == EnergyFactors.model_validate(given.model_dump(mode="json"))
    assert given.typical == given.typical.typical


@pytest.mark.parametrize("hours", ["22-25", "24-6", [-1, 6], "night"])
def test_hours_that_no_day_has_are_refused(hours: object) -> None:
    with pytest.raises(ValidationError, match=r"write 22-6 for 22:00 to 06:00 UTC"):
        EnergyFactors.model_validate({"hours": [{"hours": hours, "price_per_kwh": 0.1}]})


def test_dated_rows_go_before_daily_ones() -> None:
    """Of each factor apart; of two of each day the first one counts."""
    rows = [
        {"hours": "0-24", "kg_co2_per_kwh": 0.4, "price_per_kwh": 0.2},
        {"hours": "0-12", "price_per_kwh": 0.9},
        {"begin": at(10), "end": at(11), "kg_co2_per_kwh": 0.1},
    ]
    given = EnergyFactors.model_validate({"hours": rows}).typical

    assert (0.1, 0.2) == pytest.approx((given.kg_co2_per_kwh, given.price_per_kwh))


def test_a_run_has_the_mean_whenever_it_was_made() -> None:
    """Two launches of one config, by night and by day, cost the same."""
    priced = {"hours": [{"hours": "22-6", "price_per_kwh": 0.1}, {"hours": "6-22", "price_per_kwh": 0.3}]}
    factors = EnergyFactors.model_validate(priced)
    trial, _ = trial_record(sweep_spec({"max_num_seqs": [64]}))
    run = trial.runs[0]
    costs = [
        metric_value(run.model_copy(update={"started_at": at(hour)}), "cost_per_1m_output_tok", factors)
        for hour in (3, 15)
    ]

    assert run.energy is not None and run.energy.energy_j_per_output_tok is not None
    assert [run.energy.energy_j_per_output_tok / 3.6 * 1.3 * 5.6 / 24] * 2 == pytest.approx(costs)


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


def test_a_specs_table_is_kept_in_the_spec(tmp_path: Path) -> None:
    """The record of a sweep has the rows: nobody needs the file again."""
    (tmp_path / "grid.csv").write_text(OWN)
    (tmp_path / "x.yml").write_text(SPEC + "energy: {factors: grid.csv, region: DE}\n")
    spec = read_spec("x", tmp_path)

    assert (0.25, 0.01, 0.12) == tuple(
        spec.energy.hourly[name].by_hour[3] for name in ("kg_co2_per_kwh", "kg_co2_per_kwh_market", "price_per_kwh")
    )
    year = "from,kg_co2_per_kwh\n" + "".join(f"{at(0) + timedelta(hours=hour)},0.3\n" for hour in range(1001))
    (tmp_path / "grid.csv").write_text(year)
    with pytest.raises(SpecError, match="has 1001 rows; a spec holds 1000 at most"):
        read_spec("x", tmp_path)
