"""A user of TokenPeak: a home, a working folder, and commands typed there, watched or under way."""

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.faults.bench import Controller
from tests.many_nodes.watched import Cost, Sample

BIN = Path(sys.executable).parent
OWN_VARIABLES = ("PATH", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL")


def is_titled(command_line: Path, title: str) -> bool:
    """Whether the process of this file of /proc begins its command line like that."""
    try:
        return command_line.read_bytes().startswith(title.encode())
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class User:
    """Somebody at home in `home`, whose current folder is the working folder `work`; users may share that one."""

    home: Path
    work: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a login has, and this checkout's commands on the path."""
        found = {name: os.environ[name] for name in OWN_VARIABLES if name in os.environ}
        return {**found, "HOME": str(self.home), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def cost_of(self, line: str, limit_s: float) -> tuple[Cost, str]:
        """What a command costs that is typed here, and what it said; it must end with status 0.

        It begins without the SSH connections that the one before has left for the next, so that its own are counted.
        """
        for pid in self._connections():
            os.kill(pid, signal.SIGTERM)
        result = self.home / "cost.json"
        watched = [sys.executable, str(Path(__file__).with_name("watched.py")), str(result)]
        done = subprocess.run(
            [*watched, *shlex.split(line)],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-6000:]}"
        found = json.loads(result.read_text())
        samples = tuple(Sample(**each) for each in found.pop("samples"))
        return Cost(**found, samples=samples), done.stdout

    def _connections(self) -> list[int]:
        """SSH connections of this home that wait for further commands, by the title that they give themselves."""
        title = f"ssh: {self.home}/.ansible/"
        named = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if is_titled(path, title)]
        return [int(path.name) for path in named]

    def start(self, line: str) -> Controller:
        """The command under way, the first of a process group."""
        return Controller(
            subprocess.Popen(
                shlex.split(line),
                cwd=self.work,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
        )

    def archives(self) -> list[Path]:
        """The archives of the working folder, oldest first."""
        return sorted(path.parent for path in (self.work / "results").glob("*/sweep.json"))
