"""The verbs that every load balancer has."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from tokenpeak.node.machine import process, root_programs
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_value
from tokenpeak.node.production.manager import Manager, succeeded
from tokenpeak.node.production.managers.kubernetes import KubernetesManager, pod_selector

COMMAND_TIMEOUT_S = 60.0


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


ALL = "this node"


class CommandBalancer(Balancer):
    """declared: before and after, lists of arguments."""

    def files(self) -> list[Path]:
        """Files that the two commands run."""
        declared = [self.declared.get(key) for key in ("before", "after")]
        words = [[str(word) for word in command] for command in declared if isinstance(command, list)]
        return [file for command in words for file in root_programs.of_command(command)]

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
        return [*root_programs.of_command(here), *([] if reach else [Path(str(self.declared.get("file") or "/"))])]

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
