import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from load.broken_server import serving, stream
from tokenpeak.cli.load import load
from tokenpeak.load.calibrate import Calibration, beyond, calibrate, read_calibration
from tokenpeak.workload import ClosedLoad


def test_stands_alone(tmp_path: Path) -> None:
    """One command measures a server, prints a summary, and writes the record that a sweep would."""
    output = tmp_path / "run.json"
    with serving(lambda connection, _: connection.sendall(stream())) as url:
        arguments = [url, "--model", "m", "--concurrency", "2", "--requests", "6", "--output", str(output)]
        result = CliRunner().invoke(load, arguments)

    record = json.loads(output.read_text())
    assert 0 == result.exit_code
    assert "6 of 6 requests ended well" in result.output
    assert {"mean", "std", "p25", "p50", "p75", "p90", "p95", "p99", "n"} == set(record["summary"]["ttft_s"])
    assert {"summary", "client", "verdict"} <= set(record)


def test_unknown_limit_is_an_error() -> None:
    """A limit that no SLO knows is refused before anything is sent."""
    arguments = ["http://127.0.0.1:9", "--model", "m", "--max-rate-under", "ttft_p98_ms=5"]

    assert "ttft_p98_ms" in str(CliRunner().invoke(load, arguments).exception)


def test_schema_is_printed() -> None:
    """`--workload-schema` prints a JSON Schema."""
    assert "TokenPeak workload" == json.loads(CliRunner().invoke(load, ["--workload-schema"]).output)["title"]


@pytest.fixture
def calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calibration:
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    return calibrate(streams=(4,), seconds=0.6)


def test_calibration_is_kept(calibration: Calibration) -> None:
    """What was found is read back, and a level beyond it is named."""
    assert calibration == read_calibration()
    assert "4096" in (beyond(calibration, ClosedLoad(concurrency=4096, requests=1)) or "")
