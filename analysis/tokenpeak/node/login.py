"""Commands as another user of the node runs them, with that user's own runtime folder."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any, Callable, TypeVar

from tokenpeak.node.error import ScriptError
from tokenpeak.node.shown import shown_value

MOST_CHARACTERS = 16 << 20
"""Of what an action returns: a file of that user's, say."""
Result = TypeVar("Result")
"""A JSON value."""


def as_user(user: str | None, argv: list[str], declared_as: str) -> list[str]:
    """The command as that user runs it; as it is where no user is named. `declared_as` names the key for an error."""
    if not user:
        return argv
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ScriptError(
            "declaration", f"{declared_as} is {shown_value(user)}, which this node does not know."
        ) from None
    if account.pw_uid == os.geteuid():
        return argv
    return [
        *("runuser", "-u", user, "--"),
        *("env", f"XDG_RUNTIME_DIR=/run/user/{account.pw_uid}", f"HOME={account.pw_dir}"),
        *argv,
    ]


def home_of(user: str) -> Path:
    """The user's home."""
    return Path(pwd.getpwnam(user).pw_dir)


def within(user: str | None, action: Callable[[], Result]) -> Result:
    """What `action` returns when it is done as that user, in a process of its own; what it raises is an OSError here.

    Root must not write into a folder that another user can turn into a link to somewhere else.
    """
    if not user or pwd.getpwnam(user).pw_uid == os.geteuid():
        return action()
    account = pwd.getpwnam(user)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.initgroups(user, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            answer: dict[str, Any] = {"result": action()}
        except BaseException as error:
            answer = {"error": str(error)}
        with os.fdopen(writing, "w") as stream:
            json.dump(answer, stream)
            stream.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        raw = stream.read(MOST_CHARACTERS)
    os.waitpid(child, 0)
    answer = json.loads(raw or '{"error": "the process ended"}')
    if "error" in answer:
        raise OSError(f"As user {user}: {answer['error']}")
    result: Result = answer["result"]
    return result
