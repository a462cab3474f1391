"""A copy of what is judged, at one revision, with an environment of its own, and pytest in it."""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MARK = "MUTANTS_RUN"
DATA_LIMIT_BYTES = 4 << 30
"""No process of the tests may have more: a mutant that never stops to allocate would take the whole machine."""
_modified_s = itertools.count(int(time.time()))


class TimedOutError(Exception):
    """Tests took longer than they had."""


def suite(root: Path) -> list[str]:
    """The arguments with which `make test` there selects its tests."""
    found = re.search(r'^test:.*\n\t.*pytest (-m "[^"]*")', (root / "Makefile").read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"{root}/Makefile: no selection of `make test` was found.")
    return shlex.split(found[1])


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

    @property
    def packages(self) -> Path:
        """Where its environment's packages lie."""
        return next((self.root / ".venv" / "lib").glob("python*/site-packages"))

    @property
    def revision(self) -> str:
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.root, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def make(self, tree: Path, revision: str) -> None:
        """Clone, or clear what an interrupted run left; set up the environment that this revision locks."""
        if not self.root.exists():
            subprocess.run(["git", "clone", "-q", "--no-checkout", str(tree), str(self.root)], check=True)
        self._git("checkout", "-q", "--force", "--detach", revision)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        subprocess.run(["make", "-s", ".venv/.ready"], cwd=self.root, check=True, env=environment)
        shutil.copy(Path(__file__).with_name("recorder.py"), self.packages / "mutants_recorder.py")

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

    def pytest(self, arguments: list[str], *, log: Path, limit_s: float | None = None, **variables: str) -> int:
        """Run pytest, and kill whatever it started at its end; its exit status."""
        mark = uuid.uuid4().hex
        with (
            tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as scratch,
            log.open("wb") as said,
        ):
            Path(scratch).chmod(0o1777)  # As /tmp: some tests start servers as a user of their own.
            kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
            limited = ["prlimit", f"--data={DATA_LIMIT_BYTES}", str(self.root / ".venv" / "bin" / "pytest")]
            running = subprocess.Popen(
                [*limited, "-q", "-p", "mutants_recorder", "-p", "no:cacheprovider", "--force-reruns", "0", *arguments],
                cwd=self.root,
                env={**kept, "TMPDIR": scratch, MARK: mark, **variables},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return running.wait(limit_s)
            except subprocess.TimeoutExpired:
                raise TimedOutError from None
            finally:
                _end_all(mark)
                running.wait()

    def run_only(self, tests: list[str], *words: str, log: Path, limit_s: float | None = None, **variables: str) -> int:
        """Run these tests in this order; pytest's exit status."""
        files = dict.fromkeys(test.split("::")[0] for test in tests)
        with tempfile.NamedTemporaryFile("w", prefix="mutant-", suffix=".json") as named:
            json.dump(tests, named)
            named.flush()
            return self.pytest([*words, *files], log=log, limit_s=limit_s, MUTANTS_TESTS=named.name, **variables)

    def first_failure(self, tests: list[str], *, log: Path, limit_s: float) -> str | None:
        """The first of these tests, in this order, that fails; or the file whose tests cannot be collected."""
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            failed = Path(folder) / "failed"
            status = self.run_only(tests, "-x", log=log, limit_s=limit_s, MUTANTS_FAILED=str(failed))
            if status == 0:
                return None
            return failed.read_text() if failed.exists() else tests[0].split("::")[0]
