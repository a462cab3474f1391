"""The one command that a user other than root may run as root: everything else of a trial follows from it.

It is a root-owned file outside the state folder that runs the root-owned script there with a fixed state folder; one
sudoers line permits it. What comes through it is limited: no other command, no file named by the user, no engine but
a declared build, and that not as root. Where systemd runs the machine, the script is a unit of the system's, so that
nothing of its caller's (session, control group, terminal, priorities) holds for it and for what it leaves running.

Another such command, for another user, changes production's definition: whoever may run trials has no right to that.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Sequence

from tokenpeak.node.engine.builds import engine_build, engine_builds
from tokenpeak.node.engine.images import is_root
from tokenpeak.node.machine import process, root_environment, root_files, root_programs
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import shown_command, shown_value
from tokenpeak.node.protocol.commands import COMMANDS
from tokenpeak.node.protocol.requests import LaunchRequest

TRIAL_COMMANDS = tuple(name for name, command in COMMANDS.items() if command.is_for_trials)
APPLY_COMMANDS = tuple(name for name, command in COMMANDS.items() if command.is_for_applies)

TURNS = "turns"
"""A file of the state folder whose bytes are locked: one for each limited command that may run at a time."""
MOST_AT_ONCE = 8
"""Of one word of one of the two commands: whoever may ask for one could start them without end."""

MARK = "# TokenPeak's guard command"
SYSTEMD_RUN = "/usr/bin/systemd-run"
UNIT_OPTIONS = (
    *("--quiet", "--collect", "--pipe", "--wait", "--slice=system.slice"),
    # Its guard, its sampler and production of start commands go on when it has ended.
    *("--property=KillMode=process", "--property=TasksMax=infinity"),
)
TEXT = """#!/bin/sh
# TokenPeak's guard command, put here by `tokenpeak install`. The sudoers line for it is in playbooks/README.md.
# One word of these and nothing else; a request comes on standard input.
case "$#:$1" in
{words}) ;;
*)
  echo "{name} takes one word of {commands}, and a request on standard input." >&2
  exit 2
  ;;
esac
cd / || exit
set -- {environment} {python} {options} {bundle} "$1" --limited{option} --state {state}
# In a unit of its own: who asks can stop or end his session, and neither this nor what it starts.
if [ -d /run/systemd/system ] && [ -S /run/dbus/system_bus_socket ] && [ -x {systemd_run} ]; then
  set -- {environment} {systemd_run} {unit_options} -- "$@"
fi
exec "$@"
"""


def install(state: State, declaration: Json) -> bool:
    """Put the command where the declaration wants it, if it wants one; whether anything changed."""
    kinds = (("guard_command", TRIAL_COMMANDS, ""), ("apply_command", APPLY_COMMANDS, " --for-apply"))
    changed = [
        _put(state, str(declaration[key]), commands, option) for key, commands, option in kinds if declaration.get(key)
    ]
    return any(changed)


def _put(state: State, declared: str, commands: Sequence[str], option: str) -> bool:
    """Put one of the commands there; whether anything changed."""
    if os.geteuid() != 0:
        raise ScriptError(
            "launcher", f"Only root can put the guard command at {declared}: run `tokenpeak install` as root."
        )
    target = Path(declared)
    for folder in (*target.parents, *state.folder.parents, state.folder):
        complain_if_writable(folder)
    text = TEXT.format(
        words=" | ".join(f"1:{word}" for word in commands),
        commands=", ".join(commands),
        option=option,
        name=target.name,
        systemd_run=SYSTEMD_RUN,
        unit_options=" ".join(UNIT_OPTIONS),
        environment=" ".join(map(shlex.quote, root_environment.environment_words())),
        options=" ".join(process.PYTHON_OPTIONS),
        python=shlex.quote(str(Path(sys.executable).resolve())),
        bundle=shlex.quote(str(state.path("tokenpeak-node.pyz"))),
        state=shlex.quote(str(state.folder)),
    )
    if target.is_file() and target.read_text() == text:
        return False
    root_files.put(target, text.encode(), 0o755)
    return True


def complain_if_writable(folder: Path) -> None:
    """Raise ScriptError when anybody but root could put another file in place of one that root will run."""
    found = folder.stat()
    if found.st_uid != 0 or stat.S_IMODE(found.st_mode) & 0o022:
        raise ScriptError(
            "launcher",
            f"{folder} can be written by others than root (owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):o}), so nothing below it may run as root: "
            "choose another tokenpeak_state_dir or tokenpeak_guard_command.",
        )


def check(command: str, request_source: str | None, declaration: Json, for_apply: bool = False) -> None:
    """Raise ScriptError for what does not come through the limited command, or the one of applies."""
    permitted = APPLY_COMMANDS if for_apply else TRIAL_COMMANDS
    if command not in permitted:
        raise ScriptError("refused", f"{shown_value(command)} is for root alone; permitted are {', '.join(permitted)}.")
    if request_source is not None:
        raise ScriptError("refused", "A request comes on standard input; --request is for root alone.")
    user = (declaration.get("engine") or {}).get("user")
    builds = engine_builds(declaration).values()
    named = [build for build in builds if "image" in build and build.get("user") is not None and is_root(build, user)]
    if command == "launch" and named:
        raise ScriptError(
            "refused",
            f"`user` of the build of {shown_value(named[0]['image'])} is {shown_value(named[0]['user'])}: through the "
            "guard command an engine must have a user of its own by number, for the image decides whom a name means, "
            "root too. Write the number of a user and of a group, `user: '1000:1000'`, and run `tokenpeak install`.",
        )
    as_root = not user or root_programs.uid_of(str(user)) == 0
    if command == "launch" and any(is_root(build, user) if "image" in build else as_root for build in builds):
        raise ScriptError(
            "refused",
            f"tokenpeak_engine_user is {shown_value(user)}: through the guard command an engine must have a user of "
            "its own, in a container too (`user` of its build).",
        )


@contextmanager
def turn(state: State, command: str, for_apply: bool) -> Iterator[None]:
    """One of the places that a limited command's word has; raises ScriptError where all are taken.

    The kernel lets go of it when this process dies. On a disk that takes no file there is no bound: production is given
    back there too.
    """
    words = APPLY_COMMANDS if for_apply else TRIAL_COMMANDS
    first = (words.index(command) + (len(TRIAL_COMMANDS) if for_apply else 0)) * MOST_AT_ONCE
    try:
        descriptor = root_files.appending(state.path(TURNS))
    except OSError:
        yield
        return
    try:
        if not any(_is_taken(descriptor, place) for place in range(first, first + MOST_AT_ONCE)):
            raise ScriptError(
                "refused",
                f"`{command}` runs {MOST_AT_ONCE} times on this node already, by the same root-owned command: wait "
                "until one has ended, or end those who called them.",
            )
        yield
    finally:
        os.close(descriptor)


def _is_taken(descriptor: int, place: int) -> bool:
    """Whether this process has that place from now on."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError:
        return False
    return True


def check_launch(declaration: Json, request: LaunchRequest) -> None:
    """Raise ScriptError for an engine that is not the declared build which the request names."""
    wanted = engine_build(declaration, request.engine)["command"]
    given = request.argv[: len(wanted)]
    if given != wanted:
        raise ScriptError("refused", f"The guard command starts {shown_command(wanted)}, not {shown_command(given)}.")
