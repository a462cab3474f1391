import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadgen.broken_server import Answer, serving, stream
from loadgen.delayed_way import delayed
from tokenpeak.cli.calibrate import calibrate as calibrate_command
from tokenpeak.cli.load import load
from tokenpeak.exit_status import ExitStatus
from tokenpeak.loadgen.calibration import Calibration, NetworkPath, beyond, calibrate, checked, read_calibration
from tokenpeak.loadgen.test_server_process import local_test_server
from tokenpeak.spec.workload import (
    ClosedLoad,
    LoadLevel,
    MaxRateLoad,
    OpenLoad,
    Slo,
    Stage,
    StagedLoad,
    SyntheticWorkload,
)

RANDOM = random.Random(1)
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
WORKLOAD = SyntheticWorkload(name="x", input_tokens=10, output_tokens=10)


def test_stands_alone(tmp_path: Path) -> None:
    """One command measures a server, prints a summary, and writes the record that a sweep would."""
    output = tmp_path / "run.json"
    with serving(slow) as url:
        arguments = [url, "--model", "m", "--concurrency", "2", "--requests", "24", "--output", str(output)]
        result = CliRunner().invoke(load, arguments)

    record = json.loads(output.read_text())
    assert 0 == result.exit_code
    assert "24 of 24 requests ended well" in result.output
    assert {"mean", "std", "p25", "p50", "p75", "p90", "p95", "p99", "n"} == set(record["summary"]["ttft_s"])
    assert {"summary", "client", "verdict"} <= set(record)


def slow(connection: socket.socket, _: bytes) -> None:
    """An answer after a tenth of a second."""
    time.sleep(0.1)
    connection.sendall(stream())


def seldom(connection: socket.socket, _: bytes) -> None:
    """An answer or a closed connection, by chance."""
    if RANDOM.random() < 0.5:
        slow(connection, _)
    else:
        connection.close()


@pytest.mark.parametrize(
    ("slo", "answer", "status"),
    [
        ("ttft_p50_ms=60000", slow, ExitStatus.GOOD),
        ("ttft_p50_ms=1", slow, ExitStatus.MISSED),
        ("ttft_p50_ms=1", seldom, ExitStatus.INVALID),
        ("ttft_p50_ms=1", lambda connection, _: connection.close(), ExitStatus.ERROR),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, ExitStatus) else "",
)
def test_exit_status(slo: str, answer: Answer, status: ExitStatus) -> None:
    """A script learns from the exit status whether the SLO is held and the run is valid."""
    with serving(answer) as url:
        command = [TOKENPEAK, "load", url, "--model", "m", "--concurrency", "2", "--requests", "24", "--slo", slo]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert status == done.returncode, done.stdout + done.stderr


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
    assert calibration == read_calibration(NetworkPath())


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


def test_only_a_calibration_of_the_path_stands_for_it(calibration: Calibration) -> None:
    """A path over TLS or from other hosts is not covered; one to elsewhere is, but for the network itself."""
    elsewhere, secure, others = NetworkPath(server="far"), NetworkPath(tls=True), NetworkPath(load_hosts=("a", "b"))
    found, doubts = checked([NetworkPath(), elsewhere, secure, others], [])

    assert [calibration] == found
    assert 2 == len(doubts)
    assert "the network path to far over http is not part of it" in doubts[0]
    assert "calibrated to this machine over https, from a + b to this machine over http." in doubts[1]


def test_calibration_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tls` measures the client over https and keeps that by itself."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    result = CliRunner().invoke(calibrate_command, ["--tls", "--streams", "4", "--seconds", "0.6"])
    found = read_calibration(NetworkPath(tls=True))

    assert 0 == result.exit_code, result.output
    assert found is not None
    assert (4, None) == (found.points[0].streams, read_calibration(NetworkPath()))
    assert abs(found.points[0].ttft_error_p50_s) < 0.05


def test_calibration_through_a_way_of_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round trip on the way is found, is in TTFT's error, and is not held against the client."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    with local_test_server(0.05, 0.02) as url, delayed(url, 0.03) as far:
        arguments = ["--through", far, "--streams", "2", "--seconds", "0.6"]
        result = CliRunner().invoke(calibrate_command, arguments)
    found = read_calibration(NetworkPath(server="127.0.0.1"))

    assert 0 == result.exit_code, result.output
    assert found is not None
    assert 0.06 <= found.round_trip_s <= found.points[0].ttft_error_p50_s + 0.02
    assert found.points[0].itl_error_p50_s < 0.02


def test_another_server_is_no_timetable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL where no test server answers is an error that says so."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    with serving(lambda connection, _: connection.sendall(stream())) as url:
        result = CliRunner().invoke(calibrate_command, ["--through", url])

    assert "No test server answers" in str(result.exception)
