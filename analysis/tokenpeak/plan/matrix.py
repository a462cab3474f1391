"""The matrix: every config of a spec, and for each kind of hardware which of them are worth a launch."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from tokenpeak.errors import PlanError
from tokenpeak.plan.axes import Alternative, ExtraConfig, FlagValue
from tokenpeak.plan.classes import class_key
from tokenpeak.plan.command import launch
from tokenpeak.plan.demand import demands, objective_demand
from tokenpeak.plan.endpoint import endpoint_config, endpoint_plan
from tokenpeak.plan.estimate import estimate
from tokenpeak.plan.fit import fit
from tokenpeak.plan.flags import installed_flags
from tokenpeak.plan.model import ModelFacts, model_facts
from tokenpeak.plan.predict import predict
from tokenpeak.plan.rules import advice, dropped_because, environment_refused
from tokenpeak.plan.spec import ModelSpec, SweepSpec
from tokenpeak.records import Config, Dropped, ModelName, NodeFacts, Plan, PlannedConfig


def configs(
    spec: SweepSpec, model_default: ModelSpec | None = None, engine_version: str | None = None
) -> tuple[Config, ...]:
    """The theoretical product of the axes on top of the fixed part, then the extra configs, always in the same order.

    Raises PlanError when neither the spec nor the inventory names a model.
    """
    return tuple(_configs(spec, model_default, engine_version))


def _configs(spec: SweepSpec, model_default: ModelSpec | None, engine_version: str | None) -> Iterator[Config]:
    if spec.endpoint is not None:
        yield endpoint_config(spec.endpoint)
        return
    base = spec.model or model_default
    for picked in _product(spec.axes):
        chosen = {axis: alternative.name for axis, alternative in picked.items()}
        label = ", ".join(f"{axis}={name}" for axis, name in chosen.items()) or "fixed"
        yield _config(label, base, (spec.fixed, *picked.values()), engine_version, choices=chosen)
    for extra in spec.extra_configs:
        yield _config(extra.name, base, (spec.fixed, extra), engine_version, force=extra.force)


def _product(axes: Mapping[str, Sequence[Alternative]]) -> list[dict[str, Alternative]]:
    """One alternative of each axis, the last axis varying fastest; an axis none of whose conditions holds is absent."""
    combinations: list[dict[str, Alternative]] = [{}]
    for axis, alternatives in axes.items():
        grown: list[dict[str, Alternative]] = []
        for picked in combinations:
            fitting = [
                alternative
                for alternative in alternatives
                if all(other in picked and picked[other].name == name for other, name in alternative.when.items())
            ]
            grown += [{**picked, axis: alternative} for alternative in fitting] or [picked]
        combinations = grown
    return combinations


def model_facts_of(spec: SweepSpec, model_default: ModelSpec | None) -> dict[str, ModelFacts | None]:
    """The facts of every model that the spec's configs serve, by name; None for one that is unknown."""
    return {name: model_facts(name) for name in {config.model.name: None for config in configs(spec, model_default)}}


def _config(
    name: str,
    base: ModelSpec | None,
    patches: Sequence[Alternative | ExtraConfig],
    engine_version: str | None,
    *,
    choices: Mapping[str, str] | None = None,
    force: bool = False,
) -> Config:
    """The patches applied in order, a later one on top of an earlier."""
    model: dict[str, str | None] = base.model_dump() if base else {"name": None, "revision": None, "served_name": None}
    flags: dict[str, FlagValue] = {}
    env: dict[str, str] = {}
    version = engine_version
    for patch in patches:
        flags |= {key.strip("-").replace("-", "_"): value for key, value in patch.flags.items()}
        env |= patch.env
        version = patch.engine or version
        given = patch.model.model_dump(exclude_none=True)
        if "name" in given:
            # Another checkpoint has revisions of its own.
            model = {**model, "revision": None}
        model |= given
    if model["name"] is None:
        raise PlanError(
            f"Config {name!r} has no model. Give the sweep spec a model (model: {{name: …}}), "
            "or the inventory a tokenpeak_model."
        )
    flags = {key: value for key, value in sorted(flags.items()) if value is not None}
    resolved = ModelName(
        name=model["name"], revision=model["revision"], served_name=model["served_name"] or model["name"]
    )
    content = {"model": resolved.model_dump(), "flags": flags, "env": env, "engine_version": version}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return Config(
        config_id=digest[:12],
        name=name,
        choices=dict(choices or {}),
        model=resolved,
        flags=flags,
        env=dict(sorted(env.items())),
        engine_version=version,
        force=force,
    )


def build_plan(
    spec: SweepSpec,
    nodes: Sequence[NodeFacts],
    model_default: ModelSpec | None = None,
    engine_version: str | None = None,
    models: Mapping[str, ModelFacts] | None = None,
) -> tuple[Plan, ...]:
    """One plan for each kind of hardware among `nodes`, in the order in which the kinds first appear.

    An unknown device or model is planned without prediction. `models` adds facts of models that only the
    caller knows, by name.
    """
    if spec.endpoint is not None:
        return tuple(endpoint_plan(spec.endpoint, node) for node in nodes)
    kinds: dict[str, list[NodeFacts]] = {}
    for node in nodes:
        kinds.setdefault(node.hardware, []).append(node)
    every = configs(spec, model_default, engine_version)
    facts = model_facts_of(spec, model_default) | dict(models or {})
    return tuple(_plan(spec, hardware, same, every, facts, engine_version) for hardware, same in kinds.items())


def foretold_again(plan: Plan, spec: SweepSpec, node: NodeFacts) -> Plan:
    """The plan with predictions of the spec's objective run; a model whose facts are not known here has none."""
    aim = objective_demand(spec)

    def again(planned: PlannedConfig) -> PlannedConfig:
        config = planned.config
        sits = fit(config, node, model_facts(config.model.name), config.engine_version or node.engine_version)
        return planned.model_copy(update={"prediction": predict(sits, aim) if sits and sits.fits else None})

    return plan.model_copy(update={"feasible": tuple(again(planned) for planned in plan.feasible)})


def _plan(
    spec: SweepSpec,
    hardware: str,
    nodes: Sequence[NodeFacts],
    every: Sequence[Config],
    facts: Mapping[str, ModelFacts | None],
    engine_version: str | None,
) -> Plan:
    node = nodes[0]
    asked, aim = demands(spec.workloads), objective_demand(spec)
    feasible: list[PlannedConfig] = []
    dropped: list[Dropped] = []
    seen: dict[str, str] = {}
    for config in every:
        model = facts[config.model.name]
        version = config.engine_version or engine_version or node.engine_version
        known = installed_flags(node.engine_help, node.engine_version, version)
        launch(config, version, known)  # raises for a flag that this engine does not take, before anything is touched
        if twin := seen.get(config.config_id):
            dropped.append(Dropped(config=config, rule="duplicate", reason=f"it is the same as {twin!r}"))
            continue
        seen[config.config_id] = config.name
        if refused := [reason for each in nodes if (reason := environment_refused(config, each))]:
            # Nothing forces a config on a node that refuses it.
            dropped.append(Dropped(config=config, rule="environment", reason=refused[0]))
            continue
        forbidden = dropped_because(config, node, model, version)
        if forbidden and not config.force:
            dropped.append(Dropped(config=config, rule=forbidden[0], reason=forbidden[1]))
            continue
        sits = None if forbidden else fit(config, node, model, version)
        foretold = predict(sits, aim) if sits and sits.fits else None
        feasible.append(
            PlannedConfig(
                config=config,
                config_class=class_key(config, sits, asked),
                prediction=foretold,
                advice=advice(config, node, model, version),
            )
        )
    plan = Plan(
        hardware=hardware,
        nodes=tuple(node.node for node in nodes),
        theoretical=len(every),
        feasible=tuple(feasible),
        dropped=tuple(dropped),
        highest=spec.highest,
    )
    return plan.model_copy(update={"estimated_duration_s": estimate(spec, plan, nodes, facts).duration_s})
