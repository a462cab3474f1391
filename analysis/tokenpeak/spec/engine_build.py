"""Engine builds as an inventory declares them: by name, how each is started and which version of vLLM it is to be.

A build may be of another server: its command says where the address and the model go.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from tokenpeak.errors import InventoryError
from tokenpeak.node.engine.builds import ONLY, PATH_COMMAND, PODMAN, is_vllm
from tokenpeak.spec import Declaration

MOUNT = r"^/[^:,]*:/[^:,]*(:r[ow])?$"
"""A folder of the node, its place in the container, and whether it is read only."""
NAME = r"^[a-z0-9][a-z0-9._-]*$"
SERVER = r"^[A-Za-z]{2}[\w.+-]*$"
"""A name that is no version of vLLM."""
HOST, PORT, MODEL, SERVED_MODEL = "{host}", "{port}", "{model}", "{served_model}"
"""What stands in the command of a server that is not vLLM for its address, the model's files and the model's name."""
_PLACE = re.compile(r"\{[a-z_]+\}")


def _word(value: object) -> object:
    """A version that YAML read as a number, such as 0.9, as it was written."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class ContainerLimits(Declaration):
    """Limits of an engine's container."""

    memory: str | None = None
    """Memory, as the runtime writes it: `200g`."""
    cpus: Annotated[str | None, BeforeValidator(_word)] = None
    """CPU time, in cores."""
    cpuset_cpus: Annotated[str | None, BeforeValidator(_word)] = None
    """Which cores, such as `0-15`."""
    pids: int | None = Field(default=None, gt=0)
    """Processes and threads."""


class DeclaredBuild(Declaration):
    """How an engine is started, as a program on the node or in an image, and the version that it is to report.

    All but `version`, `command` and `image` is of images alone.
    """

    version: Annotated[str | None, BeforeValidator(_word)] = None
    """The version of vLLM that it is to report; a trial on another one fails."""
    server: str | None = Field(default=None, pattern=SERVER, max_length=60)
    """What it is where it is not vLLM, such as `llama.cpp`; its `command` then has `{port}` and `{model}`."""
    command: tuple[str, ...] = Field(default=(), validate_default=False)
    """On the node, or in the image, where it is `vllm serve` by default."""
    image: str | None = Field(default=None, min_length=1, pattern=r"^[^\s-]\S*$")
    """A name that `docker images` lists, or a name with a digest; without it the build is a command."""
    runtime: Literal["docker", "podman"] | None = None
    """The runtime of the image; Docker when absent."""
    mounts: tuple[Annotated[str, Field(pattern=MOUNT)], ...] = ()
    """`NODE:CONTAINER` or `NODE:CONTAINER:ro`: folders or files that are there."""
    devices: tuple[str, ...] | None = None
    """The container's `--device`; `[]`: no boards; when absent, the boards of `tokenpeak_gpus`, else all."""
    args: tuple[str, ...] = ()
    """More options of the runtime's `create`."""
    user: Annotated[str | None, BeforeValidator(_word)] = None
    """Whom the engine is in the container; `tokenpeak_engine_user` when absent, else as the image says."""
    rootless_user: str | None = None
    """Whose rootless Podman has the image."""
    shm_size: str | None = None
    """Shared memory, through which the ranks of an engine talk; 10g when absent."""
    limits: ContainerLimits = ContainerLimits()
    """Limits of the container."""
    pull: Literal["missing", "never"] | None = None
    """`missing`: `tokenpeak install` pulls an image that is not there; no image is pulled when absent."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if self.image is None and not self.command:
            raise ValueError("a build has a command, an image, or both")
        self._check_places()
        others = sorted(self.model_fields_set - {"version", "server", "command", "image"})
        if self.image is None and others:
            raise ValueError(f"{', '.join(others)}: only a build with an image has that")
        if self.rootless_user is not None and self.runtime != PODMAN:
            raise ValueError("rootless_user: only Podman runs without root")
        return self

    def _check_places(self) -> None:
        """Raise ValueError where a command lacks what another server is started with, or has it for vLLM."""
        places = {found for word in self.command for found in _PLACE.findall(word)}
        if self.server is None:
            if not is_vllm(self.version):
                raise ValueError(f"version {self.version!r} is none of vLLM; write 0.32.0, or server: NAME of another")
            if places & {HOST, PORT, MODEL, SERVED_MODEL}:
                raise ValueError("vLLM gets its address and model itself; of another server, say which: server: NAME")
            return
        known = (HOST, PORT, MODEL, SERVED_MODEL)
        if unknown := sorted(places - {*known}):
            raise ValueError(f"the command has {unknown[0]}; there are {', '.join(known)}")
        if lacking := [each for each in (PORT, MODEL) if each not in places]:
            raise ValueError(f"the command of {self.server} has no {lacking[0]}, where its own goes")
        if self.version is not None:
            raise ValueError("version is of vLLM; write another server's into its name: server: NAME-VERSION")


def server_command(command: Sequence[str], *, host: str, port: int, model: str, name: str) -> list[str]:
    """The command of a server that is not vLLM, its places filled in; `name` is the one that requests ask for."""
    filled = {HOST: host, PORT: str(port), MODEL: model, SERVED_MODEL: name}
    return [_PLACE.sub(lambda found: filled.get(found[0], found[0]), word) for word in command]


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
    if isinstance(several, Mapping) and ONLY in several:
        raise InventoryError(
            f"tokenpeak_engines of node {node} has a build called {ONLY!r}, which tokenpeak_engine_command's one is "
            "called: give it another name."
        )
    return _parsed(node, "tokenpeak_engines", several)


def _parsed(node: str, key: str, given: object) -> dict[str, DeclaredBuild]:
    try:
        return _BUILDS.validate_python(given)
    except ValidationError as error:
        where, text = first_mistake(error)
        raise InventoryError(
            f"{key} of node {node}: {'.'.join(where)}: {text}. A build is written NAME: {{version: 0.32.0, command: "
            "[/opt/vllm/bin/vllm, serve]}, or with an image: `tokenpeak schema inventory` has its keys"
        ) from error


def first_mistake(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Where in what was given the first mistake is, and what it is."""
    first = error.errors()[0]
    where = tuple(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "string_pattern_mismatch" and "mounts" in where:
        return (
            where,
            f"{first['input']!r} is no mount; write /ON/THE/NODE:/IN/THE/CONTAINER, with :ro where it only reads",
        )
    return where, first["msg"].removeprefix("Value error, ")
