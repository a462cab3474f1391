"""Hostile archives and imports by command: a sentence each, in bounded memory and time, and nothing outside.

`make e2e E2E=tests/archives/test_hostile.py` runs all of them and prints the highest figures; `make integration` runs
those of `QUICK`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from hostile import OUTSIDE, Case, cases

MEMORY_BYTES = 10**9
LIMIT_S = 30.0
"""Of processor time: other work on the machine is not the command's."""
PATIENCE_S = 150.0
"""For a command that waits for something that never comes."""
ALL = cases()
PIECES = 8
QUICK = (
    "packed-header-x", "packed-zeros", "packed-id-1", "packed-hard-link", "packed-manifest-lists",
    "folder-sweep-id-0", "folder-sweep-id-absolute", "folder-sweep-id-4", "folder-link-sweep", "folder-link-claims",
    "folder-pipe-trial", "folder-lists-sweep",
    "import-table-laughs", "import-table-id",
)  # fmt: skip

ONE_FILE = re.compile(r"folder-(?:trial-id-\d|\w+-trial|log-\w+|requests-[\w-]+)")
"""Cases in which one trial's file is damaged: the rest is shown, and what is not is said."""


SERVANT = f"""
import json, os, resource, signal, sys, time
import tokenpeak.cli.archive, tokenpeak.cli.site, tokenpeak.exchange.assemble, tokenpeak.report.site.build
from tokenpeak.cli import main
before = time.process_time()
print(json.dumps(before), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.alarm({PATIENCE_S:.0f})
        resource.setrlimit(resource.RLIMIT_CPU, ({2 * LIMIT_S:.0f}, {2 * LIMIT_S:.0f}))
        os.chdir(order["folder"])
        os.environ.update(order["environment"])
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(order["words"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(order["words"] + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.argv = ["tokenpeak", *order["argv"]]
        main()
        sys.exit(0)
    _, status, spent = os.wait4(pid, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), spent.ru_utime + spent.ru_stime, spent.ru_maxrss]), flush=True)
"""
"""The command line in a process for each command, forked from one that has imported it, which takes seconds. Those
seconds count for each command, and its memory holds what was imported."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended."""

    status: int
    words: str
    seconds: float
    memory_bytes: int


class CommandLine:
    """Runs commands one after another, each in a process of its own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVANT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        self.import_s: float = json.loads(self.process.stdout.readline())

    def ended(self, argv: list[str], folder: Path) -> Outcome:
        """How `tokenpeak` with these arguments ends; its memory is the peak of its resident set."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {
            "argv": argv,
            "folder": str(folder / "cwd"),
            "words": str(folder / "words"),
            "environment": {
                "TOKENPEAK_STATE": str(self.state),
                "HOME": str(folder / "home"),
                "TMPDIR": str(folder / "tmp"),
            },
        }
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        status, seconds, memory_kib = json.loads(self.process.stdout.readline())
        words = (folder / "words").read_bytes()[: 10**6].decode(errors="replace")
        return Outcome(status=status, words=words, seconds=self.import_s + seconds, memory_bytes=memory_kib * 1024)

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def tree(folder: Path) -> dict[str, str]:
    """Every file, folder and link below `folder` with what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        kind = oct(facts.st_mode)
        if path.is_symlink():
            kind += f" {path.readlink()}"
        elif path.is_file():
            kind += f" {facts.st_size}"
            if facts.st_size < 1 << 20:
                kind += f" {sha256(path.read_bytes()).hexdigest()}"
        found[path.relative_to(folder).as_posix()] = kind
    return found


def attempt(case: Case, folder: Path, commands: CommandLine) -> list[str]:
    """What is wrong with how the case ended; empty when nothing is."""
    for name in ("in", "cwd", "home", "tmp", OUTSIDE, "results"):
        (folder / name).mkdir(parents=True)
    (folder / OUTSIDE / "secret").write_text('{"completed": 1}\ncanary-7c1f\n')
    given = case.make(folder / "in")
    before = {name: tree(folder / name) for name in ("in", "cwd", OUTSIDE)}
    if case.command == "report":
        # Without --texts fewer of its files are read.
        argv = ["report", str(given), "--texts", "--output", str(folder / "results" / "site")]
    else:
        argv = ["import", str(given), "--output", str(folder / "results" / "archives")]
    outcome = commands.ended(argv, folder)
    after = {name: tree(folder / name) for name in before}
    known = {*before, "home", "tmp", "results", "words", "words.out"}
    sys.stdout.write(
        f"{case.name}: status {outcome.status}, {outcome.seconds:.1f} s, {outcome.memory_bytes / 1e6:.0f} MB: "
        f"{outcome.words.strip()[:300]}\n"
    )
    wrong = []
    if outcome.status not in (0, 1, 2):
        wrong.append(f"ended with {outcome.status}")
    if "Traceback" in outcome.words or (outcome.status and not re.match(r"tokenpeak: |Usage: ", outcome.words)):
        wrong.append(f"said {outcome.words[-800:]!r}")
    if outcome.status and len(outcome.words) > 1500:
        wrong.append(f"said {len(outcome.words)} characters")
    said = (folder / "words.out").read_bytes()[: 10**6].decode(errors="replace")
    if outcome.status == 0 and ONE_FILE.fullmatch(case.name) and not re.search(r"^skipped .+: .", said, re.MULTILINE):
        wrong.append(f"did not say what was skipped, but {said[-300:]!r}")
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", outcome.words):
        wrong.append(f"sent control characters to the terminal: {outcome.words[:300]!r}")
    if outcome.seconds > LIMIT_S:
        wrong.append(f"took {outcome.seconds:.0f} s of processor time")
    if outcome.memory_bytes > MEMORY_BYTES:
        wrong.append(f"took {outcome.memory_bytes / 1e6:.0f} MB")
    if before != after or {path.name for path in folder.iterdir()} != known:
        wrong.append("changed something outside its output folder")
    left = {path.name for path in (folder / "results").iterdir()}
    if not left <= {"site", "archives", ".site.made.json"}:
        wrong.append(f"left {left}")
    made = [
        path for path in (folder / "results").rglob("*") if path.is_file() and path.suffix in (".json", ".html", ".yml")
    ]
    if any("canary-7c1f" in path.read_text(errors="replace") for path in made):
        wrong.append("showed a file from outside")
    return [f"{case.name}: {what}" for what in wrong]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line, with a state folder that all commands share."""
    found = CommandLine(tmp_path_factory.mktemp("state"))
    yield found
    found.close()


@pytest.mark.integration
@pytest.mark.parametrize("name", QUICK)
def test_hostile_input_ends_in_a_sentence(name: str, commands: CommandLine, tmp_path: Path) -> None:
    """Neither memory nor time nor a file outside the output folder is to be had by what is given to be read."""
    assert [] == attempt(next(case for case in ALL if case.name == name), tmp_path / "case", commands)


@pytest.mark.e2e
@pytest.mark.parametrize("piece", range(PIECES))
def test_two_hundred_hostile_inputs(piece: int, commands: CommandLine, tmp_path: Path) -> None:
    """All of them, in pieces."""
    wrong = []
    for case in ALL[piece::PIECES]:
        wrong += attempt(case, tmp_path / case.name, commands)
        shutil.rmtree(tmp_path / case.name)

    assert len(ALL) >= 200
    assert [] == wrong
