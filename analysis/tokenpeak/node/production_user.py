"""User whom production runs as by the definition that an apply or a rollback writes, whatever ran before.

Whoever chooses production's words acts as that user, and so does whoever may write the program that is started.
"""

from __future__ import annotations

import os

from tokenpeak.node import root_programs, version
from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.engine_command import Command
from tokenpeak.node.engine_container import is_numbered
from tokenpeak.node.error import ScriptError
from tokenpeak.node.shown import shown_command, shown_value
from tokenpeak.node.state import Json

_ROOT_NAMES = ("", "root")


def user_problem(definition: Definition, described: Json, command: Command) -> str | None:
    """Why a restricted user may not have this definition start this command; None where it has a user of its own.

    An image's own user is none: a tag means another image by and by, and that may be root's. Nor is a name that an
    image gives its meaning.
    """
    if os.geteuid() != 0:
        return None
    user = definition.user(described, command)
    is_of_node = definition.is_node_user()
    if user is not None and (not _is_root(user) if is_of_node else is_numbered(user)):
        return None
    named = "names no user" if user is None else f"names the user {shown_value(user)}"
    if user is not None and not is_of_node:
        named += ", which is no number other than 0 such as 1000:1000 (whom a name means its image decides),"
    return (
        f"Production's definition ({definition.place(described['own'])}) {named} for what this change starts, and a "
        "restricted user starts nothing that may be root's: let the definition itself name a user of production's own "
        f"({definition.USER_AS}), or let an administrator do it."
    )


def require_own_program(definition: Definition, described: Json, was: Command, new: Command) -> None:
    """Raise ScriptError where an edit has production run a program that others than root and its user may write.

    An administrator's edits too: he chose what was measured, and not that its owner becomes production's user. What
    stays as it is was chosen before, and a program in an image is no file of this machine.
    """
    if os.geteuid() != 0 or definition.is_in_image:
        return
    words = definition.shown_words(new)[: new.program]
    files = root_programs.of_environment((name, text) for name, text in new.env.items() if was.env.get(name) != text)
    if words != definition.shown_words(was)[: was.program]:
        files += version.code_files(words)
    user = definition.user(described, new)
    is_root = user is None or _is_root(user)
    uid = 0 if is_root else root_programs.uid_of(user or "")
    danger = root_programs.danger(files, uid or 0)
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
        return name in _ROOT_NAMES or root_programs.uid_of(name) == 0
