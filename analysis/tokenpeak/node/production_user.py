"""User whom production runs as by the definition that an apply or a rollback writes, whatever ran before.

Whoever chooses production's words acts as that user.
"""

from __future__ import annotations

import os

from tokenpeak.node import root_programs
from tokenpeak.node.definitions.base import Definition
from tokenpeak.node.engine_command import Command
from tokenpeak.node.shown import shown_value
from tokenpeak.node.state import Json

_ROOT_NAMES = ("", "root")


def user_problem(definition: Definition, described: Json, command: Command) -> str | None:
    """Why a restricted user may not have this definition start this command; None where it has a user of its own.

    An image's own user is none: a tag means another image by and by, and that may be root's.
    """
    if os.geteuid() != 0:
        return None
    user = definition.user(described, command)
    if user is not None and not _is_root(user):
        return None
    named = "names no user" if user is None else f"names the user {shown_value(user)}"
    return (
        f"Production's definition ({definition.place(described['own'])}) {named} for what this change starts, and a "
        "restricted user starts nothing that may be root's: let the definition itself name a user of production's own "
        f"({definition.USER_AS}), or let an administrator do it."
    )


def _is_root(user: str) -> bool:
    name = user.partition(":")[0].strip()
    try:
        return int(name) == 0
    except ValueError:
        return name in _ROOT_NAMES or root_programs.uid_of(name) == 0
