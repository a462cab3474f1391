"""Node screening of a plan: which config each node launches, under which load, and how often."""

from collections.abc import Collection, Sequence

from tokenpeak.records import Plan, PlannedConfig
from tokenpeak.spec.node_screening import FEW_NODES
from tokenpeak.spec.sweep import SweepSpec, WorkloadPlan


def screening_config(spec: SweepSpec, plan: Plan) -> PlannedConfig:
    """The config that all nodes of the plan launch: the first baseline that it has, else its first config."""
    named = {planned.config.name: planned for planned in plan.feasible}
    return next((named[name] for name in spec.search.baseline if name in named), plan.feasible[0])


def screening_spec(spec: SweepSpec) -> SweepSpec:
    """The sweep's spec with the objective's run as its only load."""
    name, label = spec.objective_run()
    (workload,) = (each.workload for each in spec.workloads if each.workload.name == name)
    (level,) = (
        level for each in spec.workloads if each.workload.name == name for level in each.levels if level.label == label
    )
    return spec.model_copy(update={"workloads": (WorkloadPlan(workload=workload, levels=(level,)),)})


def screened_nodes(spec: SweepSpec, plan: Plan, there: Collection[str] | None = None) -> tuple[str, ...]:
    """The nodes of the plan that are compared, of those that are `there` (None: all); one alone cannot be."""
    nodes = tuple(node for node in plan.nodes if there is None or node in there)
    return nodes if spec.node_screening is not False and plan.feasible and len(nodes) > 1 else ()


def screening_launches(spec: SweepSpec, plan: Plan) -> int:
    """How many launches comparing the plan's nodes takes."""
    launches = spec.node_screening.launches if spec.node_screening is not False else 0
    return launches * len(screened_nodes(spec, plan))


def screening_notes(spec: SweepSpec, plans: Sequence[Plan]) -> list[str]:
    """What a node screening cannot show of these groups, beforehand."""
    if spec.node_screening is False:
        return []
    notes = []
    for plan in plans:
        nodes = len(plan.nodes)
        if nodes == 1:
            notes.append(f"node_screening: {plan.nodes[0]} is alone of its kind ({plan.hardware}): nothing to compare")
        elif nodes == 2:
            notes.append(
                f"node_screening: of two nodes ({', '.join(plan.nodes)}), speed cannot say which one is unusual; only "
                "one that its driver holds back is named"
            )
        elif nodes < FEW_NODES and spec.node_screening.launches == 1:
            notes.append(
                f"node_screening: {nodes} nodes with one launch each show only a node that is very slow; give "
                "launches: 2 or more"
            )
    return notes
