"""A copy of what is judged, at one revision, with an environment of its own, and pytest in it."""

import itertools
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MARK = "MUTANTS_RUN"
DATA_LIMIT_BYTES = 4 << 30
"""No process of the tests may have more: a mutant that never stops to allocate would take the whole machine."""
FAST = "not (integration or e2e or faults or front_door or many_nodes)"
_modified_s = itertools.count(int(time.time()))


def _end_all(mark: str) -> None:
    """Kill what a run of pytest left behind: each process that inherited its mark."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            continue


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A clone; its `.venv` is its own, so that tests, child processes and console scripts import its sources."""

    root: Path

    def make(self, tree: Path, revision: str) -> None:
        """Clone, or clear what an interrupted run left; set up the environment that this revision locks."""
        if not self.root.exists():
            subprocess.run(["git", "clone", "-q", "--no-checkout", str(tree), str(self.root)], check=True)
        checkout = ["git", "checkout", "-q", "--force", "--detach", revision]
        subprocess.run(checkout, cwd=self.root, check=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        subprocess.run(["make", "-s", ".venv/.ready"], cwd=self.root, check=True, env=environment)

    def write(self, path: str, source: str) -> None:
        """Change a module. Python knows by its time, in whole seconds, and its size that what it compiled is old."""
        (self.root / path).write_text(source)
        moment_s = next(_modified_s)
        os.utime(self.root / path, (moment_s, moment_s))

    @contextmanager
    def changed(self, path: str, source: str) -> Iterator[None]:
        """The module has this source, for a while."""
        former = (self.root / path).read_text()
        self.write(path, source)
        try:
            yield
        finally:
            self.write(path, former)

    def ended(self, folders: Sequence[str], limit_s: float | None = None) -> str:
        """How the fast tests of these folders end: `passed`, `failed` at the first that fails, or `timed out`."""
        mark = uuid.uuid4().hex
        with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as scratch:
            Path(scratch).chmod(0o1777)  # As /tmp: some tests start servers as a user of their own.
            kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
            limited = ["prlimit", f"--data={DATA_LIMIT_BYTES}", str(self.root / ".venv" / "bin" / "pytest")]
            running = subprocess.Popen(
                [*limited, "-q", "-x", "-p", "no:cacheprovider", "--force-reruns", "0", "-m", FAST, *folders],
                cwd=self.root,
                env={**kept, "TMPDIR": scratch, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                return "failed" if running.wait(limit_s) else "passed"
            except subprocess.TimeoutExpired:
                return "timed out"
            finally:
                _end_all(mark)
                running.wait()
