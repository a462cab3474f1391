"""Somebody hands over an interrupted sweep whose endpoint is theirs: the operator's key file, variables and prompts.

`sweep --resume` goes on at a server only if the operator's own spec names it, word for word.
"""

from pathlib import Path

import pytest
import yaml

from archive_factory import PROVENANCE, START
from tokenpeak.errors import SpecError
from tokenpeak.records import SweepRecord
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive
from tokenpeak.sweep import endpoint
from tokenpeak.sweep.controller import resume_sweep
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.progress import ProgressDisplay

OWN = {"url": "http://10.0.0.5:8000/v1", "model": "m", "api_key_env": "THE_KEY"}
SPEC = """
endpoint: {url: "http://10.0.0.5:8000/v1", model: m, api_key_env: THE_KEY}
workloads:
- workload: {name: short, kind: synthetic, input_tokens: 8, output_tokens: 8}
  levels: [{concurrency: 4, requests: 16}]
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    """The operator's own."""
    path = tmp_path / "there.yml"
    path.write_text(SPEC)
    return str(path)


def test_own_server(spec: str) -> None:
    """What the operator's spec names may be asked again."""
    endpoint.require_own(EndpointSpec(**OWN), spec, "ID")


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://10.6.6.6:8000/v1"},
        {"api_key_env": None, "api_key_file": "/home/op/.ssh/id_ed25519"},
        {"headers": {"X-Key": "${CLOUD_KEY}"}},
        {"metrics_url": "http://10.6.6.6/metrics"},
        {"verify_tls": False},
    ],
)
def test_server_of_somebody_else(spec: str, change: dict[str, object]) -> None:
    """Another address, key, header or trust than the operator's own spec has is refused before anything is sent."""
    with pytest.raises(SpecError, match="not word for word the one of your own spec"):
        endpoint.require_own(EndpointSpec.model_validate({**OWN, **change}), spec, "ID")


def test_no_spec_of_ones_own() -> None:
    """A name that no spec has here vouches for nothing, and how to go on is said."""
    with pytest.raises(SpecError, match=r"only by a spec of your own\. No sweep called 'x-of-nobody'.*--sweep FILE"):
        endpoint.require_own(EndpointSpec(**OWN), "x-of-nobody", "ID")


def test_resumed_sweep_asks_for_it(tmp_path: Path, spec: str) -> None:
    """A sweep goes on nowhere before that: the archive names a server that nobody's spec here has."""
    stolen = {**OWN, "url": "http://10.6.6.6:8000/v1"}
    raw = {**yaml.safe_load(Path(spec).read_text()), "endpoint": stolen}
    record = SweepRecord(
        sweep_id="stolen",
        name="there",
        inventory="endpoint",
        started_at=START,
        simulated=False,
        spec=parse_spec(raw, Path("there.yml")).model_dump(mode="json"),
        nodes=(),
        plans=(),
        provenance=PROVENANCE,
    )
    Archive(tmp_path / "stolen").write_sweep(record)

    with pytest.raises(SpecError, match="not word for word the one of your own spec"):
        resume_sweep(
            "stolen",
            parallel=1,
            progress=ProgressDisplay(terminal=False),
            interrupt=Interrupt(),
            own_spec=spec,
            results=tmp_path,
        )
