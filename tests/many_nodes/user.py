"""A user of TokenPeak: a home, a working folder, and commands typed there, measured or under way."""

import os
import resource
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.bench import Controller

BIN = Path(sys.executable).parent
OWN_VARIABLES = ("PATH", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one command with all that it waited for, by the kernel."""

    wall_s: float
    cpu_s: float


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
        """What a command costs that is typed here, and what it said; it must end with status 0."""
        began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            shlex.split(line),
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-6000:]}"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(wall_s=time.monotonic() - began_s, cpu_s=cpu_s), done.stdout

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
