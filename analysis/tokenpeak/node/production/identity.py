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

    def __init__(self, manager: Manager, answered_before: Json | None = None) -> None:
        self._manager = manager
        self._known = answered_before
        self.seen: Json | None = None

    def __call__(self, connection: socket.socket) -> None:
        """Raise ForeignServerError unless production holds the other end."""
        peer = sockets.peer(connection)
        identity = self._seen(peer)
        if self._known is not None and identity["by"] != "manager" and identity != self._known:
            raise ForeignServerError(
                f"{_where(connection)} is answered by {peer.text}, not by what answered there before production was "
                f"stopped ({_words(self._known)}): no key was sent. End it if it is not production's."
            )
        self.seen = identity

    def _seen(self, peer: Peer) -> Json:
        """How it is known that this may be production; raises ForeignServerError where it may not."""
        if not peer.is_here:
            return {"by": "network"}
        declared = declared_uid(self._manager)
        if not peer.pids:
            # Nobody but root sees what the processes of others hold; whose socket it is, everybody.
            if os.geteuid() != 0 and set(peer.uids) and set(peer.uids) <= {0, os.geteuid(), declared}:
                return {"by": "user", "uid": peer.uids[0], "program": None}
            raise ForeignServerError(self._refusal(peer))
        is_member = self._manager.members()
        own = [pid for pid in peer.pids if pid != INIT] or list(peer.pids)
        if is_member is not None and all(is_member(pid) for pid in own):
            return {"by": "manager", "uid": peer.uids[0] if peer.uids else None}
        users = {*peer.uids, *(uid for pid in own for uid in user_ids(pid))}
        is_one_user = len(users) == 1 and bool(peer.uids)
        if is_one_user and ((is_member is None and declared is None) or users in ({0}, {declared})):
            return {"by": "user", "uid": peer.uids[0], "program": program(own[0])}
        raise ForeignServerError(self._refusal(peer))

    def _refusal(self, peer: Peer) -> str:
        declared = self._manager.declared
        name = " ".join(str(word) for word in (declared.get("manager"), self._manager.unit) if word)
        return (
            f"{declared.get('url')} is answered by {peer.text}, which is no process of production ({name}): no key "
            "was sent. End it, or, if it answers for production, name its user in tokenpeak_production.listens_as."
        )


def of_no_stranger(manager: Manager) -> Check:
    """A check that production may answer, whoever started it: by hand, or by another manager.

    Its own processes may, and a socket that root has made, or the user whom it listens as, or who listened before a
    trial. A stranger cannot make such a socket, whatever else holds his.
    """

    def check(connection: socket.socket) -> None:
        peer = sockets.peer(connection)
        declared, before = declared_uid(manager), manager.answered_before or {}
        is_member = manager.members()
        is_known = is_member is not None or declared is not None or before.get("by") == "user"
        is_own = is_member is not None and any(map(is_member, peer.pids))
        if is_own or not (peer.is_here and peer.uids and is_known):
            return
        if not {0, os.geteuid(), declared, before.get("uid")}.intersection(peer.uids):
            raise ForeignServerError(f"{_where(connection)} is answered by {peer.text}, which is none of production's.")

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


def of_processes(is_member: Callable[[], IsMember], owner: str) -> Check:
    """A check that one of the processes that `is_member()` knows answers; `what` names them."""

    def check(connection: socket.socket) -> None:
        peer = sockets.peer(connection)
        if peer.pids:
            is_own = is_member()
            if all(is_own(pid) for pid in peer.pids):
                return
        elif os.geteuid() != 0 and peer.uids == (os.geteuid(),):
            return
        raise ForeignServerError(f"{_where(connection)} is answered by {peer.text}, which is no process of {owner}.")

    return check


def _where(connection: socket.socket) -> str:
    host, port = connection.getpeername()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _words(identity: Json) -> str:
    if identity["by"] == "user":
        return f"{identity['program'] or 'a process'} of user {identity['uid']}"
    return {"manager": "a process that its manager knew", "network": "a process outside this machine's network"}[
        str(identity["by"])
    ]
