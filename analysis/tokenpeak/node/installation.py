"""Installation of TokenPeak on a node: root's two commands, and the removal of all that was left there.

A user other than root may run one command as root for trials: everything else of a trial follows from it. It is a
root-owned file outside the state folder that runs the root-owned script there with a fixed state folder; one sudoers
line permits it. What comes through it is limited: no other command, no file named by the user, no engine but a declared
build, and that not as root. Where systemd runs the machine, the script is a unit of the system's, so that nothing of
its caller's (session, control group, terminal, priorities) holds for it and for what it leaves running.

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
from tokenpeak.node.engine.engine import Engine, has_systemd
from tokenpeak.node.engine.images import is_root
from tokenpeak.node.guard import guard, lease, mutex
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.guard_report import textfile_path
from tokenpeak.node.machine import clock, process, root_environment, root_files, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import KEPT_TWICE, Json, State, copy_name
from tokenpeak.node.machine.words import shown_command, shown_value
from tokenpeak.node.probe import meters
from tokenpeak.node.protocol.answers import UninstallAnswer
from tokenpeak.node.protocol.field import SECRET_NAME
from tokenpeak.node.protocol.requests import COMMANDS, ENGINE_STOP_S, LaunchRequest, UninstallRequest

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
_COMMAND_TEXT = """#!/bin/sh
# TokenPeak's guard command, put here by `tokenpeak install`; page 'Reach nodes' of `tokenpeak docs` is about it.
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
OWN = (
    *("tokenpeak-node.pyz", "node.json", "lease.json", "lock.json", "engine.env", "engine.log", "engine-help.json"),
    TURNS,
    *(
        "output.json",
        "outcome.json",
        "overlap.json",
        "guard.json",
        "guard.log",
        "guard-acted.json",
        "notify.log",
        "phase.json",
    ),
    "mutex",
    *("telemetry.json", "telemetry.jsonl", "telemetry.log", "hold.json"),
    *("production.log", "production-command.json", "production-start.json"),
    *KEPT_TWICE,
    *(copy_name(name) for name in KEPT_TWICE),
)
"""Files that the node script and its installation make in the state folder, beside secrets and half-written ones."""
DEMONSTRATION = "machine"
"""The tools of a simulated machine, which the inventories sim and cpu have put there."""
SUDOERS = Path("/etc/sudoers.d")
_STOP_GRACE_S = 5.0
_GUARD_ENDS_S = 5.0


def put_commands(state: State, declaration: Json) -> bool:
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
    text = _COMMAND_TEXT.format(
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


def require_permitted(command: str, request_source: str | None, declaration: Json, for_apply: bool = False) -> None:
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
    as_root = not user or trust.uid_of(str(user)) == 0
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


def remove_retired(state: State, declaration: Json) -> None:
    """Remove the secrets that their controller has replaced; one whose trial has the node stays until the next time."""
    used = (records.read(state) or {}).get("secret")
    for name in declaration.get("retired_secrets") or []:
        if SECRET_NAME.fullmatch(str(name)) and name != used:
            state.remove(str(name))


def uninstall(state: State, declaration: Json, request: UninstallRequest) -> UninstallAnswer:
    """Remove it all; `left` says what stays there, and why.

    Refused while a trial has the node: production is not back then, and the record of it lies in what would go. With
    `produced`, production is a demonstration of TokenPeak's own and is ended too.
    """
    left: list[str] = []
    with mutex.exclusive(state):
        _require_free(state)
        meters.stop(state)
        if pids := Engine(state).stop(ENGINE_STOP_S):
            raise ScriptError(
                "uninstall", f"The engine's processes {pids} do not end, so nothing is removed: end them."
            )
        left += _end_production(state, request.produced)
        _remove_guard(state)
        left += _remove_command(declaration)
        _remove_files(state, request.produced)
        if folder := declaration.get("textfile_dir"):
            left += _remove_metrics(textfile_path(Path(folder), state))
        state.remove_spare()
    try:
        with root_files.open_folder(state.folder.parent) as above:
            above.remove_folder(state.folder.name)
    except OSError:
        names = ", ".join(sorted(entry.name for entry in state.folder.iterdir()))
        left.append(f"{state.folder} holds {names}, which TokenPeak did not make.")
    return UninstallAnswer(removed=True, left=tuple(left))


def _require_free(state: State) -> None:
    record, held = records.read(state), state.read(lease.LOCK_FILE)
    if record is not None:
        raise ScriptError(
            "uninstall",
            f"Trial {record['trial_id']} of {record['holder']} has the node and its production is not back, so nothing "
            "was removed: wait until it has ended, or run `tokenpeak restore`, then try again.",
        )
    if held is not None and not lease.has_lapsed(state):
        raise ScriptError(
            "uninstall",
            f"The node is held by {held['holder']} between two trials, so nothing was removed: wait until that sweep "
            "has ended, or run `tokenpeak restore`, then try again.",
        )


def _end_production(state: State, produced: bool) -> list[str]:
    """End a demonstration; production of the owner's own goes on without the file that knows its process."""
    leader = state.read("production.json")
    if not leader or not process.members(leader):
        return []
    if not produced:
        return [f"Production's process {leader['pid']} serves on; nothing of TokenPeak knows it any more."]
    process.stop_group(leader, _STOP_GRACE_S)
    return []


def _remove_guard(state: State) -> None:
    watching = state.read(guard.FILE)
    if has_systemd():
        name = guard.unit_name(state)
        units = [guard.UNITS / f"{name}.{kind}" for kind in ("timer", "service")]
        if any(unit.exists() for unit in units):
            process.run(["systemctl", "disable", "--now", *(unit.name for unit in units)], timeout_s=60)
            for unit in units:
                root_files.remove(unit)
            process.run(["systemctl", "daemon-reload"], timeout_s=60)
            process.run(["systemctl", "reset-failed", *(unit.name for unit in units)])
    if watching and not clock.wait_until(lambda: not process.is_alive(watching), _GUARD_ENDS_S):
        process.stop_group(watching, _STOP_GRACE_S, process.one_user(os.geteuid()))


def _remove_command(declaration: Json) -> list[str]:
    """Remove the guard command; the line of sudoers is the operator's, and is named."""
    left = []
    for declared in filter(None, (declaration.get("guard_command"), declaration.get("apply_command"))):
        command = Path(declared)
        if command.is_file() and MARK in command.read_text(errors="replace"):
            root_files.remove(command)
        # As sudo does, which reads nothing of a folder or a pipe there.
        files = [entry for entry in sorted(SUDOERS.glob("*")) if entry.is_file()]
        lines = [entry for entry in files if declared in entry.read_text(errors="replace").split()]
        left += [f"{entry} still names {declared}; it was put there by hand: rm {entry}" for entry in lines]
    return left


def _remove_metrics(path: Path) -> list[str]:
    """Remove the guard's metrics, which would stand still there."""
    try:
        root_files.remove(path)
    except OSError as error:
        return [f"{path} cannot be removed: {error.strerror}."]
    return []


def _remove_files(state: State, produced: bool) -> None:
    with root_files.open_folder(state.folder) as folder:
        for name in folder.names():
            half_written = name.startswith(".") and name.endswith(".tmp")
            if name in OWN or SECRET_NAME.fullmatch(name) or half_written:
                folder.remove(name)
        if produced:
            folder.remove_tree(DEMONSTRATION)
