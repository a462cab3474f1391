"""Processes forked from one that has imported the simulator: a start costs a fork and no imports."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tokenpeak.sim import engine, nvidia_smi

__all__ = ["Forked", "engine", "nvidia_smi"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, "uvloop"])


class Forked:
    """The process of a `main`, as `subprocess.Popen` has it; what it prints is added to a file."""

    def __init__(
        self, main: Callable[[list[str]], int], argv: Sequence[str], env: Mapping[str, str], printed: Path
    ) -> None:
        printed.touch()
        given = (main, list(argv), dict(env), str(printed))
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return status

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _run(main: Callable[[list[str]], int], argv: list[str], env: dict[str, str], printed: str) -> None:
    file = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    os.environ.clear()
    os.environ.update(env)
    sys.exit(main(argv))
