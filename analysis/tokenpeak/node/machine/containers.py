"""Container runtime: the command line of Docker or Podman, which has production's containers and engines' alike."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Sequence

from tokenpeak.node.engine.builds import DOCKER, PODMAN
from tokenpeak.node.machine import clock, process, root_files, users
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, control_group, in_control_group, program, user_ids
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.users import as_user
from tokenpeak.node.machine.words import shown_output

SETTINGS = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
"""Variables by which a runtime's command finds its daemon and settings."""
LEAST_ID = 12
"""Fewest digits of a container's id."""
FORWARDERS = ("docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2", "conmon")
"""Programs that answer at a container's published ports, as the user of the container's runtime."""
_NAMED = re.compile(r"^(docker|libpod-payload|libpod|crio|cri-containerd)-|\.scope$")
"""Text around a container's id in the name of its control group."""
_ADVICE = re.compile(r"(Run|See) '.*--help'")
"""What Docker prints below the reason of an error."""
_POLL_S = 0.05
_INIT = {DOCKER: "docker-init", PODMAN: "catatonit"}
_INIT_FOLDERS = (Path("/usr/libexec/docker"), Path("/usr/libexec/podman"), Path("/usr/lib/podman"))


class Runtime:
    """Docker's or Podman's command line; with `user`, that user's rootless Podman.

    `settings` are variables of its environment that hold beside this script's own.
    """

    def __init__(self, name: str, user: str | None, declared_as: str, settings: Json | None = None) -> None:
        self.name = name
        self.user = user
        self._declared_as = declared_as
        self._settings = {str(key): str(value) for key, value in (settings or {}).items()}

    def command(self, *words: str) -> list[str]:
        """The command line of these words."""
        return as_user(self.user, [self.name, *words], self._declared_as)

    def users(self) -> process.Users | None:
        """Whose processes its containers have: those of its user; None: anybody's, as root says."""
        if self.user is None:
            return None
        try:
            account = pwd.getpwnam(self.user)
        except KeyError:
            return []
        return [*process.one_user(account.pw_uid), *users.of_user(account)]

    def run(self, *words: str, timeout_s: float = 30.0, given: bytes | None = None) -> process.Ran:
        """Run it to its end; `given` is its standard input."""
        return process.run(self.command(*words), timeout_s, {**os.environ, **self._settings}, given=given)

    def do(self, *words: str, timeout_s: float = 30.0, given: bytes | None = None) -> str:
        """Its output; raises ScriptError when it fails."""
        ran = self.run(*words, timeout_s=timeout_s, given=given)
        if ran.status != 0:
            raise ScriptError("engine", f"`{self.name} {words[0]}` ended with status {ran.status}: {said(ran)}")
        return ran.out

    def inspect(self, kind: str, name: str) -> Json | None:
        """The runtime's description of the `container` or `image`; None where there is none.

        Raises ScriptError where the runtime does not answer.
        """
        ran = self.run("inspect", "--type", kind, "--", name)
        if ran.status != 0:
            if is_absent(ran):
                return None
            raise ScriptError("engine", f"{self.name} does not answer ({said(ran)}): start it, or correct the build.")
        described = json.loads(ran.out)
        return dict(described[0]) if described else None

    def named(self, name: str, label: str) -> list[str] | None:
        """The ids of containers of this name with this label; None where the runtime does not answer.

        A label alone says nothing: a container has those of its image too.
        """
        words = ("ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}", "--filter", f"label={label}")
        ran = self.run(*words)
        rows = [line.partition(" ") for line in ran.out.splitlines()]
        return [one for one, _, names in rows if name in names.strip().split(",")] if ran.status == 0 else None

    def own_labels(self, container: Json) -> Json:
        """The labels of an inspected container that it does not have of its image."""
        image = self.inspect("image", str(container.get("Image")))
        inherited = labels_of(image or {})
        return {name: value for name, value in labels_of(container).items() if inherited.get(name) != value}

    def write_log(self, container: str, log: Path, timeout_s: float) -> None:
        """Put all that a container has printed into `log`, in place of what is there."""
        try:
            root_files.empty(log)
        except OSError:
            return
        env = {**os.environ, **self._settings}
        started = process.start_detached(self.command("logs", container), log=log, env=env, cwd="/")

        def is_over() -> bool:
            root_files.bound_log(log)
            return started.poll() is not None

        if not clock.wait_until(is_over, timeout_s, _POLL_S):
            started.kill()
            with suppress(subprocess.TimeoutExpired):
                started.wait(process.KILLED_WITHIN_S)

    def init_option(self) -> list[str]:
        """The option for a first process that passes signals on, where the runtime has one."""
        helper = _INIT.get(self.name, "")
        has_helper = shutil.which(helper) or any((folder / helper).exists() for folder in _INIT_FOLDERS)
        return ["--init"] if has_helper else []


def labels_of(described: Json) -> Json:
    """The labels of an inspected container or image, with those that it has of its image."""
    return dict((described.get("Config") or {}).get("Labels") or {})


def is_absent(ran: process.Ran) -> bool:
    """Whether a runtime said that there is no such container or image."""
    return "no such" in ran.err.lower() or "image not known" in ran.err.lower()


def said(ran: process.Ran) -> str:
    """The end of what a command printed, for an error, without advice to read its help."""
    lines = [line for line in (ran.err or ran.out).splitlines() if line.strip() and not _ADVICE.match(line)]
    return shown_output(lines[-1] if lines else "")


def of_containers(containers: Sequence[Json], owner_uid: int | None) -> IsMember:
    """The processes of inspected containers that run, and what `owner_uid`'s runtime forwards published ports by."""
    leaders = [(str(one.get("Id") or ""), int((one.get("State") or {}).get("Pid") or 0)) for one in containers]
    groups = [in_control_group(_own_group(one, leader)) for one, leader in leaders if leader]
    descends = [process.is_member_of(leader) for _, leader in leaders if leader]

    def is_member(pid: int) -> bool:
        if any(own(pid) for own in (*groups, *descends)):
            return True
        return user_ids(pid) == {owner_uid} and Path(program(pid) or "").name in FORWARDERS

    return is_member


def _own_group(one: str, leader: int) -> str:
    """The control group of a container, which is its first process's up to what bears its id; empty where none does.

    Anybody may name a unit of their own by that id, so no other group that bears it counts.
    """
    parts = control_group(leader).split("/")
    named = [at for at, part in enumerate(parts) if len(one) >= LEAST_ID and _NAMED.sub("", part) == one]
    return "/".join(parts[: named[0] + 1]) if named else ""


def is_running(container: dict[str, Any]) -> bool:
    """Whether an inspected container runs; a paused one does: it holds its memory."""
    state = container.get("State") or {}
    return bool(state.get("Running")) or state.get("Status") in ("running", "restarting", "paused")
