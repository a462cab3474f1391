"""Plan of a whole sweep: each kind of hardware with its own baselines, one objective for all, and a plan for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tokenpeak.errors import PlanError
from tokenpeak.plan.baseline import baselines
from tokenpeak.plan.matrix import build_plan, configs, kinds_of, model_facts_of, with_objective
from tokenpeak.predict.model import ModelFacts, facts_from_hub
from tokenpeak.quality.sweep_quality import with_reference_first
from tokenpeak.records import NodeFacts, Plan
from tokenpeak.search.remaining import cost_of, limits_of
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.downtime_budget import require_deadlines
from tokenpeak.sweep.inventory.nodes import Inventory
from tokenpeak.sweep.limits import lease_offset_s
from tokenpeak.sweep.probe import Probe


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What a sweep is to do, before its first trial."""

    spec: SweepSpec
    """With the objective and the baselines as they were settled for these nodes."""
    plans: tuple[Plan, ...]
    notes: tuple[str, ...]
    """What was settled, and why a baseline is left out, in sentences."""


def plan_nodes(
    spec: SweepSpec, nodes: Sequence[NodeFacts], models: Mapping[str, ModelFacts] | None = None
) -> SweepPlan:
    """The plan of a sweep on these nodes; raises what `build_plan` raises. `models` adds facts by the model's name."""
    if spec.endpoint is not None:
        return SweepPlan(spec=spec, plans=build_plan(spec, nodes), notes=())
    kinds = kinds_of(spec, nodes)
    by_hardware = {hardware: baselines(spec, same) for hardware, same in kinds.items()}
    own = {hardware: extra for hardware, (extra, _) in by_hardware.items()}
    every = [
        config
        for hardware, same in kinds.items()
        for config in configs(
            spec.model_copy(update={"extra_configs": (*spec.extra_configs, *own[hardware])}), same[0].model
        )
    ]
    spec, ranked_by = with_objective(spec, every)
    plans = build_plan(spec, nodes, models, own)
    spec, compared = with_reference_first(spec, plans)
    shared = _shares(spec, plans)
    left_out = dict.fromkeys(note for _, notes in by_hardware.values() for note in notes)
    return SweepPlan(spec=spec, plans=plans, notes=(*left_out, *ranked_by, *compared, *shared))


def _shares(spec: SweepSpec, plans: Sequence[Plan]) -> tuple[str, ...]:
    """What each kind of hardware has of a budget of the whole sweep to begin with."""
    feasible = [plan for plan in plans if plan.feasible]
    if spec.search.budget != "per_sweep" or len(feasible) < 2:
        return ()
    shares = []
    for hardware, search in limits_of(spec, [(plan, ()) for plan in feasible]).items():
        parts = [f"{search.trials} trials"] if search.trials is not None else []
        parts += [f"{search.gpu_hours:.2g} GPU-hours"] if search.gpu_hours is not None else []
        shares.append(f"{' and '.join(parts)} for {hardware}")
    return (f"one budget for all, to begin with {'; '.join(shares)}; what one search leaves goes to the others",)


def plan_sweep(spec: SweepSpec, inventory: Inventory, probed: Probe) -> SweepPlan:
    """The plan for the nodes that can be worked on; raises PlanError when nothing is feasible anywhere."""
    for name, ready in probed.usable.items():
        require_deadlines(spec, name, ready.declaration, lease_offset_s(inventory, name))
    facts = [ready.facts for ready in probed.usable.values()]
    known = model_facts_of(spec, facts) if spec.endpoint is None else {}
    facts_by_model = {name: fact or facts_from_hub(name) for name, fact in known.items()}
    planned = plan_nodes(spec, facts, {name: fact for name, fact in facts_by_model.items() if fact is not None})
    feasible = [plan for plan in planned.plans if plan.feasible]
    if not feasible:
        reasons = sorted({f"{dropped.rule}: {dropped.reason}" for plan in planned.plans for dropped in plan.dropped})
        raise PlanError("No config of the matrix can work on these nodes.\n  " + "\n  ".join(reasons))
    if spec.endpoint is None:
        limits = limits_of(planned.spec, [(plan, ()) for plan in feasible])
        own = {name: planned.spec.model_copy(update={"search": search}) for name, search in limits.items()}
        feasible = [
            plan.model_copy(
                update={"estimated_duration_s": cost_of(own[plan.hardware], plan, facts, facts_by_model).duration_s}
            )
            for plan in feasible
        ]
    return replace(planned, plans=tuple(feasible))
