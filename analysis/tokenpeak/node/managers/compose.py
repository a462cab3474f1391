"""Production as a service of a Compose file."""

from __future__ import annotations

import json
from pathlib import Path

from tokenpeak.node import process, trust
from tokenpeak.node.containers import of_containers
from tokenpeak.node.identity import IsMember
from tokenpeak.node.managers.base import START_TIMEOUT_S, STOP_TIMEOUT_S, Manager
from tokenpeak.node.state import Json

BY_US = "# Written by TokenPeak's apply; `make rollback` takes it back.\n"
_CONVENTIONAL = ("compose", "docker-compose")
"""Names of Compose files whose override Compose reads by itself."""


def override_of(file: Path) -> Path:
    """Where an apply's override of a Compose file is."""
    word = "override" if file.stem in _CONVENTIONAL else "tokenpeak"
    return file.with_name(f"{file.stem}.{word}{file.suffix}")


class ComposeManager(Manager):
    """declared: file (the Compose file), unit (the service), project."""

    def compose(self, *words: str) -> list[str]:
        """The command line of these words, with the override of an apply where there is one."""
        file = Path(str(self.needed("file")))
        override = override_of(file)
        is_ours = trust.read_foreign(override, len(BY_US), follow=False) == BY_US.encode()
        project = ["-p", str(self.declared["project"])] if "project" in self.declared else []
        return ["docker", "compose", "-f", str(file), *(["-f", str(override)] if is_ours else []), *project, *words]

    def files(self) -> list[Path]:
        """The Compose file, which may start anything as root, and its override."""
        file = Path(str(self.needed("file")))
        return [file, override_of(file)]

    def members(self) -> IsMember:
        """The processes of the service's containers, and Docker's forwarders."""
        ids = self.ask(self.compose("ps", "-q", str(self.needed("unit")))).out.split()
        found = json.loads(self.ask(["docker", "inspect", "--type", "container", "--", *ids]).out) if ids else []
        return of_containers(found, 0)

    def is_running(self) -> bool:
        """Whether Compose lists a running container of the service."""
        ran = self.ask(self.compose("ps", "--status", "running", "-q", str(self.needed("unit"))))
        return bool(ran.out.strip())

    def definition(self) -> Json:
        """The resolved Compose file, to show what was there."""
        return {"config": process.run(self.compose("config")).out}

    def stop(self) -> None:
        """Stop the service's containers, which then stay for `start`."""
        self.do(self.compose("stop", str(self.needed("unit"))), STOP_TIMEOUT_S)

    def start(self, recorded: Json) -> None:
        """Start the same containers again; where somebody has removed them, one is made, of an image that is there."""
        unit = str(self.needed("unit"))
        is_left = bool(self.ask(self.compose("ps", "--all", "-q", unit)).out.strip())
        anew = ("up", "--detach", "--no-deps", "--no-build", "--pull", "never")
        self.do(self.compose(*(["start"] if is_left else anew), unit), START_TIMEOUT_S)
