"""A sweep of a server that we did not launch: a simulated engine that the test started, with an API key."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.running_engine import MODEL, RunningEngine, StartEngine, engines
from tokenpeak.errors import NodeError, SpecError
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.sweep.trial.endpoint import look_at

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
KEY = "a-key-that-nobody-guesses"
WORKLOADS = [
    {
        "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 8},
        "levels": [{"concurrency": 4, "requests": 16}, {"rate_per_s": 30, "requests": 16}],
    }
]
SEARCH = {
    "max_rate_under": {"ttft_p95_ms": 2000},
    "budget_s": 20,
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where `tokenpeak` works in this test: a home without any inventory, and the server that is there already."""

    root: Path
    engine: RunningEngine

    def sweep(self, *arguments: str, spec: dict[str, Any]) -> "subprocess.Popen[str]":
        """`tokenpeak sweep` of a spec, under way."""
        folder = self.root / "analysis" / "sweeps"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "there.yml").write_text(yaml.safe_dump(spec))
        variables = {"TOKENPEAK_HOME": str(self.root), "TOKENPEAK_STATE": str(self.root / "state"), "THE_KEY": KEY}
        return subprocess.Popen(
            [TOKENPEAK, "sweep", *(arguments or ("--sweep", "there")), "--no-report"],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def spec(self, **more: Any) -> dict[str, Any]:
        """A spec of two replicates on the server."""
        endpoint = {"url": f"{self.engine.url}/v1", "model": MODEL, "api_key_env": "THE_KEY", "simulated": True}
        return {"endpoint": endpoint, "workloads": WORKLOADS, "search": {"replicates": 2}, **more}

    def archive(self) -> Path:
        """The newest archive."""
        return max((self.root / "results").glob("*/sweep.json")).parent


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartEngine]:
    yield from engines(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, start: StartEngine) -> Place:
    return Place(root=tmp_path_factory.mktemp("place"), engine=start("--api-key", KEY, speed="4").wait_ready())


@pytest.fixture(scope="module")
def swept(place: Place) -> tuple[Place, str, int, list[dict[str, Any]]]:
    """A whole sweep, a search for the highest rate at its end: what it said, its exit status and its trials."""
    searching = [{**WORKLOADS[0], "levels": [*WORKLOADS[0]["levels"], SEARCH]}]
    process = place.sweep(spec=place.spec(workloads=searching))
    said, _ = process.communicate(timeout=180)
    trials = [json.loads(path.read_text()) for path in sorted((place.archive() / "trials").glob("*.json"))]
    return place, said, process.returncode, trials


Swept = tuple[Place, str, int, list[dict[str, Any]]]


@pytest.mark.integration
def test_server_is_measured_without_an_inventory(swept: Swept) -> None:
    """A trial per replicate and a run per level, with verdicts, and no word of a command that would launch it."""
    _, said, status, trials = swept
    runs = [(run["level_label"], run["verdict"]["status"]) for trial in trials for run in trial["runs"]]

    assert 0 == status, said
    assert ["ok", "ok"] == [trial["status"] for trial in trials]
    assert 2 * ["concurrency=4", "rate=30/s", "max_rate"] == [label for label, _ in runs]
    assert {"valid", "invalid"} >= {verdict for _, verdict in runs}
    assert "vllm serve" not in said


@pytest.mark.integration
def test_key_is_nowhere_in_what_is_kept(swept: Swept) -> None:
    """Neither the archive nor the state folder holds the API key."""
    place, *_ = swept
    leaked = [path for path in place.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]

    assert [] == leaked


@pytest.mark.e2e
def test_interrupted_sweep_leaves_the_server_and_goes_on(place: Place) -> None:
    """A signal ends the client at once, the server still serves, and --resume makes the trial that is missing."""
    slow = [{**WORKLOADS[0], "levels": [{"rate_per_s": 5, "duration_s": 3, "requests": None}]}]
    process = place.sweep(spec=place.spec(workloads=slow, search={"replicates": 1}))
    assert process.stdout is not None
    next(line for line in process.stdout if line.rstrip().endswith(" load"))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    again = place.sweep("--resume", place.archive().name, spec=place.spec())
    more, _ = again.communicate(timeout=60)
    trials = [json.loads(path.read_text()) for path in sorted((place.archive() / "trials").glob("*.json"))]

    assert 130 == process.returncode, said
    assert 0 == again.returncode, more
    assert ["interrupted", "ok"] == [trial["status"] for trial in trials]
    assert place.engine.process.poll() is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("axes", {"max_num_seqs": [8, 64]}),
        ("fixed", {"name": "fixed", "flags": {"max_num_seqs": 8}}),
        ("extra_configs", [{"name": "more", "flags": {"max_num_seqs": 8}}]),
        ("model", {"name": MODEL}),
        ("max_downtime", "1h"),
    ],
)
def test_endpoint_refuses_what_only_a_launched_engine_has(key: str, value: object) -> None:
    """The key that cannot go with it is named."""
    spec = {"endpoint": {"url": "http://10.0.0.5:8000", "model": "m"}, "workloads": WORKLOADS, key: value}

    with pytest.raises(SpecError, match=f"{key} cannot go with endpoint"):
        parse_spec(spec, Path("there.yml"))


@pytest.mark.parametrize(
    ("endpoint", "complaint"),
    [
        ({"url": "10.0.0.5:8000"}, "is not the URL of a server"),
        ({"url": "http://me:secret@10.0.0.5"}, "api_key_env"),
        ({"headers": {"X-Api-Key": "abc"}}, "looks like a secret"),
        ({"modle": "m"}, "Did you mean model"),
    ],
)
def test_endpoint_that_makes_no_sense_is_refused(endpoint: dict[str, object], complaint: str) -> None:
    """Before anything is asked of it, and before a secret gets into an archive."""
    spec = {"endpoint": {"url": "http://10.0.0.5:8000", "model": "m", **endpoint}, "workloads": WORKLOADS}

    with pytest.raises(SpecError, match=complaint):
        parse_spec(spec, Path("there.yml"))


@pytest.mark.parametrize(
    ("given", "variables", "complaint"),
    [
        ({"model": "llama"}, {"THE_KEY": KEY}, "does not serve 'llama'"),
        ({}, {"THE_KEY": "wrong"}, "wants another API key"),
        ({"url": "http://127.0.0.1:9"}, {"THE_KEY": KEY}, "does not answer"),
    ],
)
def test_server_that_cannot_be_measured_is_named_beforehand(
    place: Place, given: dict[str, str], variables: dict[str, str], complaint: str
) -> None:
    """Another model, a wrong key, or nobody there: nothing is measured."""
    endpoint = EndpointSpec.model_validate({**place.spec()["endpoint"], **given})

    with pytest.raises(NodeError, match=complaint):
        look_at(endpoint, variables)
