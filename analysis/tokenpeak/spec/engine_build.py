"""Engine builds as an inventory declares them: by name, how each is started and which version of vLLM it is to be."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from tokenpeak.errors import InventoryError
from tokenpeak.node.engine_builds import ONLY, PATH_COMMAND
from tokenpeak.spec.workload import Declaration

NAME = r"^[a-z0-9][a-z0-9._-]*$"


def _word(value: object) -> object:
    """A version that YAML read as a number, such as 0.9, as it was written."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class DeclaredBuild(Declaration):
    """A program on the node that is an engine, and the version that it is to report."""

    version: Annotated[str | None, BeforeValidator(_word)] = None
    command: tuple[str, ...] = Field(min_length=1)


_BUILDS = TypeAdapter(dict[Annotated[str, Field(pattern=NAME, max_length=60)], DeclaredBuild])


def declared_builds(node: str, variables: Mapping[str, Any]) -> dict[str, DeclaredBuild]:
    """A node's engine builds by name, the default one first; of the short form, `engine` alone.

    Raises InventoryError that names the key and what is wrong with it.
    """
    several = variables.get("tokenpeak_engines")
    if not several:
        short = {
            "version": variables.get("tokenpeak_engine_version"),
            "command": variables.get("tokenpeak_engine_command") or PATH_COMMAND,
        }
        return _parsed(node, "tokenpeak_engine_command", {ONLY: short})
    if variables.get("tokenpeak_engine_command") is not None:
        raise InventoryError(
            f"Node {node} has tokenpeak_engines and tokenpeak_engine_command: make the command one of the builds."
        )
    return _parsed(node, "tokenpeak_engines", several)


def _parsed(node: str, key: str, given: object) -> dict[str, DeclaredBuild]:
    try:
        return _BUILDS.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise InventoryError(
            f"{key} of node {node}: {where}: {first['msg']}. A build is written NAME: {{version: 0.32.0, "
            "command: [/opt/vllm/bin/vllm, serve]}"
        ) from error
