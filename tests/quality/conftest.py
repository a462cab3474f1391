"""Simulated engines, sound and damaged, and the answers that the sound one recorded."""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.sim.running_engine import MODEL, RunningEngine, StartEngine, engines

from tokenpeak.loadgen.http.server import Server
from tokenpeak.quality.answers import floor_of
from tokenpeak.quality.measure import Measured, measure
from tokenpeak.quality.verdict import Reference
from tokenpeak.spec.quality import QualityJob

TOKENS = 12_000


@pytest.fixture(scope="module")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartEngine]:
    """Starts simulated engines that last as long as the module; none waits for the pace of its hardware."""
    for start in engines(tmp_path_factory.mktemp("engine")):
        yield partial(start, speed="20")


@pytest.fixture(scope="module")
def sound(start_engine: StartEngine) -> RunningEngine:
    """An engine without damage."""
    return start_engine().wait_ready()


@pytest.fixture(scope="module")
def recorded(sound: RunningEngine) -> Measured:
    """What the sound engine answered, in two passes."""
    return measure(Server(sound.url), MODEL, QualityJob(tokens=TOKENS, context=2048, passes=2))


@pytest.fixture(scope="module")
def reference(recorded: Measured) -> Reference:
    """The same as what others are compared with."""
    first, again = recorded.passes
    return Reference(answers=first, floor=floor_of(first, [again], ()))
