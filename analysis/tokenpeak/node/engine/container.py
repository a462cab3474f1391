"""The engine's container: made from a declared build, started and ended by its id, found again by its name.

It is on the host's network, bound to the engine's one address like a command. Its environment reaches the runtime on
standard input from memory: no file and no argument holds a secret. Only `inspect` shows it, to those who may command
the runtime.
"""

from __future__ import annotations

import json
import math
import os
import pwd
import re
import shutil
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from tokenpeak.node.engine.builds import DOCKER, PODMAN, engine_builds
from tokenpeak.node.machine import process, process_files
from tokenpeak.node.machine.containers import SETTINGS, Runtime, of_containers
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.probe import chosen_boards
from tokenpeak.node.probe.chosen_boards import VISIBLE

LABEL = "tokenpeak.engine"
"""Its value names the state folder; the labels `.trial` and `.holder` whose engine it is."""
SHM_SIZE = "10g"
"""Ranks of one engine exchange tensors through it; a runtime's own default of 64 MiB ends them."""
OPTIONS_OF_LIMITS = {"memory": "--memory", "cpus": "--cpus", "cpuset_cpus": "--cpuset-cpus", "pids": "--pids-limit"}
OWN_OPTIONS = (
    "--name", "--label", "--network", "--net", "--entrypoint", "--env", "--env-file", "--user", "--rm", "--restart",
    "--detach", "--pull", "--cidfile", "--log-driver", "--mount", "--volume", "--shm-size", "--gpus",
    "--device", "--memory", "--cpus", "--cpuset-cpus", "--pids-limit",
)  # fmt: skip
"""Options that the script decides, or a key of the build names: not for `args`."""
AMD_DEVICES = ("/dev/kfd", "/dev/dri")
CREATE_TIMEOUT_S = 120.0
LOG_TIMEOUT_S = 30.0
_SIGNALLED = 128
_NUMBERED = re.compile("[1-9][0-9]{0,9}(:[0-9]{1,10})?")
_LOGGING = {
    DOCKER: ("--log-driver", "json-file", "--log-opt", "max-size=256m", "--log-opt", "max-file=2"),
    PODMAN: ("--log-driver", "k8s-file", "--log-opt", "max-size=256m"),
}
"""Of a log that grows beyond that, the runtime has its last part alone."""


def runtime_of(build: Json) -> Runtime:
    """The runtime that has a build's image."""
    user = build.get("rootless_user")
    return Runtime(str(build["runtime"]), str(user) if user else None, "rootless_user of tokenpeak_engines")


def mounts_of(build: Json) -> list[tuple[str, str, bool]]:
    """Source on the node, place in the container, and whether it is read-only; raises ScriptError for what is none."""
    mounts = []
    for mount in build.get("mounts") or []:
        words = str(mount).split(":")
        is_one = len(words) in (2, 3) and all(word.startswith("/") for word in words[:2]) and "," not in str(mount)
        if not is_one or words[2:] not in ([], ["ro"], ["rw"]):
            raise ScriptError(
                "engine",
                f"{shown_value(mount)} is no mount: write it /on/the/node:/in/the/container, with :ro where "
                "it only reads.",
            )
        mounts.append((words[0], words[1], words[2:] == ["ro"]))
    return mounts


def is_numbered(user: str) -> bool:
    """Whether a container's user is one by number, and none of root's: what a name means its image alone decides."""
    return _NUMBERED.fullmatch(user) is not None


def user_option(build: Json, engine_user: str | None) -> str | None:
    """Whom the engine is in its container; None: whom the image says, or a rootless runtime's own user."""
    if build.get("user") is not None:
        user = str(build["user"])
        # A runtime takes the groups of a number that has none from the image: root's, or any other of the node.
        return f"{user}:{user}" if is_numbered(user) and ":" not in user else user
    if not engine_user or build.get("rootless_user"):
        return None
    try:
        account = pwd.getpwnam(engine_user)
    except KeyError:
        raise ScriptError(
            "engine", f"tokenpeak_engine_user is {shown_value(engine_user)}, which this node does not know."
        ) from None
    return f"{account.pw_uid}:{account.pw_gid}"


def base_options(build: Json, engine_user: str | None, reads_only: bool = False) -> list[str]:
    """Options of every container of a build, the engine's and those in which it is asked a question.

    One that `reads_only` can write to no mount.
    """
    user = user_option(build, engine_user)
    options = ["--security-opt", "no-new-privileges"]
    options += ["--user", user] if user is not None else []
    for source, place, reads in mounts_of(build):
        options += ["--mount", f"type=bind,src={source},dst={place}{',readonly' if reads or reads_only else ''}"]
    return [*options, *(str(word) for word in build.get("args") or [])]


def device_options(build: Json, chosen: chosen_boards.Chosen, maker: str | None) -> list[str]:
    """The boards that the container has: the declared `devices`, else the chosen ones or all of a maker's."""
    if build.get("devices") is not None:
        return [word for device in build["devices"] for word in ("--device", str(device))]
    if maker == "nvidia":
        if build["runtime"] == DOCKER:
            # Docker reads the value as a line of CSV, in which a list of boards is one field.
            return ["--gpus", "all" if chosen is None else f'"device={",".join(chosen)}"']
        return [word for board in chosen or ("all",) for word in ("--device", f"nvidia.com/gpu={board}")]
    return [word for device in AMD_DEVICES for word in ("--device", device)] if maker == "amd" else []


def limit_options(build: Json) -> list[str]:
    """Options of the most that the container may use; raises ScriptError for a limit that is none."""
    options: list[str] = []
    for name, value in (build.get("limits") or {}).items():
        if name not in OPTIONS_OF_LIMITS:
            raise ScriptError(
                "engine",
                f"{shown_value(name)} is no limit of a container: {', '.join(OPTIONS_OF_LIMITS)} are; others "
                "go in `args`.",
            )
        options += [OPTIONS_OF_LIMITS[name], str(value)]
    return options


def boards_maker(declaration: Json) -> str | None:
    """Whose boards the node has: `nvidia`, `amd`, or None for a node with none, or with simulated ones."""
    if declaration.get("simulated"):
        return None
    if shutil.which("nvidia-smi"):
        return "nvidia"
    return "amd" if Path(AMD_DEVICES[0]).exists() else None


def container_environment(build: Json, declaration: Json, env: Mapping[str, str]) -> dict[str, str]:
    """The engine's variables without those by which boards are chosen, where the container has the chosen ones alone.

    It counts them from 0 then.
    """
    is_renumbered = build.get("devices") is None and boards_maker(declaration) == "nvidia"
    gone = VISIBLE if is_renumbered and chosen_boards.chosen_boards(declaration) is not None else ()
    return {name: value for name, value in env.items() if name not in gone}


def environment_file(env: Mapping[str, str]) -> bytes:
    """The variables as a runtime reads them, a line each; raises ScriptError for a value of several lines."""
    for name, value in env.items():
        if "\n" in value or "\r" in value:
            raise ScriptError("engine", f"{name} has a value of several lines, which no container can be given.")
    return "".join(f"{name}={value}\n" for name, value in env.items()).encode()


def answering(state: State) -> list[Runtime]:
    """The runtimes that the declaration names; empty where it names none or cannot be read."""
    try:
        builds = engine_builds(state.declaration()).values()
    except ScriptError:
        return []
    runtimes = {(str(build["runtime"]), build.get("rootless_user")): build for build in builds if "image" in build}
    return [runtime_of(build) for build in runtimes.values()]


class ContainerStart(NamedTuple):
    """A build with the options that its container is made with, and exactly which image it is."""

    build: Json
    options: list[str]
    digest: str


class EngineContainer:
    """The container of a state folder's engine, by what was recorded of it: runtime, user, settings, and its id."""

    def __init__(self, state: State, recorded: Json) -> None:
        self.state = state
        self.recorded = recorded
        self.id: str | None = recorded.get("id")
        self.runtime = Runtime(
            str(recorded["runtime"]), recorded.get("user"), "rootless_user", recorded.get("settings") or {}
        )

    @classmethod
    def planned(cls, state: State, build: Json) -> EngineContainer:
        """One that is about to be made."""
        settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
        recorded = {"runtime": build["runtime"], "user": build.get("rootless_user"), "id": None, "settings": settings}
        return cls(state, recorded)

    @classmethod
    def left_over(cls, state: State) -> EngineContainer | None:
        """One that bears this state folder's name and label; None where no runtime has any."""
        for runtime in answering(state):
            if runtime.named(container_name(state), label(state)):
                return cls(state, {"runtime": runtime.name, "user": runtime.user, "id": None})
        return None

    def create(self, build: Json, options: Sequence[str], argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Make it, with `options` beside those of every engine's container; `recorded` has its id then."""
        made = self.runtime.do(
            *("create", "--name", container_name(self.state), "--label", label(self.state)),
            *("--network", "host", "--env-file", "/dev/stdin", "--pull", "never", *_LOGGING[self.runtime.name]),
            *("--oom-score-adj", "500", "--shm-size", str(build.get("shm_size") or SHM_SIZE)),
            *self.runtime.init_option(),
            *options,
            *("--entrypoint", argv[0], str(build["image"]), *argv[1:]),
            timeout_s=CREATE_TIMEOUT_S,
            given=environment_file(env),
        )
        self.id = made.split()[-1]
        self.recorded = {**self.recorded, "id": self.id}

    def start(self) -> int:
        """Start it; the pid of its first process on the node, 0 where that has ended already.

        Raises ScriptError for one that is not the runtime's user's, who says what he likes.
        """
        assert self.id is not None
        self.runtime.do("start", self.id, timeout_s=CREATE_TIMEOUT_S)
        pid = int(self._state().get("Pid") or 0)
        users = self.runtime.users()
        if pid and users is not None and process_files.user_ids(pid) and not process.is_of(pid, users):
            raise ScriptError(
                "engine",
                f"{self.runtime.name} of user {shown_value(self.runtime.user)} says that the engine's container is "
                f"process {pid}, which is another user's and stays untouched: look at that user's containers and "
                "programs, and at his lines of /etc/subuid.",
            )
        return pid

    def members(self, pid: int) -> IsMember:
        """Which processes are its own."""
        return of_containers([{"Id": self.id, "State": {"Pid": pid}}], None)

    def exit_status(self) -> int | None:
        """How it ended (negative: the signal); None while it runs, or where nobody knows."""
        state = self._state() if self.id else {}
        if state.get("Running") or "ExitCode" not in state or state.get("Status") == "created":
            return None
        code = int(state["ExitCode"])
        return _SIGNALLED - code if code > _SIGNALLED else code

    def write_log(self, log: Path) -> None:
        """Put what it has printed so far into `log`."""
        if self.id:
            self.runtime.write_log(self.id, log, LOG_TIMEOUT_S)

    def end(self, leader: Json, grace_s: float, log: Path) -> tuple[list[int], bool]:
        """End and remove it; the pids that are left even after SIGKILL, and whether no container is left.

        Where the runtime does not answer, its processes are ended by the pid that `leader` has, as far as they are its
        user's.
        """
        ids = [self.id] if self.id else self.runtime.named(container_name(self.state), label(self.state))
        answers = ids is not None
        for one in ids or []:
            wait_s = math.ceil(grace_s)
            ran = self.runtime.run("stop", "-t", str(wait_s), one, timeout_s=wait_s + process.KILL_TIMEOUT_S)
            answers &= ran.status in (0, 1)
        left = process.stop_group(leader, 0.0, self.runtime.users()) if leader.get("pid") else []
        if not answers:
            return left, False
        for one in ids or []:
            self.runtime.write_log(one, log, LOG_TIMEOUT_S)
            self.runtime.run("rm", "--force", "--volumes", one, timeout_s=process.KILL_TIMEOUT_S)
        return left, self.runtime.named(container_name(self.state), label(self.state)) == []

    def _state(self) -> dict[str, Any]:
        assert self.id is not None
        ran = self.runtime.run("inspect", "--type", "container", "--format", "{{json .State}}", self.id)
        return dict(json.loads(ran.out)) if ran.status == 0 else {}


def container_name(state: State) -> str:
    """By which the engine's container of a state folder is found."""
    return f"tokenpeak-engine-{state.digest}"


def label(state: State) -> str:
    """Which the container of that name has besides: somebody else's may bear the name."""
    return f"{LABEL}={state.digest}"
