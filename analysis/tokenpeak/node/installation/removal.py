"""Taking TokenPeak off a node: what `install`, trials and the guard left, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from tokenpeak.node.engine.engine import Engine, has_systemd
from tokenpeak.node.guard import guard, lease, mutex
from tokenpeak.node.guard import record as records
from tokenpeak.node.guard.guard_report import textfile_path
from tokenpeak.node.installation import root_command
from tokenpeak.node.machine import clock, process, root_files
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import KEPT_TWICE, Json, State, copy_name
from tokenpeak.node.probe import meters
from tokenpeak.node.protocol.answers import UninstallAnswer
from tokenpeak.node.protocol.field import SECRET_NAME
from tokenpeak.node.protocol.requests import ENGINE_STOP_S, UninstallRequest

OWN = (
    *("tokenpeak-node.pyz", "node.json", "lease.json", "lock.json", "engine.env", "engine.log", "engine-help.json"),
    root_command.TURNS,
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
        if command.is_file() and root_command.MARK in command.read_text(errors="replace"):
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
