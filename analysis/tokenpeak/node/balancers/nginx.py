"""nginx, by the word `down` on the node's line of an upstream, and a reload, which ends no request."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tokenpeak.node import root_programs
from tokenpeak.node.balancers.base import Balancer
from tokenpeak.node.error import ScriptError


class NginxBalancer(Balancer):
    """declared: file (with the upstream), server (as it stands there), reach (ssh with its host), reload."""

    name = "nginx"

    def files(self) -> list[Path]:
        """What is run here, and the file where it is changed here."""
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
        """What a command prints; where it has to be reached by ssh, that hands one text on to a shell."""
        reach = [str(word) for word in self.declared.get("reach") or ()]
        return self.do([*reach, shlex.join(words)] if reach else list(words))


def _escaped(server: str) -> str:
    """The server as sed's extended expressions match it."""
    return re.sub(r"([][().*+?{}|^$/\\])", r"\\\1", server)
