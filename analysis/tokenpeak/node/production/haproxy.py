"""HAProxy, by its runtime socket: `set server … state drain`, and `ready` again.

Source of the columns: HAProxy's management guide, "show servers state" (version 1) and "show stat".
"""

from __future__ import annotations

import csv
import re
import socket
import time

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.production.balancers import Balancer

SOCKET_TIMEOUT_S = 10.0
"""For a whole answer: one that comes a byte at a time has an end too."""
ANSWER_LIMIT_BYTES = 8 << 20
_WORD = re.compile(r"[A-Za-z0-9_.:/-]+")
_STARTING, _RUNNING = "1", "2"
"""srv_op_state of a server that gets requests."""
_STATE_COLUMNS = {"be_name", "srv_name", "srv_admin_state", "srv_op_state"}


class HaproxyBalancer(Balancer):
    """declared: socket (a path, or HOST:PORT) with level admin, and servers (a list of BACKEND/SERVER)."""

    name = "haproxy"

    def joined(self) -> list[str]:
        """The declared servers that no administrator took out."""
        states = self._states()
        return [server for server in self.members() if states[server]["srv_admin_state"] == "0"]

    def leave(self, members: list[str]) -> None:
        """Let them finish what runs and get nothing new."""
        for server in members:
            self._do("set", "server", server, "state", "drain")

    def is_idle(self, members: list[str]) -> bool:
        """Whether no session runs or waits for them."""
        rows = csv.DictReader(self._ask("show", "stat", "-1", "4", "-1").lstrip("# ").splitlines())
        try:
            own = [row for row in rows if f"{row['pxname']}/{row['svname']}" in members]
            return all(int(row["scur"] or 0) + int(row["qcur"] or 0) == 0 for row in own)
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise ScriptError(
                "drain", f"HAProxy's `show stat` cannot be read ({shown_output(str(error))}): look at its socket."
            ) from error

    def rejoin(self, members: list[str]) -> None:
        """Let them get requests again."""
        for server in members:
            self._do("set", "server", server, "state", "ready")

    def is_back(self, members: list[str]) -> bool:
        """Whether its health checks, where it has any, find them up."""
        states = self._states()
        return all(states[server]["srv_op_state"] in (_STARTING, _RUNNING) for server in members)

    def others(self) -> int:
        """How many other servers of its backends are up and in; of several backends, the fewest."""
        own = self.members()
        states = self._states()
        up = [
            server
            for server, row in states.items()
            if server not in own and row["srv_admin_state"] == "0" and row["srv_op_state"] in (_STARTING, _RUNNING)
        ]
        backends = {server.split("/")[0] for server in own}
        return min(sum(server.split("/")[0] == backend for server in up) for backend in backends)

    def members(self) -> list[str]:
        """The declared servers."""
        declared = self.needed("servers")
        if not isinstance(declared, list) or any(len(str(one).split("/")) != 2 for one in declared):
            raise ScriptError(
                "declaration",
                f"tokenpeak_drain.haproxy.servers is {shown_value(declared)}: give a list of BACKEND/SERVER.",
            )
        return [str(one) for one in declared]

    def _states(self) -> dict[str, dict[str, str]]:
        """Every server of the declared backends by `BACKEND/SERVER`; a declared one that is missing is an error."""
        states: dict[str, dict[str, str]] = {}
        for backend in sorted({server.split("/")[0] for server in self.members()}):
            lines = [line for line in self._ask("show", "servers", "state", backend).splitlines() if line.strip()]
            header = next((line for line in lines if line.startswith("# ")), None)
            if header is None:
                raise ScriptError(
                    "drain", f"HAProxy says of backend {shown_value(backend)}: {shown_output(' '.join(lines))}"
                )
            names = header[2:].split()
            for line in lines[lines.index(header) + 1 :]:
                row = dict(zip(names, line.split()))
                if missing := sorted(_STATE_COLUMNS - row.keys()):
                    raise ScriptError(
                        "drain",
                        f"HAProxy's `show servers state` has a line without {', '.join(missing)}: look at its socket.",
                    )
                states[f"{row['be_name']}/{row['srv_name']}"] = row
        if missing := [server for server in self.members() if server not in states]:
            raise ScriptError(
                "drain", f"HAProxy has no server {', '.join(missing)}: correct tokenpeak_drain.haproxy.servers."
            )
        return states

    def _do(self, *words: str) -> None:
        answer = self._ask(*words).strip()
        if answer:
            raise ScriptError("drain", f"HAProxy refused {shown_command(words)}: {shown_output(answer)}")

    def _ask(self, *words: str) -> str:
        """HAProxy's answer to these words, each of which is one to it: `;` would begin another command."""
        where = str(self.needed("socket"))
        if wrong := [word for word in words if not _WORD.fullmatch(word)]:
            raise ScriptError(
                "drain",
                f"HAProxy would read {shown_value(wrong[0])} as more than a name: correct tokenpeak_drain.haproxy.",
            )
        try:
            with _connected(where) as connection:
                deadline = time.monotonic() + SOCKET_TIMEOUT_S
                connection.sendall(f"{' '.join(words)}\n".encode())
                raw = b""
                while chunk := _part(connection, deadline):
                    raw += chunk
                    if len(raw) > ANSWER_LIMIT_BYTES:
                        raise ScriptError("drain", f"HAProxy answers without end at {where}.")
        except OSError as error:
            raise ScriptError(
                "drain",
                f"HAProxy's runtime socket {where} does not answer ({error}): start HAProxy with `stats socket … level "
                "admin`, or correct tokenpeak_drain.haproxy.socket.",
            ) from error
        return raw.decode(errors="replace")


def _part(connection: socket.socket, deadline: float) -> bytes:
    """The next part of an answer, empty at its end; raises OSError once the deadline has passed."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise OSError(f"its answer was not whole after {SOCKET_TIMEOUT_S:g} s")
    connection.settimeout(left_s)
    return connection.recv(1 << 16)


def _connected(where: str) -> socket.socket:
    if where.startswith("/"):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(SOCKET_TIMEOUT_S)
        try:
            made.connect(where)
        except OSError:
            made.close()
            raise
        return made
    host, _, port = where.rpartition(":")
    if not host or not port.isdigit():
        raise ScriptError(
            "declaration", f"tokenpeak_drain.haproxy.socket is {shown_value(where)}: give a path, or HOST:PORT."
        )
    return socket.create_connection((host.strip("[]"), int(port)), SOCKET_TIMEOUT_S)
