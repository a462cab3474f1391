"""A CI job gates on a served model: each ending of the command has the status that the page gives it."""

import json

import pytest
from tests.docs.reader import Reader
from tests.docs.sessions import servers
from tests.sim.running_engine import StartEngine

pytestmark = [pytest.mark.e2e]

PAGE = "how-to/ci-gate"


def test_walk(somebody: Reader, start_engine: StartEngine) -> None:
    """The page as it stands, against a server of the simulator's."""
    servers(somebody, start_engine)
    somebody.follow(PAGE)
    record = json.loads((somebody.folder / "run.json").read_text())
    [archive] = somebody.folder.glob("results/*/sweep.json")

    assert "valid" == record["verdict"]["status"]
    assert 200 == record["summary"]["requests_ok"]
    assert "completed" == json.loads((archive.parent / "end.json").read_text())["status"]
