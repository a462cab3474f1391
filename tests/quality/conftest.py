"""Simulated engines, sound and damaged, and the reference that the sound one recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sim.running_engine import MODEL, RunningEngine, StartEngine, engines

from tokenpeak.loadgen.target import Server
from tokenpeak.quality.measure import record_reference
from tokenpeak.records.quality import QualityReference

TOKENS = 12_000


@pytest.fixture(scope="module")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartEngine]:
    """Starts simulated engines that last as long as the module."""
    yield from engines(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def sound(start_engine: StartEngine) -> RunningEngine:
    """An engine without damage."""
    return start_engine().wait_ready()


@pytest.fixture(scope="module")
def reference(sound: RunningEngine) -> QualityReference:
    """What the sound engine answered."""
    return record_reference(Server(sound.url), MODEL, tokens=TOKENS)


@pytest.fixture(scope="module")
def reference_file(reference: QualityReference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, as `tokenpeak quality record` writes it."""
    path = tmp_path_factory.mktemp("reference") / "reference.json"
    path.write_text(reference.model_dump_json())
    return path
