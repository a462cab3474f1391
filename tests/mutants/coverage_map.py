"""Which tests run which lines, child processes too: coverage.py, with the test as context, once for a revision."""

import ast
import gzip
import json
import shutil
import sqlite3
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.judged import Copy
from tests.mutants.recorder import CONTEXT

CONFIGURATION = """[run]
data_file = {data}
parallel = true
context = ${{{context}-}}
include =
    {root}/analysis/tokenpeak/*
    */*.pyz/tokenpeak/*
patch = _exit, execv, fork
sigterm = true
disable_warnings = no-data-collected, module-not-imported, no-sysmon
"""
START = """import os; os.environ["COVERAGE_PROCESS_START"] = {configuration!r}; import coverage; \
coverage.process_startup(); del os.environ["COVERAGE_PROCESS_START"]
"""
"""A line of a `.pth` file, which each Python of the environment runs when it starts, `python -I` too."""


Outcomes = dict[str, tuple[str, float, list[str]]]
"""Of each test: what it came to, the seconds that it took, and the fixtures that it shares with others."""


@dataclass(frozen=True, kw_only=True)
class CoverageMap:
    """Seconds of each test that passed, and for each module the lines that tests and shared fixtures run, as bits.

    A fixture that several tests share is made by whichever comes first: its lines are those of all that use it.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, int]]
    users: dict[str, list[str]] = field(default_factory=dict)
    """The tests of each shared fixture."""

    def running(self, path: str, lines: set[int]) -> set[str]:
        """The tests that run one of these lines."""
        wanted = sum(1 << line for line in lines)
        contexts = [context for context, ran in self.lines.get(path, {}).items() if ran & wanted]
        tests = {test for context in contexts for test in self.users.get(context, [context])}
        return {test for test in tests if test in self.seconds}

    def write(self, path: Path) -> None:
        """Write it as compressed JSON: lines as hexadecimal numbers, whose bit n is line n."""
        lines = {module: {test: f"{ran:x}" for test, ran in tests.items()} for module, tests in self.lines.items()}
        with gzip.open(path, "wt") as file:
            json.dump({"seconds": self.seconds, "lines": lines, "users": self.users}, file)


def read_map(path: Path) -> CoverageMap:
    """The map that `write` wrote."""
    with gzip.open(path, "rt") as file:
        read = json.load(file)
    lines = {module: {test: int(ran, 16) for test, ran in tests.items()} for module, tests in read["lines"].items()}
    return CoverageMap(seconds=read["seconds"], lines=lines, users=read["users"])


def _union(folder: Path, root: Path) -> dict[str, dict[str, int]]:
    """All data files together. A module is known by what follows its package: in the checkout, or in a node script."""
    union: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    query = """select path, context, numbits from line_bits
        join file on file.id = file_id join context on context.id = context_id"""
    for data in sorted(folder.glob("data.*")):
        connection = sqlite3.connect(data)
        try:
            rows = connection.execute(query).fetchall()
        except sqlite3.DatabaseError:
            continue  # Its process was killed while it wrote.
        finally:
            connection.close()
        for path, test, bits in rows:
            module = "analysis/tokenpeak/" + path.rpartition("/tokenpeak/")[2]
            if test and (root / module).exists():
                union[module][test] |= int.from_bytes(bits, "little")
    return {module: dict(tests) for module, tests in union.items()}


def _failed(found: Outcomes) -> list[str]:
    return sorted(test for test, (outcome, _, _) in found.items() if outcome == "failed")


def collect(copy: Copy, selection: list[str], folder: Path, workers: int) -> CoverageMap:
    """Run the suite under coverage, and what fails again without it; what fails twice or is skipped judges nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o1777)  # Some tests start processes as a user of their own.
    configuration, outcomes = folder / "coveragerc", folder / "outcomes.json"
    configuration.write_text(CONFIGURATION.format(data=folder / "data", context=CONTEXT, root=copy.root))
    import coverage

    installed = copy.packages / "coverage"
    if not installed.exists():
        shutil.copytree(Path(coverage.__file__).parent, installed)
    start = copy.packages / "mutants_coverage.pth"
    start.write_text(START.format(configuration=str(configuration)))
    try:
        arguments = [*selection, "-n", str(workers), "--dist", "loadfile", "--durations=25"]
        status = copy.pytest(arguments, log=folder / "pytest.log", MUTANTS_OUTCOMES=str(outcomes))
    finally:
        start.unlink()
    if status not in (0, 1):
        sys.exit(f"The suite did not run to its end: see {folder / 'pytest.log'}.")
    found = json.loads(outcomes.read_text())
    if failed := _failed(found):
        copy.run_only(failed, log=folder / "again.log", MUTANTS_OUTCOMES=str(outcomes))
        found |= json.loads(outcomes.read_text())
    print(f"{len(found)} tests; left out, for they fail: {' '.join(_failed(found)) or 'none'}", flush=True)
    seconds = {test: took_s for test, (outcome, took_s, _) in found.items() if outcome == "passed"}
    users: dict[str, list[str]] = defaultdict(list)
    for test, (_, _, fixtures) in found.items():
        for fixture in fixtures:
            users[fixture].append(test)
    return CoverageMap(seconds=seconds, lines=_union(folder, copy.root), users=users)


def _statements(tree: ast.Module) -> dict[int, set[int]]:
    """For each line, the lines of its innermost statement; of one with a body, those of its head."""
    found: dict[int, set[int]] = {}
    for node in ast.walk(tree):  # The outer before the inner.
        if isinstance(node, ast.stmt | ast.excepthandler):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            head_ends = max(node.lineno, _first_line(body[0]) - 1) if body else node.end_lineno
            head = set(range(first, (head_ends or first) + 1))
            found.update(dict.fromkeys(range(first, (node.end_lineno or first) + 1), head))
    return found


def _first_line(node: ast.AST) -> int:
    return int(node.pattern.lineno if isinstance(node, ast.match_case) else getattr(node, "lineno", 1))


def _in_functions(tree: ast.Module) -> set[int]:
    """The lines that run when a function is called, not when the module is imported."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    }


def _importers(root: Path, path: str) -> list[str]:
    """The modules whose text names this one in an import."""
    package, _, name = ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__").rpartition(".")
    found = []
    for other in sorted((root / "analysis" / "tokenpeak").rglob("*.py")):
        for line in other.read_text().splitlines():
            words = line.replace(",", " ").replace("(", " ").split()
            if words[:1] == ["from"] and (words[1] == f"{package}.{name}" or (words[1] == package and name in words)):
                found.append(other.relative_to(root).as_posix())
    return found


def noticing(found: CoverageMap, root: Path, path: str, lines: set[int], cap_s: float) -> tuple[list[str], bool]:
    """The tests that may notice a change of these lines, in their order; whether the cap left out any that run them.

    A line of a function has the tests that run its statement. A line that runs at import is run by all tests, so it has
    those that run a function of its module, then of what imports that. Behind each group come the other tests of the
    same files: what one test sets up for its file, or starts, counts as this one's alone. Files are in the order of
    their tests' mean duration, each in one piece, for what is set up for a file is so set up once.
    """
    tree = ast.parse((root / path).read_text())
    statements, called = _statements(tree), _in_functions(tree)
    whole = set().union(*(statements.get(line, {line}) for line in lines))
    groups = [found.running(path, whole)]
    if not whole & called:
        groups = [found.running(path, called), set()]
        for other in _importers(root, path):
            groups[1] |= found.running(other, _in_functions(ast.parse((root / other).read_text())))
    order: dict[str, None] = {}
    for group in groups:
        order.update(dict.fromkeys(_by_cost(found, group)))
        files = {test.split("::")[0] for test in group}
        order.update(dict.fromkeys(_by_cost(found, {test for test in found.seconds if test.split("::")[0] in files})))
    chosen: list[str] = []
    total_s = 0.0
    for test in order:
        if not chosen or total_s + found.seconds[test] <= cap_s:
            chosen.append(test)
            total_s += found.seconds[test]
    return chosen, not set().union(*groups) <= set(chosen)


def _by_cost(found: CoverageMap, tests: set[str]) -> list[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: (found.seconds[test], test)):
        files[test.split("::")[0]].append(test)
    mean = {file: sum(found.seconds[test] for test in own) / len(own) for file, own in files.items()}
    return [test for file in sorted(files, key=lambda file: (mean[file], file)) for test in files[file]]
