import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from load.broken_server import serving, stream
from load.delayed_way import delayed
from tokenpeak.cli.calibrate import calibrate as calibrate_command
from tokenpeak.cli.load import load
from tokenpeak.load.calibrate import Calibration, Way, beyond, calibrate, checked, read_calibration
from tokenpeak.load.timetable import timetable_server
from tokenpeak.workload import (
    ClosedLoad,
    LoadLevel,
    MaxRateLoad,
    OpenLoad,
    Slo,
    Stage,
    StagedLoad,
    SyntheticWorkload,
)

WORKLOAD = SyntheticWorkload(name="x", input_tokens=10, output_tokens=10)


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


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calibration]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENPEAK_STATE", str(tmp_path_factory.mktemp("state")))
        yield calibrate(streams=(4,), seconds=0.6)


def test_calibration_is_kept(calibration: Calibration) -> None:
    """What was found is read back."""
    assert calibration == read_calibration(Way())


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (ClosedLoad(concurrency=4096, requests=1), "keeps 4096 streams; 64 were found"),
        (OpenLoad(rate_per_s=10, requests=1, max_concurrency=65), "keeps 65 streams; 64 were found"),
        (OpenLoad(rate_per_s=400, requests=1), "makes 4,000 tok/s due; 3,000 were found"),
        (OpenLoad(rate_per_s=250, requests=1, max_concurrency=64), None),
        (StagedLoad(stages=(Stage(duration_s=9, rate_per_s=9), Stage(duration_s=9, rate_per_s=900))), "makes 9,000"),
        (ClosedLoad(concurrency=64, requests=1), None),
        (MaxRateLoad(max_rate_under=Slo(ttft_p99_ms=9)), None),
    ],
)
def test_level_beyond_the_calibration(calibration: Calibration, level: LoadLevel, words: str | None) -> None:
    """A level with more streams, or more tokens due, than were measured well is named with both figures."""
    known = calibration.model_copy(update={"highest_streams": 64, "highest_tokens_per_s": 3000.0})
    found = beyond(known, WORKLOAD, level)

    assert (words is None) == (found is None)
    assert (words or "") in (found or "")


def test_only_a_calibration_of_the_way_stands_for_it(calibration: Calibration) -> None:
    """A way over TLS or from other hosts is not covered by this one; one to elsewhere is, but for the way itself."""
    elsewhere, secure, others = Way(server="far"), Way(tls=True), Way(load_hosts=("a", "b"))
    found, doubts = checked([Way(), elsewhere, secure, others], [])

    assert [calibration] == found
    assert 2 == len(doubts)
    assert "the way to far over http is not part of it" in doubts[0]
    assert "calibrated to this machine over https, from a + b to this machine over http." in doubts[1]


def test_calibration_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tls` measures the client over https and keeps that by itself."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    result = CliRunner().invoke(calibrate_command, ["--tls", "--streams", "4", "--seconds", "0.6"])
    found = read_calibration(Way(tls=True))

    assert 0 == result.exit_code, result.output
    assert found is not None
    assert (4, None) == (found.points[0].streams, read_calibration(Way()))
    assert abs(found.points[0].ttft_error_p50_s) < 0.05


def test_calibration_through_a_way_of_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round trip on the way is found, is in TTFT's error, and is not held against the client."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    with timetable_server(0.05, 0.02) as url, delayed(url, 0.03) as far:
        arguments = ["--through", far, "--streams", "2", "--seconds", "0.6"]
        result = CliRunner().invoke(calibrate_command, arguments)
    found = read_calibration(Way(server="127.0.0.1"))

    assert 0 == result.exit_code, result.output
    assert found is not None
    assert 0.06 <= found.round_trip_s <= found.points[0].ttft_error_p50_s + 0.005
    assert found.points[0].itl_error_p50_s < 0.02


def test_another_server_is_no_timetable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL where no timetable server answers is an error that says so."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    with serving(lambda connection, _: connection.sendall(stream())) as url:
        result = CliRunner().invoke(calibrate_command, ["--through", url])

    assert "No timetable server answers" in str(result.exception)
