"""A pytest plugin of the judged copy's own environment: which test or shared fixture runs, how long, what failed first.

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
FIXTURES = "mutants_fixtures"
"""Name of the property of a test that lists the fixtures which it shares with others."""
_seconds: dict[str, float] = defaultdict(float)
_outcomes: dict[str, str] = {}
_fixtures: dict[str, list[str]] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the named tests, in their order."""
    if "MUTANTS_TESTS" in os.environ:
        by_id = {item.nodeid: item for item in items}
        wanted = json.loads(Path(os.environ["MUTANTS_TESTS"]).read_text())
        items[:] = [by_id[name] for name in wanted if name in by_id]


def _count_as(context: str) -> None:
    """Count the lines that run from now on, here and in processes started from now on, as those of this context."""
    if context:
        os.environ[CONTEXT] = context
    else:
        os.environ.pop(CONTEXT, None)
    try:
        from coverage import Coverage
    except ImportError:
        return
    if current := Coverage.current():
        current.switch_context(context)


def _shared(definition: pytest.FixtureDef[object]) -> str | None:
    """The name of a fixture that is made for several tests, whichever of them comes first; None of any other."""
    return None if definition.scope == "function" else f"{definition.baseid}::{definition.argname}"


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count lines as the test's; note which fixtures it shares, so that theirs count as its own too."""
    if isinstance(item, pytest.Function):
        definitions = [each[-1] for each in item._fixtureinfo.name2fixturedefs.values() if each]
        item.user_properties.append((FIXTURES, sorted(filter(None, map(_shared, definitions)))))
    _count_as(item.nodeid)
    yield
    _count_as("")


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """Count what makes a shared fixture as the fixture's: the test that happens to come first is not alone with it."""
    before, name = os.environ.get(CONTEXT, ""), _shared(fixturedef)
    if name:
        _count_as(name)
    yield
    if name:
        _count_as(before)


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
    _fixtures[report.nodeid] = dict(report.user_properties).get(FIXTURES, [])
    if report.failed:
        _note_failure(report.nodeid)
    if _outcomes.get(report.nodeid, "passed") == "passed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what each test took and came to, where all workers of xdist report."""
    if "MUTANTS_OUTCOMES" in os.environ and not hasattr(session.config, "workerinput"):
        found = {name: [outcome, round(_seconds[name], 3), _fixtures[name]] for name, outcome in _outcomes.items()}
        Path(os.environ["MUTANTS_OUTCOMES"]).write_text(json.dumps(found))
