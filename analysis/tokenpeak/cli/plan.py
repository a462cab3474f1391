"""`tokenpeak plan`: the matrix before anything is touched; works with no node reachable."""

import json
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tokenpeak import paths
from tokenpeak.cli import options
from tokenpeak.cli.check import refuse
from tokenpeak.console import SafeConsole, SafeTable
from tokenpeak.errors import SpecError
from tokenpeak.node.engine.builds import is_vllm
from tokenpeak.plan.estimate import Estimate
from tokenpeak.plan.matrix import model_facts_of
from tokenpeak.predict.demand import objective_demand
from tokenpeak.predict.memory_plan import is_countable, missing_hardware, missing_model, plan_memory, unknown_shape
from tokenpeak.predict.model import ModelFacts, facts_from_hub
from tokenpeak.predict.prediction import excess_when_idle, interval_words, slo_rate_per_s
from tokenpeak.records import Dropped, NodeFacts, Plan, PlannedConfig, Prediction
from tokenpeak.search.highest import as_predicted, highest_lines
from tokenpeak.search.remaining import START_GUESS, cost_of, downtime_text, duration_text, limits_of, outline
from tokenpeak.spec.sweep import SweepSpec, read_spec, sweep_path
from tokenpeak.sweep.downtime_budget import require_deadlines
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory
from tokenpeak.sweep.limits import group_limits
from tokenpeak.sweep.probe import known_facts
from tokenpeak.sweep.sweep_plan import plan_nodes
from tokenpeak.terminal import echo_text

POOLING = (
    "The performance model is of generation, so nothing is predicted for a pooling workload: neither the order of its "
    "configs nor its time, which the estimate takes for 0.05 s a text; memory is planned as for any model."
)
ROWS = 12
"""Most classes that the table lists; `--all` and the JSON have every config."""


@click.command(short_help="Print what would be tried, what not and why, and the cost.")
@options.inventory("Inventory to plan for.")
@click.option("--sweep", "sweep_name", help="Sweep spec; the inventory's default when absent.")
@options.NODES
@options.style()
@click.option("--all", "everything", is_flag=True, help="List every config and every dropped one.")
@click.option(
    "--trial",
    "trial_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Instead write one config's trial there, for ansible-playbook trial.yml -e @FILE.",
)
@click.option("--config", "config_name", help="With --trial: which config; the first of the plan when absent.")
def plan(
    inventory_name: str,
    sweep_name: str | None,
    nodes: tuple[str, ...],
    style: str,
    everything: bool,
    trial_path: Path | None,
    config_name: str | None,
) -> None:
    """Print the matrix: feasible configs with their class and prediction, dropped ones with reasons, and the cost.

    Takes each node's facts from its last probe, else from what the inventory declares; contacts no node.
    """
    if config_name is not None and trial_path is None:
        raise click.UsageError("--config goes with --trial.")
    inventory, spec = readable(inventory_name, sweep_name, nodes)
    facts = known_facts(inventory)
    models = known_models(spec, facts)
    planned = plan_nodes(spec, facts, {name: known for name, known in models.items() if known is not None})
    spec, plans = planned.spec, planned.plans
    if trial_path is not None:
        _write_trial(trial_path, config_name, spec, plans[0], inventory, facts)
        return
    idle = inventory.idle
    estimates, outlines = prospects(spec, plans, facts, models, idle)
    # Imported here: it needs SciPy, which takes a second that --help should not cost.
    from tokenpeak.results.closed_window import short_closed_loops
    from tokenpeak.results.steady_state import short_runs
    from tokenpeak.sweep.prefix_notes import prefix_notes

    short = [*(each.words for each in short_runs(spec)), *short_closed_loops(spec)]
    short += [words for words, _ in prefix_notes(spec)]
    beyond = [note for one in plans if (note := _beyond_reach(spec, one, _nodes_of(one, facts)[0], models))]
    unknown = [POOLING] if spec.pools else _notes(facts, _of_vllm(models, plans))
    notes = [*beyond, *unknown, *planned.notes, *short]
    if style == "json":
        document = as_json(inventory.name, spec, plans, estimates, [*outlines, *notes])
        echo_text(json.dumps(document, indent=1 if sys.stdout.isatty() else None, ensure_ascii=False))
        return
    console = SafeConsole(width=None if sys.stdout.isatty() else 160, highlight=False)
    for one, cost, words in zip(plans, estimates, outlines, strict=True):
        print_plan(console, spec, one, cost, _nodes_of(one, facts)[0], models, idle, everything=everything)
        console.print(f"will do: {words}", soft_wrap=True)
    for note in notes:
        console.print(f"note: {note}")


def readable(inventory_name: str, sweep_name: str | None, nodes: tuple[str, ...] = ()) -> tuple[Inventory, SweepSpec]:
    """The inventory and its sweep; what is wrong with either, or keeps it from being planned, is refused."""
    inventory = read_inventory(inventory_name, nodes=nodes)
    name = options.sweep_of(inventory, sweep_name)
    from tokenpeak.sweep.check_spec import spec_mistakes
    from tokenpeak.sweep.inventory.checks import inventory_mistakes

    refuse([*inventory_mistakes(inventory.hosts_path.parent, nodes), *spec_mistakes(sweep_path(name))])
    group_limits(inventory)
    spec = read_spec(name)
    if spec.endpoint is not None:
        raise SpecError(
            f"Sweep {spec.name} measures {spec.endpoint.url} as it is: there is no matrix to plan. "
            f"Run `tokenpeak sweep --sweep {name}`; nothing is launched or stopped."
        )
    for node in inventory.nodes:
        require_deadlines(spec, node.name, {"limits": node.limits})
    return inventory, spec


def prospects(
    spec: SweepSpec,
    plans: Sequence[Plan],
    facts: Sequence[NodeFacts],
    models: Mapping[str, ModelFacts | None],
    idle: Collection[str],
) -> tuple[list[Estimate], list[str]]:
    """What the sweep costs on each kind of hardware, and what it will do there; `idle` nodes have no production."""
    shared = limits_of(spec, [(one, ()) for one in plans if one.feasible])
    own = [spec.model_copy(update={"search": shared.get(one.hardware, spec.search)}) for one in plans]
    estimates = [cost_of(each, one, facts, models) for each, one in zip(own, plans, strict=True)]
    as_grid = spec.model_copy(
        update={"search": spec.search.model_copy(update={"strategy": "grid", "trials": None, "budget": "per_hardware"})}
    )
    grids = [cost_of(as_grid, one, facts, models) for one in plans]
    outlines = [outline(spec, one, cost, grid, idle) for one, cost, grid in zip(plans, estimates, grids, strict=True)]
    guesses = ["" if _nodes_of(one, facts)[0].simulated or not one.feasible else START_GUESS for one in plans]
    return estimates, [f"{words}{guess}" for words, guess in zip(outlines, guesses, strict=True)]


def known_models(spec: SweepSpec, facts: Sequence[NodeFacts]) -> dict[str, ModelFacts | None]:
    """The shape of each model of the sweep, by the nodes' files, the table or the hub; None where nobody knows it."""
    return {name: known or facts_from_hub(name) for name, known in model_facts_of(spec, facts).items()}


def _write_trial(
    path: Path, config_name: str | None, spec: SweepSpec, plan: Plan, inventory: Inventory, facts: Sequence[NodeFacts]
) -> None:
    from tokenpeak.sweep.trial.request import write_hand_trial

    fact = _nodes_of(plan, facts)[0]
    node = inventory.node(fact.node)
    planned = write_hand_trial(path, config_name, spec=spec, plan=plan, node=node, facts=fact)
    echo_text(
        f"{path} has the trial of {planned.config.name} on {node.name}:\n"
        f"ansible-playbook -i {inventory.hosts_path.parent} {paths.PLAYBOOKS}/trial.yml -e @{path}"
    )


def _nodes_of(one: Plan, facts: Sequence[NodeFacts]) -> list[NodeFacts]:
    return [fact for fact in facts if fact.node in one.nodes]


def _of_vllm(models: Mapping[str, ModelFacts | None], plans: Sequence[Plan]) -> dict[str, ModelFacts | None]:
    """The models of configs that a build of vLLM is there for, and that are not all predicted."""
    feasible = [planned for one in plans for planned in one.feasible]
    configs = [planned.config for planned in feasible]
    configs += [dropped.config for one in plans for dropped in one.dropped if dropped.rule != "engine_build"]
    own = {config.model.name for config in configs if is_vllm(config.engine_version)}
    # Where a probe has read the checkpoint, all is predicted without the facts of its name.
    predicted = {planned.config.model.name for planned in feasible if planned.prediction is not None}
    own -= predicted - {planned.config.model.name for planned in feasible if planned.prediction is None}
    return {name: known for name, known in models.items() if name in own}


def _notes(facts: Sequence[NodeFacts], models: Mapping[str, ModelFacts | None]) -> list[str]:
    """What keeps the plan from predicting, and what a person may want to mend."""
    hardware = {note for fact in facts if (note := missing_hardware(fact))}
    shapes = [
        missing_model(name) if known is None else unknown_shape(known, None)
        for name, known in models.items()
        if known is None or not is_countable(known)
    ]
    return sorted(hardware) + shapes


def _beyond_reach(spec: SweepSpec, one: Plan, node: NodeFacts, models: Mapping[str, ModelFacts | None]) -> str | None:
    """That no config is predicted to hold the SLO, if so: no rate would be found, and each launch would search one."""
    demand = objective_demand(spec)
    if not demand.generates:
        return None
    slo = spec.slo if demand.search is None else demand.search.max_rate_under
    classes = {planned.config_class: planned for planned in one.feasible}
    excesses: dict[float, float | None] = {}
    for planned in classes.values():
        config = planned.config
        memory = plan_memory(config, node, models.get(config.model.name), config.engine_version)
        excess = excess_when_idle(memory, demand, slo) if memory is not None else None
        if excess is None or excess <= 1:
            return None
        excesses[excess] = planned.prediction.uncertainty if planned.prediction else None
    if not excesses:
        return None
    least = min(excesses)
    return (
        f"{one.hardware}: no config is predicted to hold the SLO at any rate: already one request at a time takes "
        f"{least:.3g} times a limit ({interval_words(excesses[least])}). Limits are in milliseconds."
    )


def as_json(
    inventory: str, spec: SweepSpec, plans: Sequence[Plan], estimates: Sequence[Estimate], notes: Sequence[str]
) -> dict[str, Any]:
    """The plan for machines; over all kinds of hardware, theoretical = len(feasible) + len(dropped)."""
    energies = [cost.energy_kwh for cost in estimates]
    return {
        "inventory": inventory,
        "sweep": spec.name,
        "theoretical": sum(one.theoretical for one in plans),
        "feasible": [
            {
                "hardware": one.hardware,
                "nodes": list(one.nodes),
                "config": planned.config.model_dump(mode="json"),
                "class": planned.config_class,
                "prediction": planned.prediction.model_dump(mode="json") if planned.prediction else None,
                "advice": list(planned.advice),
            }
            for one in plans
            for planned in one.feasible
        ],
        "dropped": [
            {
                "hardware": one.hardware,
                "config": dropped.config.model_dump(mode="json"),
                "rule": dropped.rule,
                "reason": dropped.reason,
            }
            for one in plans
            for dropped in one.dropped
        ],
        "estimate": {
            "trials": sum(cost.trials for cost in estimates),
            "duration_s": max((cost.duration_s for cost in estimates), default=0.0),
            "gpu_hours": sum(cost.gpu_hours for cost in estimates),
            "production_downtime_s": sum(cost.production_downtime_s for cost in estimates),
            "energy_kwh": None if None in energies else sum(energy for energy in energies if energy is not None),
        },
        "notes": [*notes, *(f"{one.hardware}: {line}" for one in plans for line in highest_lines(one))],
    }


def print_plan(
    console: SafeConsole,
    spec: SweepSpec,
    one: Plan,
    cost: Estimate,
    node: NodeFacts,
    models: Mapping[str, ModelFacts | None],
    idle: Collection[str] = (),
    *,
    everything: bool,
) -> None:
    """One kind of hardware: classes best first, the dropped by rule, advice, and the cost."""
    predicted = as_predicted(one)
    classes = Counter(planned.config_class for planned in one.feasible)
    console.print()
    console.print(f"{one.hardware} on {', '.join(one.nodes)}", style="bold")
    for reason in one.apart:
        console.print(reason, markup=False)
    console.print(
        f"{one.theoretical} configs = {len(one.feasible)} feasible in {len(classes)} classes + "
        f"{len(one.dropped)} dropped"
    )
    for line in highest_lines(one):
        console.print(f"{line}; below, those at the value that is launched first")
    classes = Counter(planned.config_class for planned in predicted.feasible)
    shown = sorted(predicted.feasible, key=lambda planned: -_speed(planned.prediction))
    if not everything:
        first: dict[str, PlannedConfig] = {}
        for planned in shown:
            first.setdefault(planned.config_class, planned)
        # Rows without a figure would say nothing each; the notes say why there are none.
        shown = [planned for planned in first.values() if is_predicted(planned.prediction)][:ROWS]
        if count := sum(not is_predicted(planned.prediction) for planned in predicted.feasible):
            console.print(f"not predicted: {count} configs; --all lists them, and a note below says what is not known")
    if shown:
        console.print(_table(spec, shown, classes, node, models, everything=everything))
    if shown and len(classes) > ROWS and not everything:
        least = min(map(_speed, (planned.prediction for planned in first.values())))
        console.print(f"… and {len(classes) - ROWS} more classes, down to {least:,.0f} tok/s; --all lists every config")
    _print_dropped(console, one.dropped, everything=everything)
    advice = Counter(sentence for planned in predicted.feasible for sentence in planned.advice)
    for sentence, count in advice.most_common():
        console.print(f"advice ({count} configs): {sentence}")
    energy = "unknown energy" if cost.energy_kwh is None else f"{cost.energy_kwh:.2g} kWh of the devices"
    console.print(
        f"estimate: {cost.trials} trials, {duration_text(cost.duration_s)}, {cost.gpu_hours:.2g} GPU-hours, "
        f"{downtime_text(one, cost, idle)}, {energy}"
    )


def is_predicted(prediction: Prediction | None) -> bool:
    """Whether there is a speed to show."""
    return prediction is not None and None not in (prediction.output_tok_per_s, prediction.ttft_s, prediction.tpot_s)


def _speed(prediction: Prediction | None) -> float:
    return (prediction.output_tok_per_s if prediction else None) or 0.0


def _table(
    spec: SweepSpec,
    shown: Sequence[PlannedConfig],
    classes: Mapping[str, int],
    node: NodeFacts,
    models: Mapping[str, ModelFacts | None],
    *,
    everything: bool,
) -> SafeTable:
    table = SafeTable(box=None, pad_edge=False, header_style="bold")
    for column in ("class", "config" if everything else "configs, and one of them"):
        table.add_column(column, overflow="fold")
    for column in ("KV tokens", "tok/s", "TTFT mean", "TPOT mean", "SLO rate", "80% interval", "of limit"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for planned in shown:
        of_class = "" if everything else f"{classes[planned.config_class]}: "
        row = [planned.config_class, of_class + planned.config.name]
        predicted = planned.prediction
        if (
            predicted is None
            or predicted.output_tok_per_s is None
            or predicted.ttft_s is None
            or predicted.tpot_s is None
        ):
            table.add_row(*row, *["–"] * 7, "not predicted")
            continue
        limit = predicted.limit_output_tok_per_s
        memory = plan_memory(planned.config, node, models.get(planned.config.model.name), planned.config.engine_version)
        rate = slo_rate_per_s(memory, objective_demand(spec), spec.slo) if memory else None
        table.add_row(
            *row,
            f"{predicted.kv_cache_tokens or 0:,}",
            f"{predicted.output_tok_per_s:,.0f}",
            f"{predicted.ttft_s * 1000:,.0f} ms",
            f"{predicted.tpot_s * 1000:.1f} ms",
            "–" if rate is None else f"{rate:.3g}/s",
            interval_words(predicted.uncertainty),
            f"{predicted.output_tok_per_s / limit:.0%}" if limit else "–",
            (predicted.binding or "–").replace("_", " "),
        )
    return table


def _print_dropped(console: SafeConsole, dropped: Sequence[Dropped], *, everything: bool) -> None:
    """The dropped, grouped by rule and counted, each rule with one of its reasons; or one by one."""
    if everything:
        for one in dropped:
            console.print(f"dropped {one.config.name}: {one.reason} [{one.rule}]", markup=False)
        return
    groups: dict[str, list[Dropped]] = {}
    for one in dropped:
        groups.setdefault(one.rule, []).append(one)
    for rule, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        reasons = Counter(member.reason for member in members)
        more = f" (and {len(reasons) - 1} like it)" if len(reasons) > 1 else ""
        console.print(f"dropped {len(members)} by {rule}: {reasons.most_common(1)[0][0]}{more}", markup=False)
