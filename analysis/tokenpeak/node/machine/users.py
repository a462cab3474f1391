"""Commands as another user of the node runs them, with that user's own runtime folder."""

from __future__ import annotations

import errno
import json
import os
import pwd
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, NoReturn, TypeVar

from tokenpeak.node.machine import clock, root_files
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.words import shown_value

MOST_BYTES = 16 << 20
"""Of what an action returns: a file of that user's, say."""
WITHIN_S = 60.0
"""For an action: a model's files on a slow disk, say."""
_ENDED_WITHIN_S = 1.0
_STANDARD_ERROR = 2
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
    """The result of `action`, done as that user in a process of its own; what it raises is an OSError here.

    Root must not write into a folder that another user can turn into a link to somewhere else. That user can stop the
    process, which is ended then.
    """
    if not user or pwd.getpwnam(user).pw_uid == os.geteuid():
        return action()
    account = pwd.getpwnam(user)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _act(account, writing, action)
    os.close(writing)
    try:
        raw = _read(reading, time.monotonic() + WITHIN_S)
    except TimeoutError:
        raise OSError(f"As user {user}: not done within {WITHIN_S:g} s") from None
    finally:
        os.close(reading)
        # Its user may have stopped it; one that is done has nothing left to do.
        os.kill(child, signal.SIGKILL)
        # A file system of its user's can keep it from ending.
        clock.wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, _ENDED_WITHIN_S)
    if len(raw) > MOST_BYTES:
        raise OSError(f"As user {user}: more than {MOST_BYTES >> 20} MiB came of it")
    answer = json.loads(raw or '{"error": "the process ended"}')
    if "error" in answer:
        raise OSError(f"As user {user}: {answer['error']}")
    result: Result = answer["result"]
    return result


def _act(account: pwd.struct_passwd, writing: int, action: Callable[[], Any]) -> NoReturn:
    """In the child: take the user's rights alone, and write what comes of the action.

    Nothing that is open is kept: the node's mutex, for one, would be held for as long as that user stops this process.
    """
    try:
        for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            if number > _STANDARD_ERROR and number != writing:
                with suppress(OSError):
                    os.close(number)
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        answer: dict[str, Any] = {"result": action()}
    except BaseException as error:
        answer = {"error": str(error)}
    try:
        with os.fdopen(writing, "w") as stream:
            json.dump(answer, stream)
    finally:
        os._exit(0)


def _read(descriptor: int, deadline: float) -> bytes:
    """The bytes written there until it is closed, up to a bound; TimeoutError where that takes too long."""
    raw = b""
    while len(raw) <= MOST_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        raw += chunk
    return raw


FILE = Path("/etc/subuid")


def of_user(account: pwd.struct_passwd) -> list[range]:
    """The ids that are subordinate to a user."""
    return [ids for owner, ids in _declared() if owner in (account.pw_name, str(account.pw_uid))]


def owners() -> list[tuple[range, int]]:
    """All subordinate ids, each with the user to whom they are."""
    subordinates = []
    for owner, ids in _declared():
        try:
            subordinates.append((ids, int(owner) if owner.isdecimal() else pwd.getpwnam(owner).pw_uid))
        except KeyError:
            continue
    return subordinates


def _declared() -> list[tuple[str, range]]:
    """Owner, by name or number, and the ids of each line; none where there is no such file."""
    try:
        lines = FILE.read_text(errors="replace").splitlines()
    except OSError:
        return []
    cells = [line.strip().split(":") for line in lines]
    rows = [row for row in cells if len(row) == 3 and row[1].isdecimal() and row[2].isdecimal()]
    return [(owner, range(int(first), int(first) + int(number))) for owner, first, number in rows]


def users_environment(user: str) -> dict[str, str]:
    """The environment of a login of the user; KeyError for a user that this machine does not have."""
    return {"HOME": pwd.getpwnam(user).pw_dir, "USER": user, "LOGNAME": user}


def before_exec(user: str | None) -> Callable[[], None]:
    """The steps of a child before it becomes another program: with `user`, it takes that user's rights alone.

    KeyError for a user whom this machine does not know, PermissionError where only root could.
    """
    if user is None:
        return _as_killable_as_others
    account = pwd.getpwnam(user)
    if os.geteuid() not in (0, account.pw_uid):
        raise PermissionError(errno.EPERM, f"only root can start a process as {user}")
    groups = os.getgrouplist(user, account.pw_gid)

    def become() -> None:
        _as_killable_as_others()
        if os.geteuid() == 0:
            os.setgroups(groups)
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)

    return become


def _as_killable_as_others() -> None:
    """In a child: undo the guard's protection from the kernel's memory killer, which is not meant for production."""
    own = Path("/proc/self/oom_score_adj")
    try:
        if int(own.read_text()) < 0:
            root_files.write_setting(own, "0")
    except OSError:
        return
