"""Pages of the documentation worked through from top to bottom, by a user of the wheel."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.reader import Reader, reader
from tests.docs.sessions import HERE, SESSIONS, walk_file
from tests.sim.running_engine import StartEngine, engines

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def somebody() -> Iterator[Reader]:
    """A reader with nothing but the wheel."""
    with reader() as made:
        yield made


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """Starts simulated engines."""
    yield from engines(tmp_path)


@pytest.mark.parametrize("page", HERE)
def test_page_works_as_it_stands(page: str, somebody: Reader, start_engine: StartEngine) -> None:
    """Each line ends with the status that the page gives it, in order, in the folder that the page is in."""
    SESSIONS[page].prepare(somebody, start_engine)
    before = len(somebody.typed)
    somebody.follow(page)

    assert len(somebody.typed) > before


@pytest.mark.parametrize("page", [page for page, session in SESSIONS.items() if session.walk])
def test_other_pages_are_walked(page: str) -> None:
    """A page that is not worked through here is in the walk that the table names."""
    assert f'"{page}"' in walk_file(SESSIONS[page].walk).read_text()
