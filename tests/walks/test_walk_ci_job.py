"""A CI job gates on a served model: each ending of the command has the status that the page gives it."""

import json

import pytest
from tests.docs.reader import Reader
from tests.docs.sessions import servers
from tests.sim.running_engine import StartEngine

pytestmark = [pytest.mark.e2e]

PAGE = "how-to/ci-gate"
LOAD = "tokenpeak load http://127.0.0.1:8000 --concurrency 4 --requests 60 --slo ttft_p95_ms=400"


def test_walk(somebody: Reader, start_engine: StartEngine) -> None:
    """The page as it stands, against a server of the simulator's."""
    servers(somebody, start_engine)
    somebody.follow(PAGE)
    record = json.loads((somebody.folder / "run.json").read_text())
    [archive] = somebody.folder.glob("results/*/sweep.json")

    assert "valid" == record["verdict"]["status"]
    assert 200 == record["summary"]["requests_ok"]
    assert "completed" == json.loads((archive.parent / "end.json").read_text())["status"]


def test_every_ending_has_its_status(somebody: Reader, start_engine: StartEngine) -> None:
    """A server that got slower fails the gate, one that is gone is an error, a wrong option is neither."""
    servers(somebody, start_engine)
    slow = start_engine(
        "--served-model-name", "llama-8b", "--max-num-seqs", "1", "--max-model-len", "8192", gpu="A30"
    ).wait_ready()

    somebody.type(LOAD)
    somebody.type(LOAD.replace("http://127.0.0.1:8000", slow.url), status=3)
    somebody.type(LOAD.replace("8000", "1"), status=1)
    somebody.type(LOAD.replace("--slo", "--slow"), status=2)
