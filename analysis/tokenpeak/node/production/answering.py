"""The answer that production must give before it counts as restored, and who may give it.

`answers_with` of `tokenpeak_production`: completion (the default; of a server of chat models a chat, of one
of a pooling model its answer), chat, embedding, rerank, health (200 of /health), or command (status 0 of
`answer_command`, for a server that speaks no HTTP). `ca_file` names the certificates that an https url is trusted by,
in place of the system's.

Who answers is checked on the very connection that a key is sent on. Production is whatever its manager says that it is:
the unit's control group, the container, the process group. Where the manager does not say, what answered before
production was stopped is recorded, and the same user's same program must answer afterwards.
"""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path
from typing import Any, Callable, NamedTuple

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.serving import Check, ForeignServerError, ServerAnswer
from tokenpeak.node.machine import process, sockets, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process_files import IsMember, program, user_ids
from tokenpeak.node.machine.sockets import Peer
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_answer, shown_command, shown_output, shown_value
from tokenpeak.node.production.manager import Manager

DEFAULT = "completion"
WITHOUT_MODEL = ("health", "command")
KINDS = (DEFAULT, "chat", "embedding", "rerank", *WITHOUT_MODEL)
INIT = 1
"""Holds the sockets of units that are started by their first connection."""


class Answering:
    """How one production is asked; raises ScriptError for a declaration that cannot be carried out."""

    def __init__(self, declared: Json) -> None:
        self.kind = str(declared.get("answers_with") or DEFAULT)
        if self.kind not in KINDS:
            raise ScriptError(
                "declaration",
                f"tokenpeak_production.answers_with is {shown_value(self.kind)}: give one of {', '.join(KINDS)}.",
            )
        self.url: str | None = declared.get("url")
        self._ca_file: str | None = declared.get("ca_file")
        self.command = [str(word) for word in declared.get("answer_command") or []]
        if self.kind == "command" and not self.command:
            raise ScriptError(
                "declaration",
                "tokenpeak_production.answers_with is command, and answer_command is missing: give the list of "
                "arguments of a program that ends with status 0 once production serves.",
            )
        # Whoever writes what an https server is trusted by could pass for production.
        trusted = [Path(str(self._ca_file))] if self._ca_file else []
        trust.require_only_root("tokenpeak_production", [*trust.files_of_command(self.command), *trusted])
        self.can_be_asked = self.kind == "command" or bool(self.url)
        """Else only its state is known."""
        self.names_model = self.kind not in WITHOUT_MODEL
        """It is asked which model it serves."""
        self._key_file: str | None = declared.get("api_key_file")

    def is_there(self, check: Check) -> bool:
        """Whether anything that `check` lets pass answers at its url. It hears no key."""
        if not self.url:
            return False
        try:
            answer = serving.request(f"{self.url}/v1/models", timeout_s=2, check=check, ca_file=self._ca_file)
        except ForeignServerError:
            return False
        return answer.status != 0

    def served_model(self, check: Check, timeout_s: float = 5.0) -> str | None:
        """The model that it names; None where it names none, or is not asked. Its key is sent after `check`."""
        if not (self.names_model and self.url):
            return None
        return serving.served_model(self.url, self._key(), timeout_s, check, self._ca_file)

    def wrong(self, model: str | None, check: Check, timeout_s: float = 60.0) -> str | None:
        """None when it gave a real answer, by this model where it names one; otherwise what came instead."""
        if self.kind == "command":
            done = process.run(self.command, timeout_s=timeout_s)
            if done.status == 0:
                return None
            ending = f"{shown_command(self.command[:1])} ended with status {done.status}"
            return f"{ending}: {shown_output(done.err or done.out)}"
        if self.kind == "health":
            answer = self._request("/health", timeout_s=timeout_s, check=check)
            return None if answer.status == 200 else _refused(answer)
        if self.kind == "embedding":
            body: Json = {"model": model, "input": "The"}
            return self._asked("/v1/embeddings", body, model, check, timeout_s, _embedding)
        if self.kind == "rerank":
            body = {"model": model, "query": "The", "documents": ["The", "A"]}
            return self._asked("/v1/rerank", body, model, check, timeout_s, _rerank)
        ask = serving.complete_chat if self.kind == "chat" else serving.complete
        return ask(str(self.url), str(model), self._key(), timeout_s, check, self._ca_file)

    def _asked(
        self,
        path: str,
        body: Json,
        model: str | None,
        check: Check,
        timeout_s: float,
        is_answer: Callable[[Any], bool],
    ) -> str | None:
        """None when the answer to a question is what it should be; otherwise what came instead."""
        answer = self._request(path, body, timeout_s, check)
        if answer.status != 200:
            return _refused(answer)
        try:
            content = serving.parsed(answer.text)
            is_real, author = is_answer(content), content.get("model", model)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            is_real, author = False, model
        if not is_real:
            return f"an answer that is no {self.kind}: {shown_answer(answer.text)}"
        return None if author == model else f"an answer by {shown_value(str(author))}, not {shown_value(model)}"

    def _request(
        self, path: str, body: Json | None = None, timeout_s: float = 5.0, check: Check | None = None
    ) -> ServerAnswer:
        method = "GET" if body is None else "POST"
        # Whoever has the port hears the key only after a check of who that is.
        key = None if check is None else self._key()
        return serving.request(f"{self.url}{path}", method, body, key, timeout_s, check, self._ca_file)

    def _key(self) -> str | None:
        return serving.key_from_file(self._key_file)


def _embedding(content: Any) -> bool:
    vector = content["data"][0]["embedding"]
    return bool(vector) and all(isinstance(value, (int, float)) for value in vector)


def _rerank(content: Any) -> bool:
    scores = [each["relevance_score"] for each in content["results"]]
    return bool(scores) and all(isinstance(score, (int, float)) for score in scores)


def _refused(answer: ServerAnswer) -> str:
    return f"HTTP {answer.status}: {shown_answer(answer.text)}" if answer.status else answer.text


class Shortfall(NamedTuple):
    """Why production is not as it was; where not `is_known`, it could not be looked at."""

    text: str
    is_known: bool = True
    other_model: str | None = None
    """The model that it serves, well, in place of the recorded model."""

    def words(self, was_model: str | None) -> str:
        """The problem, and where production serves another model than `was_model`, how that is accepted."""
        if self.other_model is None:
            return self.text
        return (
            f"{self.text} It served {shown_value(was_model)} when it was recorded, and answers well by "
            f"{shown_value(self.other_model)} now: somebody has changed it since. If that is meant, `tokenpeak restore "
            "--accept` takes it as it is; if not, mend its definition and start it again."
        )


def standing(restored: bool | None) -> str:
    """How production stands after it was given back, before the reason: what is not known is not called down."""
    if restored is None:
        return "whether production is back is not known"
    return "production is back" if restored else "production is not back"


def is_restored(wrong: Shortfall | None, *, engine_stopped: bool = True) -> bool | None:
    """Whether production is as it was, with nothing of the engine left; None where that is not known."""
    if wrong is not None and not wrong.is_known and engine_stopped:
        return None
    return wrong is None and engine_stopped


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
