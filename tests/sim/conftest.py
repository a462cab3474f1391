"""Fixtures that start simulated engines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_engine import StartEngine, engines


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """Starts engines; keywords are environment variables less `TOKENPEAK_SIM_`, or whole names in capitals."""
    yield from engines(tmp_path)


@pytest.fixture(scope="module")
def start_shared_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartEngine]:
    """The same, for engines that all tests of a module ask."""
    yield from engines(tmp_path_factory.mktemp("engine"))
