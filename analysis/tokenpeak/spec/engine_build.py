"""Engine builds as an inventory declares them: by name, how each is started and which version of vLLM it is to be."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from tokenpeak.errors import InventoryError
from tokenpeak.node.engine_builds import ONLY, PATH_COMMAND, PODMAN
from tokenpeak.spec.workload import Declaration

MOUNT = r"^/[^:,]*:/[^:,]*(:r[ow])?$"
"""A folder of the node, its place in the container, and whether it is read only."""
NAME = r"^[a-z0-9][a-z0-9._-]*$"


def _word(value: object) -> object:
    """A version that YAML read as a number, such as 0.9, as it was written."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class ContainerLimits(Declaration):
    """What an engine's container may use at most."""

    memory: str | None = None
    cpus: Annotated[str | None, BeforeValidator(_word)] = None
    cpuset_cpus: Annotated[str | None, BeforeValidator(_word)] = None
    pids: int | None = Field(default=None, gt=0)


class DeclaredBuild(Declaration):
    """How an engine is started, as a program on the node or in an image, and the version that it is to report.

    All but `version`, `command` and `image` is of images alone.
    """

    version: Annotated[str | None, BeforeValidator(_word)] = None
    command: tuple[str, ...] = Field(default=(), validate_default=False)
    """On the node, or in the image, where it is `vllm serve` by default."""
    image: str | None = Field(default=None, min_length=1, pattern=r"^[^\s-]\S*$")
    runtime: Literal["docker", "podman"] | None = None
    mounts: tuple[Annotated[str, Field(pattern=MOUNT)], ...] = ()
    devices: tuple[str, ...] | None = None
    """None: the node's chosen boards, all where none are chosen."""
    args: tuple[str, ...] = ()
    """More options of the runtime's `create`."""
    user: Annotated[str | None, BeforeValidator(_word)] = None
    rootless_user: str | None = None
    """Whose rootless Podman has the image."""
    shm_size: str | None = None
    limits: ContainerLimits = ContainerLimits()
    pull: Literal["missing", "never"] | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if self.image is None and not self.command:
            raise ValueError("a build has a command, an image, or both")
        others = sorted(self.model_fields_set - {"version", "command", "image"})
        if self.image is None and others:
            raise ValueError(f"{', '.join(others)}: only a build with an image has that")
        if self.rootless_user is not None and self.runtime != PODMAN:
            raise ValueError("rootless_user: only Podman runs without root")
        return self


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
            "command: [/opt/vllm/bin/vllm, serve]}}, or with an image: playbooks/README.md has its keys"
        ) from error
