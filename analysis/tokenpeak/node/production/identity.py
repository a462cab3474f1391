"""Who may answer as production or as the engine, checked on the very connection that a key is sent on.

Production is whatever its manager says that it is: the unit's control group, the container, the process group. Where
the manager does not say, what answered before production was stopped is recorded, and the same user's same program must
answer afterwards.
"""

from __future__ import annotations

import os
import pwd
import socket
from typing import Callable

from tokenpeak.node.machine import sockets
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, program, user_ids
from tokenpeak.node.machine.sockets import Peer
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.manager import Manager

Check = Callable[[socket.socket], None]
"""Raises ForeignServerError unless the other end of a connection is who should answer."""
INIT = 1
"""Holds the sockets of units that are started by their first connection."""


class ForeignServerError(ScriptError):
    """Somebody else answers at an address."""

    def __init__(self, text: str) -> None:
        super().__init__("stranger", text)


class OfProduction:
    """Checks that production answers, as its manager knows it and as `known` was recorded before its stop, if it was.

    `seen` is who answered last.
    """

    def __init__(self, manager: Manager, known: Json | None = None) -> None:
        self._manager = manager
        self._known = known
        self.seen: Json | None = None

    def __call__(self, connection: socket.socket) -> None:
        """Raise ForeignServerError unless production holds the other end."""
        found = sockets.peer(connection)
        seen = self._seen(found)
        if self._known is not None and seen["by"] != "manager" and seen != self._known:
            raise ForeignServerError(
                f"{_where(connection)} is answered by {found.text}, not by what answered there before production was "
                f"stopped ({_words(self._known)}): no key was sent. End it if it is not production's."
            )
        self.seen = seen

    def _seen(self, found: Peer) -> Json:
        """How it is known that this may be production; raises ForeignServerError where it may not."""
        if not found.is_here:
            return {"by": "network"}
        declared = declared_uid(self._manager)
        if not found.pids:
            # Nobody but root sees what the processes of others hold; whose socket it is, everybody.
            if os.geteuid() != 0 and set(found.uids) and set(found.uids) <= {0, os.geteuid(), declared}:
                return {"by": "user", "uid": found.uids[0], "program": None}
            raise ForeignServerError(self._refusal(found))
        is_member = self._manager.members()
        own = [pid for pid in found.pids if pid != INIT] or list(found.pids)
        if is_member is not None and all(is_member(pid) for pid in own):
            return {"by": "manager", "uid": found.uids[0] if found.uids else None}
        users = {*found.uids, *(uid for pid in own for uid in user_ids(pid))}
        is_one_user = len(users) == 1 and bool(found.uids)
        if is_one_user and ((is_member is None and declared is None) or users in ({0}, {declared})):
            return {"by": "user", "uid": found.uids[0], "program": program(own[0])}
        raise ForeignServerError(self._refusal(found))

    def _refusal(self, found: Peer) -> str:
        declared = self._manager.declared
        name = " ".join(str(word) for word in (declared.get("manager"), self._manager.unit) if word)
        return (
            f"{declared.get('url')} is answered by {found.text}, which is no process of production ({name}): no key "
            "was sent. End it, or, if it answers for production, name its user in tokenpeak_production.listens_as."
        )


def of_no_stranger(manager: Manager) -> Check:
    """A check that production may answer, whoever started it: by hand, or by another manager.

    Its own processes may, and a socket that root has made, or the user whom it listens as, or who listened before a
    trial. A stranger cannot make such a socket, whatever else holds his.
    """

    def check(connection: socket.socket) -> None:
        found = sockets.peer(connection)
        declared, known = declared_uid(manager), manager.answered_before or {}
        is_member = manager.members()
        is_known = is_member is not None or declared is not None or known.get("by") == "user"
        is_own = is_member is not None and any(map(is_member, found.pids))
        if is_own or not (found.is_here and found.uids and is_known):
            return
        if not {0, os.geteuid(), declared, known.get("uid")}.intersection(found.uids):
            raise ForeignServerError(
                f"{_where(connection)} is answered by {found.text}, which is none of production's."
            )

    return check


def declared_uid(manager: Manager) -> int | None:
    """The user that production is declared to listen as; None where it is not declared."""
    name = manager.declared.get("listens_as")
    if name is None:
        return None
    try:
        return pwd.getpwnam(str(name)).pw_uid
    except KeyError:
        raise ScriptError(
            "declaration", f"tokenpeak_production.listens_as is {shown_value(name)}, which this node does not know."
        ) from None


def of_processes(is_member: Callable[[], IsMember], what: str) -> Check:
    """A check that one of the processes that `is_member()` knows answers; `what` names them."""

    def check(connection: socket.socket) -> None:
        found = sockets.peer(connection)
        if found.pids:
            known = is_member()
            if all(known(pid) for pid in found.pids):
                return
        elif os.geteuid() != 0 and found.uids == (os.geteuid(),):
            return
        raise ForeignServerError(f"{_where(connection)} is answered by {found.text}, which is no process of {what}.")

    return check


def _where(connection: socket.socket) -> str:
    host, port = connection.getpeername()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _words(seen: Json) -> str:
    if seen["by"] == "user":
        return f"{seen['program'] or 'a process'} of user {seen['uid']}"
    return {"manager": "a process that its manager knew", "network": "a process outside this machine's network"}[
        str(seen["by"])
    ]
