"""Permission of a restricted user to change production: what may come through root's command of applies.

That user chooses the engine's arguments, and so acts as production's user. Hence production must have a user of its
own, and what the change starts is compared as its manager will start it, with every word that stays in its place.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tokenpeak.node.engine import installed
from tokenpeak.node.engine.builds import engine_builds
from tokenpeak.node.engine.container import is_numbered
from tokenpeak.node.machine import environment, process_files, trust
from tokenpeak.node.machine.containers import FORWARDERS
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import program
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_command, shown_value
from tokenpeak.node.probe import chosen_boards
from tokenpeak.node.production.manager import Command, Manager, checksum

_ROOT_NAMES = ("", "root")


def user_problem(manager: Manager, described: Json, command: Command) -> str | None:
    """Why a restricted user may not have this definition start this command; None where it has a user of its own.

    An image's own user is none: a tag means another image by and by, and that may be root's. Nor is a name that an
    image gives its meaning.
    """
    if os.geteuid() != 0:
        return None
    user = manager.user(described, command)
    is_of_node = manager.is_node_user
    if user is not None and (not _is_root(user) if is_of_node else is_numbered(user)):
        return None
    named = "names no user" if user is None else f"names the user {shown_value(user)}"
    if user is not None and not is_of_node:
        named += ", which is no number other than 0 such as 1000:1000 (whom a name means its image decides),"
    return (
        f"Production's definition ({manager.place(described['own'])}) {named} for what this change starts, and a "
        "restricted user starts nothing that may be root's: let the definition itself name a user of production's own "
        f"({manager.USER_AS}), or let an administrator do it."
    )


def require_own_program(manager: Manager, described: Json, was: Command, new: Command) -> None:
    """Raise ScriptError where an edit has production run a program that others than root and its user may write.

    An administrator's edits too: he chose what was measured, and not that its owner becomes production's user. What
    stays as it is was chosen before, and a program in an image is no file of this machine.
    """
    if os.geteuid() != 0 or manager.is_in_image:
        return
    words = manager.shown_words(new)[: new.program]
    files = trust.files_of_environment((name, text) for name, text in new.env.items() if was.env.get(name) != text)
    if words != manager.shown_words(was)[: was.program]:
        files += installed.code_files(words)
    user = manager.user(described, new)
    is_root = user is None or _is_root(user)
    uid = 0 if is_root else trust.uid_of(user or "")
    danger = trust.danger_of(files, uid or 0)
    if danger is not None:
        raise ScriptError(
            "rights",
            f"{'Root' if is_root else f'User {user}'} would run {shown_command(words)} as production, and {danger}: "
            "whoever that is would act as production's user. Let root"
            f"{' alone' if is_root else f' or {user} alone'} write there (chown, chmod), then apply.",
        )


def _is_root(user: str) -> bool:
    name = user.partition(":")[0].strip()
    try:
        return int(name) == 0
    except ValueError:
        return name in _ROOT_NAMES or trust.uid_of(name) == 0


def root_problem(manager: Manager) -> str | None:
    """Why a restricted user may not change this production: it runs as root, or nobody sees as whom; None else."""
    if os.geteuid() != 0:
        return None
    is_member = manager.members()
    # Who listens at its url proves nothing: that may be a proxy of another user in front of root's own production.
    pids = [] if is_member is None else [pid for pid in process_files.pids() if is_member(pid)]
    if not pids:
        return (
            "Which user production runs as is not seen on this node, and a restricted user changes none that may be "
            "root's: let an administrator apply, or have a unit, a container or a section of supervisord run it as a "
            "user of its own."
        )
    of_root = [
        pid for pid in pids if 0 in process_files.user_ids(pid) and Path(program(pid) or "").name not in FORWARDERS
    ]
    if not of_root:
        return None
    return (
        f"Production runs as root (process {of_root[0]}), and whoever chooses its arguments acts as its user: give "
        "production a user of its own (User= of its unit, user of its section, service or container), or let an "
        "administrator apply."
    )


def require(declaration: Json, manager: Manager, described: Json, new: Command) -> None:
    """Raise ScriptError for a change that a restricted user may not make of the described production."""
    was = manager.command(described)
    if problem := root_problem(manager) or user_problem(manager, described, new):
        raise ScriptError("refused", problem)
    builds = engine_builds(declaration).values()
    own, started = (manager.shown_words(each)[: each.program] for each in (was, new))
    if started != own and started not in [build["command"] for build in builds if "image" not in build]:
        raise ScriptError(
            "refused",
            f"The apply command starts production's own program or a declared build, not {shown_command(started)}.",
        )
    if new.image not in [was.image, *(build.get("image") for build in builds)]:
        raise ScriptError("refused", f"The apply command takes a declared build's image, not {shown_value(new.image)}.")
    changed = sorted(name for name in {*was.env, *new.env} if was.env.get(name) != new.env.get(name))
    for word in new.words[: new.program]:
        # `env ${X} serve`: what X is would choose the program.
        used = {name for name in changed if re.search(r"[$%]", word) and name in word}
        if used:
            raise ScriptError("refused", f"{', '.join(used)} is part of production's program, and stays as it is.")
    _require_environment(declaration, new, changed)


def require_back(manager: Manager, described: Json, applied: Json) -> None:
    """Raise ScriptError for a rollback of the `applied` record that a restricted user may not make.

    It writes what was read before that apply, of a file or a template the whole: what an administrator has changed
    since, production's user say, would be as it was.
    """
    before = applied["apply"]["was"]
    problem = root_problem(manager) or user_problem(manager, before, manager.command(before))
    if problem is None and checksum(described) != applied["apply"]["new_sha256"]:
        problem = (
            f"Production's definition ({manager.place(described['own'])}) is not as apply {applied['apply']['id']} "
            "left it, and its rollback would undo what was changed there since: let an administrator roll back."
        )
    if problem is not None:
        raise ScriptError("refused", problem)


def _require_environment(declaration: Json, new: Command, changed: list[str]) -> None:
    """Raise ScriptError for a variable that neither a config may set nor the inventory sets so."""
    engine = declaration.get("engine") or {}
    has_chosen = chosen_boards.chosen_boards(declaration) is not None
    allowed = environment.allowed_names(engine.get("env_allowed"), bool(declaration.get("simulated")), has_chosen)
    declared = {str(name): str(text) for name, text in (engine.get("env") or {}).items()}
    for name in changed:
        if name in declared and new.env.get(name) in (None, declared[name]):
            continue
        if wrong := environment.why_not(name, allowed, new.env.get(name, "")):
            raise ScriptError("refused", f"The change request is refused, and nothing was touched: {wrong}.")
