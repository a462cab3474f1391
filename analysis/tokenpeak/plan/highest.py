"""An axis of which only the highest value that launches and survives the load is wanted: who climbs it, and how far.

One config climbs: the same at each value but for the axis. It is the one that asks for most memory otherwise, so that
what it survives the others should survive, too. All others are then tried at the value found, and at no other.
"""

import math

from tokenpeak.records import Plan, PlannedConfig

FIRST = 5 / 6
"""Where among the values the first launch is: 0.95 of the usual ones, and nearer to the top than a half anywhere."""


def climbers(plan: Plan) -> tuple[tuple[PlannedConfig, ...], ...]:
    """Each config at its values in ascending order, the one that asks for most memory otherwise first.

    That is the one to which the prediction leaves the fewest tokens of KV cache; in the plan's order where
    there is no prediction. Empty when the plan seeks no highest value, or none of the axis's configs is feasible.
    """
    groups: dict[tuple[tuple[str, str], ...], list[PlannedConfig]] = {}
    for planned in plan.feasible:
        choices = planned.config.choices
        if plan.highest is not None and plan.highest in choices:
            others = tuple((axis, name) for axis, name in choices.items() if axis != plan.highest)
            groups.setdefault(others, []).append(planned)
    ladders = (tuple(sorted(group, key=lambda planned: value_on(plan, planned))) for group in groups.values())
    return tuple(sorted(ladders, key=lambda ladder: _room(ladder[-1])))


def value_on(plan: Plan, planned: PlannedConfig) -> float:
    """The config's value on the axis."""
    assert plan.highest is not None, "only a plan that seeks a highest value has such an axis"
    return float(planned.config.choices[plan.highest])


def at_value(plan: Plan, name: str) -> Plan:
    """The plan with this value of the axis alone, and the configs outside the grid."""
    axis = plan.highest or ""
    feasible = tuple(planned for planned in plan.feasible if planned.config.choices.get(axis, name) == name)
    return plan.model_copy(update={"feasible": feasible, "highest": None})


def as_predicted(plan: Plan) -> Plan:
    """Plan that is searched if the value launched first should be the highest; the plan itself without such an axis."""
    ladders = climbers(plan)
    if plan.highest is None or not ladders:
        return plan
    return at_value(plan, ladders[0][first_of(len(ladders[0]))].config.choices[plan.highest])


def first_of(values: int) -> int:
    """Which of so many values is launched first, from 0."""
    return round(FIRST * (values - 1))


def launches_to_find(plan: Plan) -> int:
    """About how many launches the climb takes beside the one at the value found; 0 without such an axis."""
    ladders = climbers(plan)
    return math.ceil(math.log2(len(ladders[0]))) if ladders else 0


def highest_lines(plan: Plan) -> list[str]:
    """Sentence on how a plan finds a highest value; none for another."""
    ladders = climbers(plan)
    if plan.highest is None or not ladders:
        return []
    names = [rung.config.choices[plan.highest] for rung in ladders[0]]
    others = [f"{axis}={name}" for axis, name in ladders[0][0].config.choices.items() if axis != plan.highest]
    by = f" by {', '.join(others)}, which asks for most memory" if len(ladders) > 1 else ""
    return [
        f"{plan.highest}: of the {len(names)} values from {names[0]} to {names[-1]}, the highest that launches and "
        f"carries the whole load is found first, in about {launches_to_find(plan) + 1} launches{by}; then "
        f"{len(as_predicted(plan).feasible)} configs are searched at it"
    ]


def _room(planned: PlannedConfig) -> float:
    tokens = planned.prediction.kv_cache_tokens if planned.prediction else None
    return math.inf if tokens is None else tokens
