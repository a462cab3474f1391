"""Declared facts and model: what variables of an inventory say of its nodes, as records."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tokenpeak.errors import InventoryError
from tokenpeak.node.boards import only
from tokenpeak.predict.memory_plan import PLANNING_ENV
from tokenpeak.records import Container, EngineBuild, ModelName, NodeFacts
from tokenpeak.spec.engine_build import declared_builds
from tokenpeak.spec.sweep import ModelSpec
from tokenpeak.sweep.inventory import Node


def declared_model(node: Node) -> ModelName | None:
    """The model that a node serves when a spec names none."""
    declared = node.variables.get("tokenpeak_model")
    if declared is None:
        return None
    try:
        model = ModelSpec.model_validate(declared)
    except ValidationError as error:
        raise InventoryError(
            f"tokenpeak_model of node {node.name} is {declared!r}; give name, and served_name if it differs."
        ) from error
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
        return facts.model_copy(update={"gpus": tuple(gpu for gpu in facts.gpus if only([gpu.model_dump()], chosen))})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InventoryError(f"tokenpeak_facts of node {node.name}: {where}: {first['msg']}") from error


def engine_builds_of(node: Node) -> tuple[EngineBuild, ...]:
    """The engine builds that the inventory declares for a node, the default one first."""
    return tuple(
        EngineBuild(
            name=name, version=build.version, image=build.image, container=declared_container(build.model_dump())
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
