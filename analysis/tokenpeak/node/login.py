"""Commands as another user of the node runs them, with that user's own runtime folder."""

from __future__ import annotations

import os
import pwd

from tokenpeak.node.error import ScriptError


def as_user(user: str | None, argv: list[str], declared_as: str) -> list[str]:
    """The command as that user runs it; as it is where no user is named. `declared_as` names the key for an error."""
    if not user:
        return argv
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ScriptError("declaration", f"{declared_as} is {user!r}, which this node does not know.") from None
    if account.pw_uid == os.geteuid():
        return argv
    return [
        *("runuser", "-u", user, "--"),
        *("env", f"XDG_RUNTIME_DIR=/run/user/{account.pw_uid}", f"HOME={account.pw_dir}"),
        *argv,
    ]
