"""Production as a program of supervisord."""

from __future__ import annotations

from pathlib import Path

from tokenpeak.node import clock, process
from tokenpeak.node.error import NOT_SEEN, ScriptError
from tokenpeak.node.identity import IsMember
from tokenpeak.node.managers.base import START_TIMEOUT_S, STOP_TIMEOUT_S, Manager
from tokenpeak.node.shown import shown_output, shown_value
from tokenpeak.node.state import Json


def parse_status(raw: str, unit: str) -> str | None:
    """The state in `supervisorctl status UNIT`, such as RUNNING; None when it does not know the program."""
    for line in raw.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == unit and words[1].isupper():
            return words[1]
    return None


class SupervisordManager(Manager):
    """declared: unit (`NAME` or `GROUP:NAME`), config (supervisord's configuration file)."""

    def supervisorctl(self, *words: str) -> list[str]:
        """The command line of these words."""
        config = ["-c", str(self.declared["config"])] if "config" in self.declared else []
        return ["supervisorctl", *config, *words]

    def files(self) -> list[Path]:
        """The configuration, which names modules that supervisorctl loads."""
        return [Path(str(self.declared["config"]))] if "config" in self.declared else []

    def _state(self) -> str:
        """What supervisorctl says of it; its exit status speaks of something else."""
        unit = str(self.needed("unit"))
        ran = process.run(self.supervisorctl("status", unit))
        found = parse_status(ran.out, unit)
        if found is None:
            said = shown_output(ran.out or ran.err)
            raise ScriptError(
                "production" if "no such process" in said else NOT_SEEN,
                f"supervisord does not answer for {shown_value(unit)}: {said}. Correct tokenpeak_production.",
            )
        return found

    def members(self) -> IsMember:
        """The program's process and what descends from it, or is of its session or group."""
        ran = process.run(self.supervisorctl("pid", str(self.needed("unit"))))
        pid = ran.out.strip()
        return process.is_member_of(int(pid)) if pid.isdigit() and int(pid) else lambda _: False

    def is_running(self) -> bool:
        """Whether it runs or is being started."""
        return self._state() in ("RUNNING", "STARTING", "BACKOFF")

    def is_ending(self) -> bool:
        """Whether it is on its way down."""
        return self._state() == "STOPPING"

    def stop(self) -> None:
        """`supervisorctl stop`, which waits for the program's end, or the end of a stop that is under way."""
        if self.is_running():
            self.do(self.supervisorctl("stop", str(self.needed("unit"))), STOP_TIMEOUT_S)
        if not clock.wait_until(lambda: not self.is_ending(), STOP_TIMEOUT_S, poll_s=0.25):
            raise ScriptError("production", f"{self.unit} is still stopping after {STOP_TIMEOUT_S:g} s.")

    def start(self, recorded: Json) -> None:
        """`supervisorctl start`, unless it runs already."""
        if not self.is_running():
            self.do(self.supervisorctl("start", str(self.needed("unit"))), START_TIMEOUT_S)
