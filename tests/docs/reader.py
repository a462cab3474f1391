"""A reader of the documentation: somebody with the wheel and an empty home who works through a page as it stands."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.front_door.documented import DocBlock, doc_blocks

from built_wheel import build_wheel, unpack_wheel

LINE_LIMIT_S = 900.0
TRACEBACK = "Traceback (most recent call last)"
ROOT_SSH = Path("~root").expanduser() / ".ssh"
HIDDEN = ("TOKENPEAK", "ANSIBLE", "PYTEST", "VIRTUAL_ENV", "MAKE", "MFLAGS", "SSH_", "XDG_", "PG", "DATABASE_URL")


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A line that was typed, and what came of it."""

    line: str
    status: int
    said: str
    seconds: float


@dataclass
class Reader:
    """A place with an empty home. `stand_for` are texts of the pages and what stands for them here."""

    place: Path
    wheel: Path
    stand_for: dict[str, str] = field(default_factory=dict)
    typed: list[Typed] = field(default_factory=list)
    on_node: Callable[[str], str] | None = None
    """Types a line on each GPU node; without it lines of nodes are not typed."""
    folder: Path = field(init=False)
    """The current folder."""

    def __post_init__(self) -> None:
        self.folder = self.place / "work"
        self.folder.mkdir()
        self.home.mkdir()

    @property
    def home(self) -> Path:
        """The home."""
        return self.place / "home"

    @property
    def environment(self) -> dict[str, str]:
        """A login's environment: nothing of the test's, and the wheel on the path."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        path = f"{self.wheel / 'bin'}:{kept['PATH']}"
        return {**kept, "HOME": str(self.home), "PATH": path, "PYTHONPATH": str(self.wheel / "site")}

    def here(self, text: str) -> str:
        """A text of the page as it is meant here."""
        for written, meant in self.stand_for.items():
            text = text.replace(written, meant)
        return text

    def know(self, key: Path) -> None:
        """Give the reader a key, which nodes of the rig let in."""
        (self.home / ".ssh").mkdir(mode=0o700)
        for suffix in ("", ".pub"):
            shutil.copy(f"{key}{suffix}", self.home / ".ssh" / f"id_ed25519{suffix}")

    def type(self, line: str, status: int = 0, limit_s: float = LINE_LIMIT_S) -> Typed:
        """Type a line of a page; it must end with this status, and never with a traceback."""
        began = time.monotonic()
        where = self.place / "folder"
        script = f"cd {shlex.quote(str(self.folder))} && {self.here(line)}; status=$?; pwd > {where}; exit $status"
        argv = ["bash", "-c", script]
        if (self.home / ".ssh").is_dir():
            # ssh reads root's files by the password file, wherever HOME is.
            ROOT_SSH.mkdir(mode=0o700, exist_ok=True)
            mounted = f"mount --bind {shlex.quote(str(self.home / '.ssh'))} {ROOT_SSH}"
            argv = ["unshare", "--mount", "bash", "-c", f"{mounted} && exec bash -c {shlex.quote(script)}"]
        done = subprocess.run(
            argv,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )
        self.folder = Path(where.read_text().strip())
        self.typed.append(Typed(line=line, status=done.returncode, said=done.stdout, seconds=time.monotonic() - began))
        print(f"$ {line}  # {done.returncode}, {self.typed[-1].seconds:.1f} s\n{done.stdout[-1500:]}", flush=True)
        assert done.returncode == status, f"{line}\nended with {done.returncode}:\n{done.stdout[-4000:]}"
        assert TRACEBACK not in done.stdout, f"{line}\n{done.stdout[-4000:]}"
        return self.typed[-1]

    def follow(self, page: str, before: Callable[[str], None] = lambda _: None) -> None:
        """Work through a page: write its files, type its lines; `before` is called with each line first.

        Lines that the page marks as typed where nodes are, and those of nodes, are left out where there are none.
        """
        for block in doc_blocks(page):
            if block.file is not None:
                self._write(block)
            elif block.language == "python":
                self._run_python(block.text)
            elif block.language == "sh" and block.rule == "node" and self.on_node is not None:
                for line in block.lines:
                    print(self.on_node(line))
            elif block.language == "sh" and (not block.rule or (block.rule == "walk" and self.on_node is not None)):
                for line in block.lines:
                    before(line)
                    self.type(line, block.status)

    def _write(self, block: DocBlock) -> None:
        """Write a block's file; a part is put over what is there."""
        assert block.file is not None, "a block with a file's name"
        path = self.folder / block.file
        text = self.here(block.text)
        if block.rule in ("variables", "sweep-part"):
            given: dict[str, Any] = yaml.safe_load(text)
            written = {**yaml.safe_load(path.read_text()), **given}
            if "tokenpeak_engines" in given:
                del written["tokenpeak_engine_command"], written["tokenpeak_engine_version"]
            text = yaml.safe_dump(written, sort_keys=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _run_python(self, text: str) -> None:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", self.here(text)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        print(done.stdout)
        self.typed.append(Typed(line="python", status=0, said=done.stdout, seconds=time.monotonic() - began))

    def said(self, line: str) -> str:
        """What the last line that begins so has printed."""
        return next(each.said for each in reversed(self.typed) if each.line.startswith(line))

    def shrink(self, sweep: str, axes: dict[str, Sequence[object]], **flags: object) -> None:
        """Make a sweep of the working folder one of two short launches: a walk is about the way, not about figures."""
        path = self.folder / "sweeps" / f"{sweep}.yml"
        written = yaml.safe_load(path.read_text())
        fixed = written["fixed"]
        small = {
            "axes": {name: list(values) for name, values in axes.items()},
            "fixed": {**fixed, "flags": {**fixed["flags"], **flags}},
            "workloads": [
                {
                    "workload": {"kind": "synthetic", "name": "short", "input_tokens": 32, "output_tokens": 16},
                    "levels": [{"concurrency": 4, "requests": 40, "warmup_requests": 4}],
                }
            ],
            "search": {"anchor_every": None, "baseline": [], "finalists": 0},
            "deadlines": {"engine_ready_s": 120, "run_s": 120, "engine_stop_s": 10, "lease_s": 20},
        }
        path.write_text(yaml.safe_dump(small, sort_keys=False))


@contextmanager
def reader() -> Iterator[Reader]:
    """A reader for as long as the block runs; simulated servers that were left running are ended."""
    place = Path(tempfile.mkdtemp(prefix="tokenpeak-reader-"))
    # Postgres's own user enters where root runs the tests.
    place.chmod(0o755)
    made = Reader(place=place, wheel=unpack_wheel(build_wheel(place / "dist"), place / "wheel"))
    try:
        yield made
    finally:
        made.type("tokenpeak demo --end")
        shutil.rmtree(place, ignore_errors=True)
