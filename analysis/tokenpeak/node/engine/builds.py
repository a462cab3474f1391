"""Engine builds of a node's declaration, by name: how each is started, and which version of vLLM it is to be.

A build is a command on the node, or a container image with the command in it.

`tokenpeak_engines` of the inventory names several, and the first of them is the default. `tokenpeak_engine_command`
is the short form of one.
"""

from __future__ import annotations

from tokenpeak.node.machine import environment
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.probe import chosen_boards
from tokenpeak.node.protocol.requests import LaunchRequest, refuse, too_long

ONLY = "engine"
"""The name of the one build that `tokenpeak_engine_command` declares."""
DOCKER, PODMAN = "docker", "podman"
RUNTIMES = (DOCKER, PODMAN)
OF_CONTAINERS = ("mounts", "devices", "args", "user", "rootless_user", "shm_size", "limits", "pull")
"""Further keys that the declaration of a build in a container may say."""
PATH_COMMAND = ["vllm", "serve"]
"""The command where a declaration names no command."""


def engine_builds(declaration: Json) -> dict[str, Json]:
    """The declared builds in their order, each with `command` and `version` (None: any).

    One in a container has `image` and `runtime` besides, and what else its container is made with.
    """
    several = declaration.get("engines") or []
    if several:
        return {str(one["name"]): _build(one["build"]) for one in several}
    return {ONLY: _build(declaration.get("engine") or {})}


def engine_build(declaration: Json, name: str | None) -> Json:
    """The build of that name, the default one for None; raises ScriptError for a name that is not declared."""
    builds = engine_builds(declaration)
    if name is None:
        return next(iter(builds.values()))
    if name not in builds:
        raise ScriptError(
            "refused",
            f"This node declares no engine build {shown_value(name)}, but {', '.join(builds)}, and nothing was "
            "touched: add it to tokenpeak_engines of the inventory, then `tokenpeak install`.",
        )
    return builds[name]


def require_allowed(declaration: Json, request: LaunchRequest) -> None:
    """Raise ScriptError for what the node's own declaration does not allow of a launch."""
    longest_s = max(request.trial_deadline_s, request.deadline_s)
    wrong = too_long(declaration, request.lease_s, longest_s + request.engine_stop_s + request.production_ready_s)
    engine_build(declaration, request.engine)
    engine = declaration.get("engine") or {}
    has_chosen = chosen_boards.chosen_boards(declaration) is not None
    allowed = environment.allowed_names(engine.get("env_allowed"), bool(declaration.get("simulated")), has_chosen)
    # A config may empty a variable that the inventory itself sets.
    own = engine.get("env") or {}
    wrong += filter(
        None,
        (environment.why_not(name, allowed, text) for name, text in request.env.items() if text or name not in own),
    )
    refuse("launch", wrong)


def is_version(asked: str | None, found: str | None) -> bool:
    """Whether a found version is the one that was asked for: `0.32` is met by 0.32.1, and any by `0.32.1+cpu`.

    One that is not known is not denied.
    """
    if asked is None or found is None:
        return True
    public, wanted = (text.split("+")[0].lower().lstrip("v") for text in (found, asked))
    return public == wanted or public.startswith(f"{wanted}.")


def _build(declared: Json) -> Json:
    version = declared.get("version")
    build = {
        "command": [str(word) for word in declared.get("command") or PATH_COMMAND],
        "version": None if version is None else str(version),
    }
    if not declared.get("image"):
        return build
    return {
        **build,
        "image": str(declared["image"]),
        "runtime": str(declared.get("runtime") or DOCKER),
        **{name: declared[name] for name in OF_CONTAINERS if declared.get(name) is not None},
    }
