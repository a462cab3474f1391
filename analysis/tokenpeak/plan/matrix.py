"""The matrix: every config of a spec, and for each kind of hardware which of them are worth a launch.

Where neither the spec nor its fixed part names a model, each node's own is tuned, that its inventory gives it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tokenpeak.errors import PlanError
from tokenpeak.metrics import PER_GPU
from tokenpeak.node.engine.builds import ONLY, is_vllm
from tokenpeak.plan.estimate import trial_time
from tokenpeak.plan.node_kinds import apart, asked_build, build_of, known_flags_of, takes
from tokenpeak.plan.other_server import unpredicted, without_vllm
from tokenpeak.plan.rules import ONE_NODE, advice, dropped_because, environment_refused
from tokenpeak.predict.demand import Demand, demands, objective_demand
from tokenpeak.predict.memory_plan import MemoryPlan, plan_memory
from tokenpeak.predict.model import ModelFacts, model_facts
from tokenpeak.predict.prediction import prediction_of
from tokenpeak.records import Config, Dropped, ModelName, NodeFacts, Plan, PlannedConfig, config_hash, hardware_groups
from tokenpeak.spec.axes import Alternative, ExtraConfig, FlagValue
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.sweep import ModelSpec, SweepSpec
from tokenpeak.vllm.command import command_line
from tokenpeak.vllm.flag_effects import answers_key

AS_SERVED = "as served"

_MEMORY_ONLY = ("gpu_memory_utilization", "kv_cache_memory_bytes", "swap_space", "max_model_len")
"""Flags that only change how much KV cache there is, or how long a request may be."""

_SPARE = 1.1
"""KV cache is never short when it holds a tenth more than the load can fill: block rounding, and the last step."""


def endpoint_config(endpoint: EndpointSpec) -> Config:
    """Config of an endpoint, as far as it is known; its id is a hash of the model's name and the address."""
    content = {"endpoint": endpoint.url, "model": endpoint.model}
    return Config(
        config_id=config_hash(content),
        name=AS_SERVED,
        model=ModelName(name=endpoint.model, served_name=endpoint.model),
        endpoint=endpoint.url,
    )


def endpoint_plan(endpoint: EndpointSpec, node: NodeFacts) -> Plan:
    """The one config there is to measure; nothing is predicted, since its flags are not known."""
    config = endpoint_config(endpoint)
    planned = PlannedConfig(config=config, config_class=config.config_id[:8])
    gpus = len(node.gpus) or 1
    return Plan(hardware=node.hardware, gpus=gpus, nodes=(node.node,), theoretical=1, feasible=(planned,))


def configs(spec: SweepSpec, model: ModelSpec | ModelName | None = None) -> tuple[Config, ...]:
    """The theoretical product of the axes on top of the fixed part, then the extra configs, always in the same order.

    They serve `model` where the spec names none. Their `engine` is as the spec asks for it, a build's name or a
    version; `on_node` resolves it. Raises PlanError when nobody names a model.
    """
    return tuple(_configs(spec, model))


def on_node(config: Config, node: NodeFacts) -> Config:
    """A config of `configs` with the engine build and the version that it gets on a node.

    Raises PlanError where the node has none that it asks for. The short form's one build is not named.
    """
    build = asked_build(config.engine, node)
    if build.name != ONLY:
        return _identified(config.model_copy(update={"engine": build.name, "engine_version": build.release}))
    version = None if config.engine == ONLY else config.engine
    return _identified(config.model_copy(update={"engine": None, "engine_version": build.version or version}))


def _identified(config: Config) -> Config:
    """The config with the id of what it resolves to."""
    content: dict[str, object] = {
        "model": config.model.model_dump(),
        "flags": config.flags,
        "env": config.env,
        "engine_version": config.engine_version,
    }
    if config.engine is not None:
        content["engine"] = config.engine
    if config.args:
        content["args"] = list(config.args)
    return config.model_copy(update={"config_id": config_hash(content)})


def _configs(spec: SweepSpec, model: ModelSpec | ModelName | None) -> Iterator[Config]:
    if spec.endpoint is not None:
        yield endpoint_config(spec.endpoint)
        return
    base = spec.model or model
    for picked in _product(spec.axes):
        chosen = {axis: alternative.name for axis, alternative in picked.items()}
        label = ", ".join(f"{axis}={name}" for axis, name in chosen.items()) or "fixed"
        yield _config(label, base, (spec.fixed, *picked.values()), choices=chosen)
    for extra in spec.extra_configs:
        yield _config(extra.name, base, (spec.fixed, extra), force=extra.force)


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


def kinds_of(spec: SweepSpec, nodes: Sequence[NodeFacts]) -> dict[str, list[NodeFacts]]:
    """The nodes by the label of their kind of hardware; their own models are of no matter where the spec names one."""
    if not own_models(spec, nodes):
        nodes = [node.model_copy(update={"model": None}) for node in nodes]
    return hardware_groups(nodes)


def own_models(spec: SweepSpec, nodes: Iterable[NodeFacts]) -> tuple[ModelName, ...]:
    """The models that nodes have from their inventory, each once; none where the spec names the model of all."""
    if spec.model is not None or spec.fixed.model.name is not None:
        return ()
    return tuple(dict.fromkeys(node.model for node in nodes if node.model is not None))


def model_facts_of(spec: SweepSpec, nodes: Sequence[NodeFacts]) -> dict[str, ModelFacts | None]:
    """The facts of every model that configs of the spec or baselines serve on these nodes, by name.

    None for one that is unknown.
    """
    own = dict.fromkeys(same[0].model for same in kinds_of(spec, nodes).values())
    names = dict.fromkeys(config.model.name for model in own for config in configs(spec, model))
    # A baseline leaves an axis over models to the inventory, or to the spec.
    also = [model.name for model in (*own, spec.model, spec.fixed.model) if model is not None and model.name]
    names |= dict.fromkeys(also)
    return {name: model_facts(name) for name in names}


def served_models(plans: Sequence[Plan]) -> dict[str, ModelFacts | None]:
    """The facts of every model that the plans' configs serve, by name; None for one that is unknown."""
    names = dict.fromkeys(planned.config.model.name for plan in plans for planned in plan.feasible)
    return {name: model_facts(name) for name in names}


def _config(
    name: str,
    base: ModelSpec | ModelName | None,
    patches: Sequence[Alternative | ExtraConfig],
    *,
    choices: Mapping[str, str] | None = None,
    force: bool = False,
) -> Config:
    """The patches applied in order, a later one on top of an earlier."""
    model: dict[str, str | None] = base.model_dump() if base else {"name": None, "revision": None, "served_name": None}
    flags: dict[str, FlagValue] = {}
    env: dict[str, str] = {}
    engine: str | None = None
    args: list[str] = []
    for patch in patches:
        args += patch.args
        flags |= {key.strip("-").replace("-", "_"): value for key, value in patch.flags.items()}
        env |= patch.env
        engine = patch.engine or engine
        changes = patch.model.model_dump(exclude_none=True)
        if "name" in changes:
            # Another checkpoint has revisions of its own.
            model = {**model, "revision": None}
        model |= changes
    if model["name"] is None:
        raise PlanError(
            f"Config {name!r} has no model. Give the sweep spec a model (model: {{name: …}}), "
            "or the inventory a tokenpeak_model."
        )
    flags = {key: value for key, value in sorted(flags.items()) if value is not None}
    resolved = ModelName(
        name=model["name"], revision=model["revision"], served_name=model["served_name"] or model["name"]
    )
    config = Config(
        config_id="unresolved",
        name=name,
        choices=dict(choices or {}),
        model=resolved,
        flags=flags,
        env=dict(sorted(env.items())),
        engine=engine,
        args=tuple(args),
        force=force,
    )
    return _identified(config)


def build_plan(
    spec: SweepSpec,
    nodes: Sequence[NodeFacts],
    models: Mapping[str, ModelFacts] | None = None,
    baselines: Mapping[str, Sequence[ExtraConfig]] | None = None,
) -> tuple[Plan, ...]:
    """One plan for each kind of hardware among `nodes`, in the order in which the kinds first appear.

    Raises PlanError for a flag that no engine of these nodes takes, before anything is touched. An unknown device or
    model is planned without prediction. `models` adds facts of models that only the caller knows, by name, and
    `baselines` further configs of single kinds of hardware, by label.
    """
    if spec.endpoint is not None:
        return tuple(endpoint_plan(spec.endpoint, node) for node in nodes)
    facts = model_facts_of(spec, nodes) | dict(models or {})
    kinds = kinds_of(spec, nodes)
    reasons = apart(kinds)
    plans = []
    for hardware, same in kinds.items():
        extra = (*spec.extra_configs, *(baselines or {}).get(hardware, ()))
        every = configs(spec.model_copy(update={"extra_configs": extra}), same[0].model)
        plan = _plan(spec, hardware, same, every, facts, nodes)
        plans.append(plan.model_copy(update={"apart": reasons[hardware]}))
    return tuple(plans)


def predicted_again(plan: Plan, spec: SweepSpec, node: NodeFacts) -> Plan:
    """The plan with predictions of the spec's objective run; a model whose facts are not known here has none."""
    aim = objective_demand(spec)

    def again(planned: PlannedConfig) -> PlannedConfig:
        config = planned.config
        memory = plan_memory(config, node, model_facts(config.model.name), config.engine_version or node.engine_version)
        return planned.model_copy(update={"prediction": prediction_of(memory, aim)})

    return plan.model_copy(update={"feasible": tuple(again(planned) for planned in plan.feasible)})


def _plan(
    spec: SweepSpec,
    hardware: str,
    nodes: Sequence[NodeFacts],
    every: Sequence[Config],
    facts: Mapping[str, ModelFacts | None],
    all_nodes: Sequence[NodeFacts],
) -> Plan:
    node = nodes[0]
    demanded, aim = demands(spec.workloads), objective_demand(spec)
    feasible: list[PlannedConfig] = []
    dropped: list[Dropped] = []
    names: dict[str, str] = {}
    for asked_config in every:
        try:
            config = on_node(asked_config, node)
        except PlanError as error:
            # Nothing forces a config on a node that has no such engine.
            dropped.append(Dropped(config=asked_config, rule="engine_build", reason=str(error)))
            continue
        model = facts[config.model.name]
        version = config.engine_version or node.engine_version
        is_other = not is_vllm(config.engine_version)
        try:
            if is_other:
                config = _identified(without_vllm(config, spec))
            else:
                command_line(config, version, known_flags_of(build_of(config, node), version))
        except PlanError as error:
            if is_other or not takes(config, all_nodes):
                raise
            dropped.append(Dropped(config=config, rule="engine_flags", reason=str(error)))
            continue
        if twin := names.get(config.config_id):
            dropped.append(Dropped(config=config, rule="duplicate", reason=f"it is the same as {twin!r}"))
            continue
        names[config.config_id] = config.name
        if refused := [reason for each in nodes if (reason := environment_refused(config, each))]:
            # Nothing forces a config on a node that refuses it.
            dropped.append(Dropped(config=config, rule="environment", reason=refused[0]))
            continue
        if is_other:
            feasible.append(unpredicted(config))
            continue
        forbidden = dropped_because(config, node, model, version)
        # Nothing makes one node into several either: the engine would wait for the others, with production down.
        if forbidden and (not config.force or forbidden[0] == ONE_NODE):
            dropped.append(Dropped(config=config, rule=forbidden[0], reason=forbidden[1]))
            continue
        memory = None if forbidden else plan_memory(config, node, model, version)
        predicted = prediction_of(memory, aim)
        feasible.append(
            PlannedConfig(
                config=config,
                config_class=class_key(config, memory, demanded),
                answers=answers_key(config, version),
                prediction=predicted,
                advice=advice(config, node, model, version),
            )
        )
    plan = Plan(
        hardware=hardware,
        gpus=len(node.gpus) or 1,
        nodes=tuple(node.node for node in nodes),
        theoretical=len(every),
        feasible=tuple(feasible),
        dropped=tuple(dropped),
        highest=spec.highest,
    )
    time = trial_time(spec, plan, nodes, facts)
    return plan.model_copy(update={"estimated_trial_s": time.each_s if time else None})


def with_objective(spec: SweepSpec, configs: Iterable[Config]) -> tuple[SweepSpec, tuple[str, ...]]:
    """The spec with the objective per GPU where it names none and its configs differ in GPUs; and a note that says so.

    `configs` are those of all kinds of hardware, baselines among them.
    """
    per_gpu = PER_GPU.get(spec.objective.metric)
    if per_gpu is None or "metric" in spec.objective.model_fields_set:
        return spec, ()
    counts = sorted({config.gpus for config in configs if config.gpus is not None})
    if len(counts) < 2:
        return spec, ()
    named = ", ".join(map(str, counts[:-1]))
    return (
        spec.model_copy(update={"objective": spec.objective.model_copy(update={"metric": per_gpu})}),
        (
            f"configs take {named} or {counts[-1]} GPUs, so they are ranked by {per_gpu}; "
            f"objective: {{metric: {spec.objective.metric}}} ranks them as a whole",
        ),
    )


def class_key(config: Config, memory: MemoryPlan | None, demands: Sequence[Demand]) -> str:
    """The class of a config under these runs, as 8 hex digits; without facts each config is a class of its own.

    Configs of one class cannot differ, so that one of each stands for all: they are equal once every limit that this
    load can never reach has been struck out: sequences beyond the most requests in flight, batched tokens beyond the
    most that a step can hold, and context length and memory beyond what the load can ever fill of the KV cache,
    prefixes that requests share included. Anything not understood keeps configs apart.
    """
    if memory is None:
        return config.config_id[:8]
    deployment = memory.deployment
    settings: dict[str, object] = {
        key: value
        for key, value in config.flags.items()
        if key not in (*_MEMORY_ONLY, "max_num_seqs", "max_num_batched_tokens")
    }
    settings.setdefault("enforce_eager", deployment.eager)
    settings.setdefault("tensor_parallel_size", deployment.tensor_parallel)
    settings.setdefault("pipeline_parallel_size", deployment.pipeline_parallel)
    settings["dtype"] = _dtype(memory)

    flight = _largest([demand.concurrency for demand in demands])
    longest = _largest([demand.longest_tokens for demand in demands])
    prompt = _largest([demand.longest_input_tokens for demand in demands])
    sequences: int | str = deployment.max_num_seqs
    if flight is not None and deployment.max_num_seqs >= flight:
        sequences = "all requests in flight"
    settings["max_num_seqs"] = sequences

    running = deployment.max_num_seqs if flight is None else min(flight, deployment.max_num_seqs)
    step = None if prompt is None else running * (prompt + 1)
    if step is not None and deployment.max_num_batched_tokens >= step:
        settings["max_num_batched_tokens"] = "all prompts in flight"
    else:
        settings["max_num_batched_tokens"] = deployment.max_num_batched_tokens

    shared = _largest([demand.shared_tokens for demand in demands]) if memory.prefix_caching else 0
    never_short = False
    if longest is not None and shared is not None and longest <= memory.max_model_len:
        never_short = memory.kv_cache_tokens >= (running * longest + shared) * _SPARE
    if never_short:
        settings["kv_cache"] = "never short"
    else:
        settings["kv_cache"] = {flag: config.flags.get(flag) for flag in _MEMORY_ONLY}
        settings["max_num_seqs"] = deployment.max_num_seqs
        settings["max_num_batched_tokens"] = deployment.max_num_batched_tokens
    content = [config.model.model_dump(), settings, config.env, config.engine_version, config.engine]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _dtype(memory: MemoryPlan) -> str:
    """The dtype with `auto` and its other names resolved."""
    dtype = memory.deployment.dtype
    if dtype == "auto":
        dtype = memory.deployment.model.dtype
    return {"half": "float16", "float": "float32"}.get(dtype, dtype)


def _largest(values: Sequence[int | None]) -> int | None:
    """The largest, or None when one of them is unknown."""
    limits = [value for value in values if value is not None]
    return max(limits) if limits and len(limits) == len(values) else None
