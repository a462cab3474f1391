"""Landscape: the measured objective of every config of a plan, to replay searches against."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tokenpeak.errors import ArchiveError
from tokenpeak.plan.matrix import predicted_again
from tokenpeak.ranking.intervals import variance
from tokenpeak.ranking.objective import metric_direction
from tokenpeak.records import Plan, SweepRecord, TrialRecord
from tokenpeak.search.history import outcome_of
from tokenpeak.spec.sweep import SweepSpec, parse_spec

LEAST_MARGIN = 0.01
"""A choice within 1% of the best is a hit, or within the noise between launches where that is more."""


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """The launches of each config of `plan`, by config_id: the objective's value, None for a launch that gave none."""

    name: str
    plan: Plan
    metric: str
    launches: Mapping[str, tuple[float | None, ...]]
    durations_s: Mapping[str, tuple[float, ...]] | None = None
    """How long each of the launches took, of a sweep; None where one is not known."""

    @property
    def sign(self) -> float:
        """1 when the objective is to be high, −1 when it is to be low."""
        return -1.0 if metric_direction(self.metric) == "lower" else 1.0

    def truth(self) -> dict[str, float]:
        """The mean log objective, best high, of each config that works: most of its launches gave a value."""
        found = {}
        for config_id, launches in self.launches.items():
            values = [math.log(value) for value in launches if value is not None]
            if values and 2 * len(values) > len(launches):
                found[config_id] = self.sign * fmean(values)
        return found

    def noise(self) -> float | None:
        """Standard deviation of log objective between launches of a config, over all configs; None without repeats."""
        groups = [[math.log(value) for value in launches if value is not None] for launches in self.launches.values()]
        repeated = [values for values in groups if len(values) > 1]
        if not repeated:
            return None
        freedom = sum(len(values) - 1 for values in repeated)
        return math.sqrt(sum(variance(values) * (len(values) - 1) for values in repeated) / freedom)

    def margin(self) -> float:
        """How far (log) from the best a hit may be."""
        return math.log1p(max(LEAST_MARGIN, self.noise() or 0.0))


def landscapes_of(
    name: str, sweep: SweepRecord, trials: Iterable[TrialRecord], spec: SweepSpec
) -> tuple[Landscape, ...]:
    """The landscape of each kind of hardware in an archive: all configs that were launched.

    When `spec` asks for another run than the archive's own objective, predictions are made for that run.
    """
    launches: dict[str, dict[str, list[float | None]]] = {}
    took_s: dict[str, dict[str, list[float | None]]] = {}
    for trial in trials:
        if trial.status == "interrupted":
            continue
        outcome = outcome_of(trial, spec)
        value = outcome.value if outcome.feasible and (outcome.value or 0) > 0 else None
        launches.setdefault(trial.hardware, {}).setdefault(trial.config.config_id, []).append(value)
        took_s.setdefault(trial.hardware, {}).setdefault(trial.config.config_id, []).append(trial.duration_s)
    nodes = {node.node: node for node in sweep.nodes}
    asked_else = parse_spec(sweep.spec, Path(f"{name}/sweep.json")).objective_run() != spec.objective_run()
    found = []
    for plan in sweep.plans:
        if asked_else and any(planned.prediction for planned in plan.feasible):
            plan = predicted_again(plan, spec, nodes[plan.nodes[0]])
        tried = launches.get(plan.hardware, {})
        known = tuple(planned for planned in plan.feasible if planned.config.config_id in tried)
        landscape = Landscape(
            name=f"{name} {plan.hardware}",
            plan=plan.model_copy(update={"feasible": known, "highest": None}),
            metric=spec.objective.metric,
            launches={planned.config.config_id: tuple(tried[planned.config.config_id]) for planned in known},
            durations_s=_known(took_s.get(plan.hardware, {})),
        )
        if landscape.truth():
            found.append(landscape)
    if not found:
        raise ArchiveError(f"{name} has no trial whose {spec.objective.metric} may be ranked; nothing to replay.")
    return tuple(found)


def _known(took_s: Mapping[str, Sequence[float | None]]) -> dict[str, tuple[float, ...]] | None:
    found = {config_id: tuple(s for s in each if s is not None) for config_id, each in took_s.items()}
    return found if all(len(found[config_id]) == len(each) for config_id, each in took_s.items()) else None
