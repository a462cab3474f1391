"""Probe of the nodes, and the facts that an inventory declares of them; nothing is stopped.

The facts of the last probe of an inventory are kept in the state folder, so that a plan can be made without a node.
"""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenpeak import paths
from tokenpeak.errors import FactsError, InventoryError, NodeError, StoppedError
from tokenpeak.files import write_atomically
from tokenpeak.node.engine.builds import engine_builds
from tokenpeak.node.machine.words import LINES, one_line, wrong_tree
from tokenpeak.node.probe.chosen_boards import only
from tokenpeak.node.protocol.answers import ProbeAnswer, as_json
from tokenpeak.node.protocol.parts import MachineFacts
from tokenpeak.node.protocol.requests import limits
from tokenpeak.paths import inside
from tokenpeak.predict.memory_plan import PLANNING_ENV
from tokenpeak.records import Container, EngineBuild, ModelName, NodeFacts
from tokenpeak.spec.engine_build import declared_builds
from tokenpeak.spec.sweep import ModelSpec
from tokenpeak.sweep import installation
from tokenpeak.sweep.ansible.result import WORDS_CHARACTERS, NodeResult
from tokenpeak.sweep.installation import install_and_probe
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory.checks import parsed
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.limits import group_limits, model_stores
from tokenpeak.sweep.progress import ProgressDisplay

_NO_SENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of facts of other types and shapes than they have; a ValidationError is a ValueError."""
_LACKS_RIGHTS = "Permission denied"
"""What is said where a user may not do what root may."""
_MOST_NAMED = 8


def declared_model(node: Node) -> ModelName | None:
    """The model that a node serves when a spec names none."""
    model: ModelSpec | None = parsed(node, "tokenpeak_model")
    if model is None:
        return None
    return ModelName(name=model.name, revision=model.revision, served_name=model.served_name or model.name)


def declared_facts(node: Node) -> NodeFacts | None:
    """The facts that the inventory declares for planning without the node; None when it declares none."""
    declared = node.variables.get("tokenpeak_facts")
    if not declared:
        return None
    engines = engine_builds_of(node)
    chosen = node.chosen_boards
    try:
        facts = NodeFacts.model_validate(
            {
                "simulated": bool(node.variables.get("tokenpeak_simulated", False)),
                "engine_version": engines[0].version,
                "engines": engines,
                "engine_env": planning_env(node),
                "engine_env_allowed": node.engine_env_allowed,
                "model": declared_model(node),
                **declared,
                "node": node.name,
                "source": "declared",
            }
        )
        return facts.model_copy(update={"gpus": tuple(gpu for gpu in facts.gpus if only([vars(gpu)], chosen))})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InventoryError(f"tokenpeak_facts of node {node.name}: {where}: {first['msg']}") from error


def engine_builds_of(node: Node) -> tuple[EngineBuild, ...]:
    """The engine builds that the inventory declares for a node, the default one first."""
    return tuple(
        EngineBuild(
            name=name,
            version=build.server or build.version,
            image=build.image,
            container=declared_container(build.model_dump()),
        )
        for name, build in declared_builds(node.name, node.variables).items()
    )


def declared_container(build: Mapping[str, Any]) -> Container | None:
    """How the image of a declared build is run; None for a build that is a command."""
    if not build.get("image"):
        return None
    limits = {name: str(value) for name, value in (build.get("limits") or {}).items() if value is not None}
    given = {name: build[name] for name in Container.model_fields if build.get(name) is not None}
    return Container.model_validate({**given, "limits": limits})


def planning_env(node: Node) -> dict[str, str]:
    """What the inventory sets in the engine's environment and a plan depends on; other variables may be secrets."""
    given = node.variables.get("tokenpeak_engine_env") or {}
    return {name: str(given[name]) for name in PLANNING_ENV if name in given}


@dataclass(frozen=True, kw_only=True)
class ReadyNode:
    """A node that answered: its facts, and its declaration as rendered on the node itself."""

    facts: NodeFacts
    declaration: Mapping[str, Any]
    lease: tuple[str, ...] = ()
    """The command of this machine that renews the node's lease."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What probing an inventory found: nodes that answered, and why each other one did not."""

    answered: Mapping[str, ReadyNode]
    unreachable: Mapping[str, str]
    failed: Mapping[str, str]

    @property
    def usable(self) -> dict[str, ReadyNode]:
        """The nodes on which a trial can run: they answered, and nothing found there stands in its way."""
        return {name: ready for name, ready in self.answered.items() if not ready.facts.problems}

    def complaints(self) -> list[str]:
        """A line for everything that keeps a node out of a sweep."""
        lines = [f"{name} is unreachable: {reason}" for name, reason in self.unreachable.items()]
        lines += [f"{name} could not be probed: {reason}" for name, reason in self.failed.items()]
        for name, ready in self.answered.items():
            lines += [f"{name}: {problem}" for problem in ready.facts.problems]
        return lines


def not_serving(inventory: Inventory, answered: Mapping[str, ReadyNode]) -> frozenset[str]:
    """The probed nodes that do not serve, or did not answer; one without production has nothing to serve."""
    names = set()
    for node in inventory.nodes:
        ready = answered.get(node.name)
        production = ready.facts.production if ready is not None else None
        if ready is None or (production is not None and production.manager != "none" and not production.running):
            names.add(node.name)
    return frozenset(names)


def probe(
    inventory: Inventory,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> Probe:
    """Install TokenPeak's command and, where the inventory asks for it, the engine; then read the facts of each node.

    `say` is called with what takes minutes. Raises NodeError when Ansible could not run at all, StoppedError when the
    user ended it; a node that fails is an entry.
    """
    results = install_and_probe(inventory, cancelled=cancelled, say=say).nodes
    unreachable = {name: result.unreachable for name, result in results.items() if result.unreachable}
    failed: dict[str, str] = {}
    answered: dict[str, ReadyNode] = {}
    for node in inventory.nodes:
        result = results[node.name]
        if result.unreachable or not result.has_run:
            continue
        if node.declaration is None and not node.guard_command and "probe" in result.answers:
            failed[node.name] = (
                "install.yml could render its declaration and this controller could not: its variables depend on "
                "something that only a playbook has"
            )
            continue
        try:
            answered[node.name] = _ready(node.name, result, inventory)
        except (NodeError, InventoryError) as error:
            failed[node.name] = _with_rights(str(error))
    answered = {node.name: answered[node.name] for node in inventory.nodes if node.name in answered}
    failed |= _without_gpus(inventory, answered)
    answered = {name: ready for name, ready in answered.items() if name not in failed}
    if cancelled():
        raise StoppedError("Ended while probing; no production was touched.")
    probed = Probe(answered=answered, unreachable=unreachable, failed=failed)
    _keep(inventory.name, [ready.facts for ready in answered.values()])
    return probed


def _without_gpus(inventory: Inventory, answered: Mapping[str, ReadyNode]) -> dict[str, str]:
    """The nodes that show none of the GPUs that the inventory declares: a broken driver makes no CPU node of them."""
    declared = {name: declared_facts(inventory.node(name)) for name in answered}
    return {
        name: f"no GPU is found there, but tokenpeak_facts declares {len(facts.gpus)} ({facts.gpus[0].name}): run "
        "nvidia-smi (amd-smi) on the node and mend what it says, or correct tokenpeak_facts"
        for name, facts in declared.items()
        if facts is not None and facts.gpus and not answered[name].facts.gpus
    }


def _with_rights(failure: str) -> str:
    """What kept the node script from being installed, and how it gets the rights where those are what it lacks."""
    if _LACKS_RIGHTS not in failure:
        return failure
    return (
        f"{failure.rstrip('.')}. Log in as root (ansible_user: root), or set ansible_become: true and let that user's "
        "sudo ask for no password. A user without root keeps everything at home: tokenpeak_state_dir: "
        "/home/USER/.local/state/tokenpeak-node, and production that is the user's own; see page "
        "'Tune without root' of `tokenpeak docs`"
    )


def last_facts(inventory_name: str) -> tuple[NodeFacts, ...]:
    """What the last probe of the inventory found; nothing when there was none."""
    path = _facts_path(inventory_name)
    if not path.is_file():
        return ()
    try:
        return tuple(NodeFacts.model_validate(entry) for entry in json.loads(path.read_text()))
    except (ValueError, ValidationError) as error:
        raise NodeError(f"{path} cannot be read ({error}). Remove it and probe again.") from error


def known_facts(inventory: Inventory) -> list[NodeFacts]:
    """The last probe of each node, else its declared facts; FactsError naming those that have neither.

    A node without either that is this machine is taken for its processors and memory.
    """
    probed = {fact.node: fact for fact in last_facts(inventory.name)}
    facts, without = [], []
    for node in inventory.nodes:
        fact = probed.get(node.name) or declared_facts(node)
        if fact is None and node.is_local:
            fact = _this_machine(node.name, engine_builds_of(node))
        if fact is None:
            without.append(node.name)
        else:
            now: dict[str, Any] = {
                "engine_env": planning_env(node),
                "engine_env_allowed": node.engine_env_allowed,
                "model": declared_model(node),
            }
            if fact.source == "declared" or not fact.engines:
                now["engines"] = engine_builds_of(node)
            facts.append(fact.model_copy(update=now))
    if without:
        raise FactsError(
            f"Nothing is known of {', '.join(without)}: never probed, and no facts declared. Run "
            f"`tokenpeak probe --inventory {inventory.name}`, or add tokenpeak_facts to {inventory.hosts_path}."
        )
    return facts


def _this_machine(name: str, engines: tuple[EngineBuild, ...]) -> NodeFacts:
    machine = MachineFacts(
        cpu=platform.processor() or platform.machine(),
        cpu_cores=os.cpu_count(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        engine_version=engines[0].version,
    )
    return NodeFacts.of(machine, node=name, source="declared", engines=engines)


def _ready(name: str, result: NodeResult, inventory: Inventory) -> ReadyNode:
    answer = result.answer(ProbeAnswer)
    if result.is_not_installed and inventory.node(name).guard_command:
        raise NodeError(f"TokenPeak's command is not there: tokenpeak install --inventory {inventory.name} --user root")
    if result.failure or answer is None:
        raise NodeError(result.failure or "its probe printed nothing")
    if installation.is_another(answer):
        raise NodeError(installation.renewal(inventory, name))
    if answer.unusable:
        raise NodeError(f"its probe printed facts that make no sense: {', '.join(answer.unusable)}")
    node = inventory.node(name)
    facts = as_json(answer)
    answered = facts.pop("declaration")
    try:
        if wrong := wrong_tree(answered, allowed=LINES):
            raise ValueError(f"its declaration {wrong}")
        # Read here, so that it is this node's probe that ends where they cannot be.
        engine_builds(answered), limits(answered)
        builds = {each["name"]: each["build"] for each in answered.get("engines") or ()}
        facts["engines"] = tuple(
            EngineBuild(**vars(each), container=declared_container(builds.get(each.name, {})))
            for each in answer.engines
        )
        return ReadyNode(
            facts=NodeFacts.model_validate(
                {
                    "engine_env": planning_env(node),
                    **facts,
                    "node": name,
                    "source": "probed",
                    "model": declared_model(node),
                }
            ),
            declaration=_declaration(node, answered),
            lease=result.argv,
        )
    except _NO_SENSE as error:
        words = one_line(f"{type(error).__name__}, {error}"[:WORDS_CHARACTERS])
        raise NodeError(f"its probe printed facts that make no sense: {words}") from error


def _declaration(node: Node, answered: Mapping[str, Any]) -> dict[str, Any]:
    """The node's declaration: the inventory's own, or what root installed there where a command is all that one may.

    Where the load and its key go is this controller's inventory's to say, whatever a node answers.
    """
    host, port = node.engine_address
    if (answered["host"], str(answered["port"])) != (host, str(port)):
        raise NodeError(
            f"its declaration has the engine at {answered['host']!r} port {answered['port']!r}, and this inventory at "
            f"{host} port {port}: install it again (tokenpeak install), or correct tokenpeak_host and tokenpeak_port"
        )
    return {**(answered if node.declaration is None else node.declaration), "host": host, "port": port}


def _keep(inventory_name: str, facts: Sequence[NodeFacts]) -> None:
    if not facts:
        return
    path = _facts_path(inventory_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        before = last_facts(inventory_name)
    except NodeError:
        before = ()
    # Of nodes that were not probed now, the last probe stands.
    known = {fact.node: fact for fact in (*before, *facts)}
    write_atomically(path, json.dumps([fact.model_dump(mode="json") for fact in known.values()]))


def _facts_path(inventory_name: str) -> Path:
    return inside(paths.state_dir() / "probes", f"{inventory_name}.json", error=InventoryError)


def prepare(inventory: Inventory, progress: ProgressDisplay, interrupt: Interrupt) -> Probe:
    """Probe the nodes and say what is wrong with them; raises NodeError when none is left to work on.

    Raises InventoryError before the first is asked when the inventory limits what no group or number can be.
    """
    group_limits(inventory)
    model_stores(inventory)
    names = [node.name for node in inventory.nodes]
    progress.say(f"Probing {', '.join(names) if len(names) <= _MOST_NAMED else f'{len(names)} nodes'}")
    probed = probe(inventory, cancelled=interrupt.gentle, say=progress.say)
    if not probed.usable:
        lines = "\n  ".join(probed.complaints())
        raise NodeError(f"No node of inventory {inventory.name} can run a trial; nothing was stopped.\n  {lines}")
    for complaint in probed.complaints():
        progress.say(f"PROBLEM {complaint}")
    return probed
