"""Load balancers that a node leaves and joins again, and the verbs that each of them has.

Source of HAProxy's columns: its management guide, "show servers state" (version 1) and "show stat".
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import socket
import time
from pathlib import Path
from typing import Any

from tokenpeak.node.machine import process, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_command, shown_output, shown_value
from tokenpeak.node.production.manager import Manager, succeeded
from tokenpeak.node.production.managers.kubernetes import KubernetesManager, pod_selector

COMMAND_TIMEOUT_S = 60.0
ALL = "this node"
SOCKET_TIMEOUT_S = 10.0
"""For a whole answer: one that comes a byte at a time has an end too."""
ANSWER_LIMIT_BYTES = 8 << 20
_WORD = re.compile(r"[A-Za-z0-9_.:/-]+")
_STARTING, _RUNNING = "1", "2"
"""srv_op_state of a server that gets requests."""
_STATE_COLUMNS = {"be_name", "srv_name", "srv_admin_state", "srv_op_state"}


class Balancer:
    """The sender of requests to this node; each verb is idempotent and raises ScriptError when the balancer refuses."""

    name = ""

    def __init__(self, declared: Json, manager: Manager) -> None:
        self.declared = declared
        self.manager = manager

    def files(self) -> list[Path]:
        """Files that root runs or changes at its verbs, as declared."""
        return []

    def members(self) -> list[str]:
        """Members of this node that the inventory declares to be in it."""
        raise NotImplementedError

    def joined(self) -> list[str]:
        """Members of this node that are in it now: only that is taken out, and only that comes back."""
        raise NotImplementedError

    def leave(self, members: list[str]) -> None:
        """Take these out: they get no new requests, and those that run go on."""
        raise NotImplementedError

    def is_idle(self, members: list[str]) -> bool:
        """Whether no request runs on these by the balancer's own count; True where it has none."""
        return True

    def rejoin(self, members: list[str]) -> None:
        """Put these back."""
        raise NotImplementedError

    def is_back(self, members: list[str]) -> bool:
        """Whether these get requests again; True where the balancer does not say."""
        return True

    def others(self) -> int | None:
        """How many others serve in this node's place; None where the balancer does not say."""
        return None

    def needed(self, key: str) -> Any:
        """A declared value that this balancer cannot do without."""
        if not self.declared.get(key):
            raise ScriptError("declaration", f"tokenpeak_drain.{self.name} has no {shown_value(key)}: add it.")
        return self.declared[key]

    def do(self, argv: list[str]) -> str:
        """The output of a command, which must succeed."""
        return succeeded(argv, process.run(argv, COMMAND_TIMEOUT_S), "drain").out


class CommandBalancer(Balancer):
    """declared: before and after, lists of arguments."""

    def files(self) -> list[Path]:
        """Files that the two commands run."""
        declared = [self.declared.get(key) for key in ("before", "after")]
        words = [[str(word) for word in command] for command in declared if isinstance(command, list)]
        return [file for command in words for file in trust.files_of_command(command)]

    def members(self) -> list[str]:
        """The node as a whole."""
        return [ALL]

    def joined(self) -> list[str]:
        """Nobody says: it is taken for joined."""
        self._argv("after")
        return [ALL]

    def leave(self, members: list[str]) -> None:
        """Run `before`."""
        self.do(self._argv("before"))

    def rejoin(self, members: list[str]) -> None:
        """Run `after`."""
        self.do(self._argv("after"))

    def _argv(self, key: str) -> list[str]:
        declared = self.declared.get(key)
        if not isinstance(declared, list) or not declared:
            raise ScriptError(
                "declaration", f"tokenpeak_drain.{key} is {shown_value(declared)}: give a list of arguments."
            )
        return [str(word) for word in declared]


class NginxBalancer(Balancer):
    """declared: file (with the upstream), server (as it stands there), reach (ssh with its host), reload."""

    name = "nginx"

    def files(self) -> list[Path]:
        """The program that is run here, and the file where it is changed here."""
        reach, reload = ([str(word) for word in self.declared.get(key) or ()] for key in ("reach", "reload"))
        here = reach or reload
        return [*trust.files_of_command(here), *([] if reach else [Path(str(self.declared.get("file") or "/"))])]

    def members(self) -> list[str]:
        """The declared server."""
        return [str(self.needed("server"))]

    def joined(self) -> list[str]:
        """The server, where its line does not say `down`."""
        server = str(self.needed("server"))
        text = self._do("cat", "--", self._file)
        lines = re.findall(rf"^\s*server\s+{re.escape(server)}(\s[^;]*)?;", text, re.MULTILINE)
        if not lines:
            raise ScriptError(
                "drain", f"nginx's file {self._file} has no line `server {server}`: correct tokenpeak_drain.nginx."
            )
        return [server] if any("down" not in line.split() for line in lines) else []

    def leave(self, members: list[str]) -> None:
        """Say `down` on its line; workers that are there finish what they have."""
        for server in members:
            # A line that says so already is left.
            self._edit(rf"/\sdown[ ;]/! s/^(\s*server\s+{_escaped(server)})(\s[^;]*)?;/\1\2 down;/")

    def rejoin(self, members: list[str]) -> None:
        """Take `down` away."""
        for server in members:
            self._edit(rf"s/^(\s*server\s+{_escaped(server)}(\s[^;]*)?) down;/\1;/")

    @property
    def _file(self) -> str:
        return str(self.needed("file"))

    def _edit(self, expression: str) -> None:
        self._do("sed", "-i", "-E", expression, self._file)
        self._do(*[str(word) for word in self.declared.get("reload") or ("nginx", "-s", "reload")])

    def _do(self, *words: str) -> str:
        """The output of a command; where it has to be reached by ssh, that hands one text on to a shell."""
        reach = [str(word) for word in self.declared.get("reach") or ()]
        return self.do([*reach, shlex.join(words)] if reach else list(words))


def _escaped(server: str) -> str:
    """The server as sed's extended expressions match it."""
    return re.sub(r"([][().*+?{}|^$/\\])", r"\\\1", server)


class KubernetesBalancer(Balancer):
    """declared: service, and label (KEY=VALUE, of its selector)."""

    name = "kubernetes"

    def members(self) -> list[str]:
        """The declared service."""
        return [str(self.needed("service"))]

    def joined(self) -> list[str]:
        """The service, where a pod of production has the label."""
        key, value = self._label()
        pods = self._kubernetes.pods(self._kubernetes.workload())
        has = [(pod.get("metadata") or {}).get("labels", {}).get(key) == value for pod in pods]
        return self.members() if any(has) else []

    def leave(self, members: list[str]) -> None:
        """Take the label off production's pods."""
        self._set_label(f"{self._label()[0]}-")

    def is_idle(self, members: list[str]) -> bool:
        """Whether the service has none of production's pods as an endpoint any more; what runs there, metrics say."""
        return not set(self._addresses()) & self._own_addresses()

    def rejoin(self, members: list[str]) -> None:
        """Give production's pods the label."""
        self._set_label("=".join(self._label()))

    def is_back(self, members: list[str]) -> bool:
        """Whether all of production's pods are endpoints that are ready."""
        return self._own_addresses() <= set(self._addresses())

    def others(self) -> int:
        """How many other endpoints are ready."""
        return len(set(self._addresses()) - self._own_addresses())

    @property
    def _kubernetes(self) -> KubernetesManager:
        if not isinstance(self.manager, KubernetesManager):
            raise ScriptError("declaration", "tokenpeak_drain.kubernetes is for production with manager kubernetes.")
        return self.manager

    def _label(self) -> tuple[str, str]:
        key, _, value = str(self.needed("label")).partition("=")
        selector: Json = (self._kubernetes.workload()["spec"].get("selector") or {}).get("matchLabels") or {}
        if not value or key in selector:
            raise ScriptError(
                "declaration",
                f"tokenpeak_drain.kubernetes.label is {shown_value(self.declared['label'])}: give KEY=VALUE of the "
                "service's selector that is no part of production's own.",
            )
        return key, value

    def _set_label(self, word: str) -> None:
        own = pod_selector(self._kubernetes.workload())
        self.do(self._kubernetes.kubectl("label", "pods", "-l", own, word, "--overwrite"))

    def _addresses(self) -> list[str]:
        raw = self.do(self._kubernetes.kubectl("get", "endpoints", str(self.needed("service")), "-o", "json"))
        try:
            return [
                str(address.get("ip"))
                for subset in json.loads(raw).get("subsets") or []
                for address in subset.get("addresses") or []
            ]
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise ScriptError(
                "drain", "The endpoints that kubectl shows cannot be read: look at the service."
            ) from error

    def _own_addresses(self) -> set[str]:
        pods = self._kubernetes.pods(self._kubernetes.workload())
        return {str(pod["status"]["podIP"]) for pod in pods if (pod.get("status") or {}).get("podIP")}


class HaproxyBalancer(Balancer):
    """HAProxy by its runtime socket: `set server … state drain`, and `ready` again.

    declared: socket (a path, or HOST:PORT) with level admin, and servers (a list of BACKEND/SERVER).
    """

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
