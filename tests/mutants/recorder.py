"""A pytest plugin of the judged copy's own environment: which test runs, how long, and which failed first.

It is copied there as `mutants_recorder` and imports nothing of TokenPeak. In the environment of pytest,
`MUTANTS_OUTCOMES` names the file for what each test took and came to, `MUTANTS_TESTS` a file with the only tests to
run, in this order, and `MUTANTS_FAILED` the file for the first that failed.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

CONTEXT = "MUTANTS_CONTEXT"
"""The test that runs, for the coverage of the processes that it starts: they inherit it."""
_seconds: dict[str, float] = defaultdict(float)
_outcomes: dict[str, str] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the named tests, in their order."""
    if "MUTANTS_TESTS" in os.environ:
        by_id = {item.nodeid: item for item in items}
        wanted = json.loads(Path(os.environ["MUTANTS_TESTS"]).read_text())
        items[:] = [by_id[name] for name in wanted if name in by_id]


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the lines that run from now on, here and in processes started from now on, as this test's."""
    os.environ[CONTEXT] = item.nodeid
    try:
        from coverage import Coverage
    except ImportError:
        current = None
    else:
        current = Coverage.current()
    if current:
        current.switch_context(item.nodeid)
    yield
    if current:
        current.switch_context("")
    os.environ.pop(CONTEXT, None)


def _note_failure(name: str) -> None:
    if "MUTANTS_FAILED" in os.environ and not Path(os.environ["MUTANTS_FAILED"]).exists():
        Path(os.environ["MUTANTS_FAILED"]).write_text(name)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be collected fails."""
    if report.failed:
        _note_failure(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what a test's set-up, call and tear-down took; the worst of the three is its outcome."""
    _seconds[report.nodeid] += report.duration
    if report.failed:
        _note_failure(report.nodeid)
    if _outcomes.get(report.nodeid, "passed") == "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what each test took and came to, where all workers of xdist report."""
    if "MUTANTS_OUTCOMES" in os.environ and not hasattr(session.config, "workerinput"):
        found = {name: [outcome, round(_seconds[name], 3)] for name, outcome in _outcomes.items()}
        Path(os.environ["MUTANTS_OUTCOMES"]).write_text(json.dumps(found))
