"""Parameters of an analysis: what a reader asks of a sweep otherwise than its spec did.

Each is a keyword of `tokenpeak.report.open_archive` and a parameter of notebooks. `tokenpeak report --param NAME=VALUE`
gives it to all pages. What is left out is as the sweep has it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pydantic import ValidationError

from tokenpeak.errors import InputError, suggestion
from tokenpeak.metrics import METRICS, STATISTICS, metric_of
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.sweep import Objective, SweepSpec

UNITS = {
    "objective": "a metric",
    "workload": "",
    "level": "",
    "hardware": "",
    "slo": "limits in ms",
    "price_per_hour": "currency per node-hour, > 0",
    "pue": "kWh at the meter per kWh, ≥ 1",
    "kg_co2_per_kwh": "kg per kWh at the meter, ≥ 0",
    "wue_l_per_kwh": "L on site per kWh of the GPUs, ≥ 0",
    "water_l_per_kwh": "L off site per kWh at the meter, ≥ 0",
    "price_per_kwh": "currency per kWh at the meter",
}
"""Each parameter and its unit, in the order shown."""
FACTORS = {
    "price_per_hour": "price_per_node_hour",
    "pue": "pue",
    "kg_co2_per_kwh": "kg_co2_per_kwh",
    "wue_l_per_kwh": "wue_l_per_kwh",
    "water_l_per_kwh": "water_l_per_kwh",
    "price_per_kwh": "price_per_kwh",
}
"""Parameters that are factors of the spec's energy, and their keys there."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A reader's own parameters; empty or None: as the sweep has it."""

    objective: str = ""
    workload: str = ""
    level: str = ""
    hardware: str = ""
    slo: str = ""
    price_per_hour: float | None = None
    pue: float | None = None
    kg_co2_per_kwh: float | None = None
    wue_l_per_kwh: float | None = None
    water_l_per_kwh: float | None = None
    price_per_kwh: float | None = None

    def given(self) -> dict[str, str | float]:
        """Those that are asked for, by name."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @property
    def limits(self) -> Slo | None:
        """The SLO that is asked for; None: the sweep's own."""
        return parse_limits(self.slo) if self.slo else None

    def applied(self, spec: SweepSpec) -> SweepSpec:
        """The spec as it would be, had it asked for this; InputError says which value is wrong and what is valid."""
        changes: dict[str, Any] = {}
        if self.objective or self.workload or self.level:
            changes["objective"] = self._objective(spec)
        if (slo := self.limits) is not None:
            changes["slo"] = slo
        if (energy := self._energy(spec.energy)) != spec.energy:
            changes["energy"] = energy
        return spec.model_copy(update=changes)

    def _energy(self, before: EnergyFactors) -> EnergyFactors:
        """The factors with those asked for; what was cited of one goes with its value."""
        changes = {key: value for name, key in FACTORS.items() if (value := getattr(self, name)) is not None}
        if "wue_l_per_kwh" in changes and before.wue_l_per_kwh == 0 and self.water_l_per_kwh is None:
            changes["water_l_per_kwh"] = 0.0  # What stood for all water gives way.
        if not changes:
            return before
        cited = {name: citation for name, citation in before.cited.items() if name not in changes}
        try:
            return EnergyFactors.model_validate({**before.model_dump(), **changes, "cited": cited})
        except ValidationError as error:
            first = error.errors()[0]
            name = next(name for name, key in FACTORS.items() if key == first["loc"][0])
            raise InputError(f"{name} is {first['input']!r}: {UNITS[name]}. {first['msg']}") from error

    def _objective(self, spec: SweepSpec) -> Objective:
        metric = self.objective or spec.objective.metric
        if metric_of(metric) is None:
            raise InputError(f"objective is {metric!r}. {suggestion(metric, objectives())}")
        before, _ = spec.objective_run()
        plans = {plan.workload.name: [level.label for level in plan.levels] for plan in spec.workloads}
        workload = self.workload or before
        if workload not in plans:
            raise InputError(f"workload is {workload!r}. {suggestion(workload, plans)}")
        level = self.level or (spec.objective.level if workload == before else None) or plans[workload][0]
        if level not in plans[workload]:
            raise InputError(f"level is {level!r}. {suggestion(level, plans[workload])}")
        also = tuple(name for name in spec.objective.also if name != metric)
        return Objective(metric=metric, workload=workload, level=level, also=also)


def objectives() -> list[str]:
    """Every name that an objective can have: a metric, and of one that requests differ in its statistics too."""
    return [
        name
        for metric in METRICS
        for name in (metric.name, *(f"{metric.name}_{each}" for each in STATISTICS if metric.distribution))
    ]


def parse_limits(text: str) -> Slo:
    """The limits in words such as `ttft_p99_ms=500, tpot_p99_ms=60`; InputError says which is wrong."""
    given: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if name not in Slo.model_fields:
            raise InputError(f"slo has {part.strip()!r}. {suggestion(name, Slo.model_fields)}")
        if not sign:
            raise InputError(f"slo has {part.strip()!r}. Write {name}=LIMIT in milliseconds.")
        given[name] = value
    try:
        return Slo.model_validate(given, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"slo has {first['loc'][0]}={first['input']}. A limit is in milliseconds, > 0.") from error


def parameters_of(asked: Mapping[str, object]) -> Parameters:
    """The parameters called by these names; InputError for a name that none has."""
    known = [field.name for field in fields(Parameters)]
    for name in asked:
        if name not in known:
            raise InputError(f"No parameter {name!r}. {suggestion(name, known)}")
    return Parameters(**dict(asked))  # type: ignore[arg-type]


def choices(spec: SweepSpec, hardware: tuple[str, ...]) -> dict[str, str]:
    """The valid values of each parameter in a sweep, in words."""
    levels = {level.label: None for plan in spec.workloads for level in plan.levels}
    return {
        "objective": "a metric, or METRIC_p50, METRIC_p95 and so on",
        "workload": ", ".join(plan.workload.name for plan in spec.workloads),
        "level": ", ".join(levels),
        "hardware": ", ".join(hardware),
        "slo": ", ".join(f"{name}=LIMIT" for name in Slo.model_fields),
    }


def values(spec: SweepSpec) -> dict[str, str]:
    """The value of each parameter by the spec, in words."""
    workload, level = spec.objective_run()
    factors = {name: getattr(spec.energy, key) for name, key in FACTORS.items()}
    return {
        "objective": spec.objective.metric,
        "workload": workload,
        "level": level,
        "hardware": "all",
        "slo": ", ".join(f"{name}={limit:g}" for name, limit in spec.slo if limit is not None) or "none",
        **{name: "not given" if value is None else f"{value:g}" for name, value in factors.items()},
    }
