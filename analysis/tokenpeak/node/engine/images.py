"""Images of engine builds: whether one is on the node, which it is exactly, and what its engine says of itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tokenpeak.node.engine.builds import engine_builds
from tokenpeak.node.engine.container import (
    OWN_OPTIONS,
    ContainerStart,
    base_options,
    boards_maker,
    device_options,
    environment_file,
    is_numbered,
    limit_options,
    mounts_of,
    runtime_of,
)
from tokenpeak.node.machine import process, trust
from tokenpeak.node.machine.containers import labels_of, said
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.probe import chosen_boards

PULL_TIMEOUT_S = 3600.0
NOT_FOUND = (126, 127)
"""Statuses of a runtime where the image has no such program, or none that can be run."""
NOT_RUN = 125
"""Status of a runtime that could not run the container."""
QUESTION = "tokenpeak.question"
"""Label of the short-lived containers in which an image's engine is asked something."""
COMPOSE = "com.docker.compose."
"""The beginning of the labels by which Compose finds the containers of a service."""


def found_image(build: Json) -> Json:
    """The image as its runtime knows it; raises ScriptError that says what to do where it is not on the node."""
    image, name = str(build["image"]), str(build["runtime"])
    if shutil.which(name) is None:
        raise ScriptError(
            "engine", f"No {shown_value(name)} on this node: install it, or correct the runtime of the build."
        )
    inspected = runtime_of(build).inspect("image", image)
    if inspected is None:
        raise ScriptError(
            "engine",
            f"{name} has no image {shown_value(image)} on this node: `{name} pull {image}` there, or set `pull: "
            "missing` for the build and run `tokenpeak install`. No trial waits for it.",
        )
    return inspected


def digest_of(inspected: Json) -> str:
    """`sha256:…` of an image: the registry's, by which it can be pulled again, else the image's own id."""
    published = [str(one).partition("@")[2] for one in inspected.get("RepoDigests") or []]
    own = str(inspected.get("Id") or "")
    return next(filter(None, published), own if own.startswith("sha256:") else f"sha256:{own}")


def pull_missing(declaration: Json) -> bool:
    """Pull the images of builds that say `pull: missing` and are not there; whether any was.

    Raises ScriptError where one cannot be had, which a disk without room for it ends in too.
    """
    changed = False
    for build in engine_builds(declaration).values():
        if build.get("pull") != "missing" or shutil.which(str(build["runtime"])) is None:
            continue
        if runtime_of(build).inspect("image", str(build["image"])) is not None:
            continue
        ran = runtime_of(build).run("pull", "--quiet", str(build["image"]), timeout_s=PULL_TIMEOUT_S)
        if ran.status != 0:
            raise ScriptError(
                "engine",
                f"`{build['runtime']} pull {build['image']}` ended with status {ran.status}: {said(ran)} Production "
                "was not touched.",
            )
        changed = True
    return changed


def require_startable(build: Json, declaration: Json) -> Json:
    """The image of a build whose container can be made; raises ScriptError for the first thing that is missing."""
    inspected = found_image(build)
    for source, _, _ in mounts_of(build):
        if not Path(source).exists():
            raise ScriptError(
                "engine",
                f"{source} is mounted by the build of {shown_value(build['image'])} and is not on this node: make it, "
                "or correct the mount.",
            )
    limit_options(build)
    for word in build.get("args") or []:
        if str(word).partition("=")[0] in OWN_OPTIONS:
            raise ScriptError(
                "engine",
                f"`args` of the build of {shown_value(build['image'])} has {shown_value(word)}, which the "
                "node script decides itself.",
            )
    if build.get("devices") is not None and declaration.get("gpus") is not None:
        raise ScriptError(
            "engine",
            f"tokenpeak_gpus and `devices` of the build of {shown_value(build['image'])} both choose boards: "
            "keep one of them.",
        )
    return inspected


def container_start(declaration: Json, build: Json) -> ContainerStart:
    """The options of the build's container; raises ScriptError where it cannot be, before anything is touched."""
    inspected = require_startable(build, declaration)
    user = (declaration.get("engine") or {}).get("user")
    devices = device_options(build, chosen_boards.chosen_boards(declaration), boards_maker(declaration))
    # An image has labels for its containers: Compose would stop and start this one as production's.
    labels = [f"--label={name}=" for name in labels_of(inspected) if name.startswith(COMPOSE)]
    options = [*base_options(build, str(user) if user else None), *limit_options(build), *devices, *labels]
    # By its id: a tag may be given to another image meanwhile.
    return ContainerStart({**build, "image": str(inspected["Id"])}, options, digest_of(inspected))


def rights_problem(build: Json, engine_user: str | None) -> str | None:
    """Why the container's root, which is the node's, would run what others can write; None where it would not."""
    if build.get("rootless_user") or not is_root(build, engine_user) or os.geteuid() != 0:
        return None
    for mount in build.get("mounts") or []:
        source = str(mount).partition(":")[0]
        danger = trust.danger_of([Path(source)])
        if danger:
            return (
                f"Root would run the engine of {shown_value(build['image'])} on the mount {source}, and {danger}: set "
                "`user` of the build to a number other than 0 ('1000:1000'), or let root alone write there."
            )
    return None


def is_root(build: Json, engine_user: str | None) -> bool:
    """Whether the engine may be root of the node in its container: by its user, or where only the image says it."""
    if build.get("rootless_user"):
        return False
    if build.get("user") is not None:
        return not is_numbered(str(build["user"]))
    return not engine_user or trust.uid_of(str(engine_user)) == 0


def ask(state: State, build: Json, declared: Json, argv: list[str], timeout_s: float) -> process.Ran:
    """Run a program of the image without network and boards; raises ScriptError where it has no such program.

    It may be root there, where the image alone says as whom it runs: so it leaves nothing on the node.
    """
    runtime = runtime_of(build)
    name = f"tokenpeak-question-{state.digest}-{os.getpid()}"
    env = {str(key): str(value) for key, value in (declared.get("env") or {}).items()}
    user = str(declared["user"]) if declared.get("user") else None
    try:
        ran = runtime.run(
            *("run", "--rm", "--name", name, "--label", f"{QUESTION}={state.digest}", "--network", "none"),
            *("--env-file", "/dev/stdin", "--pull", "never"),
            *base_options(build, user, reads_only=True),
            *("--entrypoint", argv[0], str(build["image"]), *argv[1:]),
            timeout_s=timeout_s,
            given=environment_file(env),
        )
    finally:
        # A question that was cut short leaves its container to the runtime, with the volumes that its image declares;
        # one that has ended is gone already.
        runtime.run("rm", "--force", "--volumes", name)
    if ran.status in NOT_FOUND:
        raise ScriptError(
            "engine",
            f"The image {shown_value(build['image'])} does not run {shown_value(argv[0])} ({said(ran)}): "
            "correct `command` of the build.",
        )
    return ran
