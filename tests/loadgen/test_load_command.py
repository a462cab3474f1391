import json
import random
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import typed
from loadgen.broken_server import Answer, serving, stream
from loadgen.test_generator import certified
from tokenpeak.cli.load import calibrate as calibrate_command
from tokenpeak.cli.load import load
from tokenpeak.errors import ExitStatus
from tokenpeak.loadgen.calibration import Calibration, NetworkPath, beyond, calibrate, checked, read_calibration
from tokenpeak.spec.load import ClosedLoad, LoadLevel, OpenLoad, Stage, StagedLoad
from tokenpeak.spec.workload import SyntheticWorkload

RANDOM = random.Random(1)
TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
WORKLOAD = SyntheticWorkload(name="x", input_tokens=10, output_tokens=10)
TIMELY = pytest.mark.timing("that a run is valid: a client that the machine keeps waiting says that it is not")


@TIMELY
def test_stands_alone(tmp_path: Path) -> None:
    """One command measures a server, prints a summary, and writes the record that a sweep would."""
    output = tmp_path / "run.json"
    with serving(slow) as url:
        arguments = [url, "--model", "m", "--concurrency", "8", "--requests", "24", "--output", str(output)]
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


@TIMELY
@pytest.mark.parametrize(
    ("slo", "answer", "status"),
    [
        ("ttft_p50_ms=60000", slow, ExitStatus.GOOD),
        ("ttft_p50_ms=1", slow, ExitStatus.MISSED),
        pytest.param("ttft_p50_ms=1", seldom, ExitStatus.INVALID, marks=pytest.mark.e2e),
        pytest.param(
            "ttft_p50_ms=1", lambda connection, _: connection.close(), ExitStatus.ERROR, marks=pytest.mark.e2e
        ),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, ExitStatus) else "",
)
def test_exit_status(slo: str, answer: Answer, status: ExitStatus) -> None:
    """A script learns from the exit status whether the SLO is held and the run is valid."""
    with serving(answer) as url:
        done = typed("load", url, "--model", "m", "--concurrency", "8", "--requests", "24", "--slo", slo)

    assert status == done.returncode, done.stdout + done.stderr


def test_rate_with_a_bound_on_requests_in_flight(tmp_path: Path) -> None:
    """Requests that are due beyond the bound wait here: a server of 0.1 s an answer gives two of them 20 a second."""
    output = tmp_path / "run.json"
    with serving(slow) as url:
        arguments = [url, "--model", "m", "--rate", "100", "--max-concurrency", "2", "--requests", "20"]
        done = CliRunner().invoke(load, [*arguments, "--arrivals", "constant", "--output", str(output)])

    summary = json.loads(output.read_text())["summary"]
    assert "late_dispatch" not in done.output
    assert 20 == summary["requests_ok"]
    assert 1.0 <= summary["duration_s"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rate", "-3"], "-3.0 is not in the range x>0"),
        (["--rate", "inf"], "inf is no amount"),
        (["--rate", "nan"], "nan is no"),
        (["--concurrency", "0"], "0 is not in the range x>=1"),
        (["--concurrency", "4", "--max-concurrency", "2"], "--max-concurrency is of a rate"),
    ],
)
def test_amounts_that_are_none_are_refused(options: list[str], words: str) -> None:
    """By option and value, before anything is sent."""
    done = CliRunner().invoke(load, ["http://127.0.0.1:9", *options])

    assert ExitStatus.USAGE == done.exit_code
    assert words in done.output


def test_too_few_requests_are_refused() -> None:
    """Requests that cannot show the SLO's percentile are refused before anything is sent."""
    words = ["http://127.0.0.1:9", "--model", "m", "--concurrency", "2", "--requests", "10", "--slo", "ttft_p95_ms=500"]
    done = CliRunner().invoke(load, words)

    assert ExitStatus.USAGE == done.exit_code
    assert "10 requests cannot show the percentiles of --slo. Give --requests 20 or more." in done.output


def test_output_without_a_folder_is_refused(tmp_path: Path) -> None:
    """A record that could not be written is refused before anything is sent."""
    place = tmp_path / "nix" / "run.json"
    done = CliRunner().invoke(load, ["http://127.0.0.1:9", "--concurrency", "2", "--output", str(place)])

    assert ExitStatus.USAGE == done.exit_code
    assert "'--output': the folder" in done.output
    assert "does not exist" in done.output


def test_refused_run_leaves_no_record_of_one_before(tmp_path: Path) -> None:
    """The record of an earlier run goes where nothing could be measured, and stays where an option is wrong."""
    output = tmp_path / "run.json"
    output.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    words = [f"http://127.0.0.1:{port}", "--model", "m", "--concurrency", "2", "--output", str(output)]

    assert ExitStatus.USAGE == CliRunner().invoke(load, [*words, "--slo", "ttft_p98_ms=5"]).exit_code
    assert output.exists()
    assert CliRunner().invoke(load, words).exit_code
    assert not output.exists()


def test_unknown_limit_is_an_error() -> None:
    """A limit that no SLO knows is refused before anything is sent, with the nearest."""
    done = typed("load", "http://127.0.0.1:9", "--max-rate-under", "ttft_p98_ms=5")

    assert ExitStatus.USAGE == done.returncode
    assert "There is no limit 'ttft_p98_ms'. Did you mean ttft_p" in done.stderr


def answers_with(status: int, body: object) -> Answer:
    """An answer as JSON."""
    content = json.dumps(body).encode()

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content))

    return answer


def models(*names: str) -> Answer:
    """A server's list of what it serves."""
    return answers_with(200, {"object": "list", "data": [{"id": name} for name in names]})


@TIMELY
def test_model_is_the_one_that_is_served() -> None:
    """Without --model, requests ask for the one model that the server lists; the program prints the record as JSON."""
    asked = []

    def answer(connection: socket.socket, request: bytes) -> None:
        asked.append(json.loads(request.partition(b"\r\n\r\n")[2])["model"])
        slow(connection, request)

    with serving(answer, other=models("org/mine")) as url:
        argv = [TOKENPEAK, "load", url, "--concurrency", "8", "--requests", "24", "--format", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert 0 == done.returncode, done.stderr
    assert 24 == json.loads(done.stdout)["summary"]["requests_ok"]
    assert {"org/mine"} == set(asked)


@pytest.mark.parametrize(
    ("other", "status", "sentence"),
    [
        (models("a", "b"), ExitStatus.USAGE, "serves a, b: choose one by --model."),
        (answers_with(404, {}), ExitStatus.USAGE, "does not say what it serves (/v1/models answered 404)"),
        (answers_with(200, [1]), ExitStatus.USAGE, "(/v1/models answered 200): give --model."),
        (answers_with(401, {}), ExitStatus.USAGE, "asks for an API key (/v1/models answered 401): give the file that"),
        (lambda connection, _: connection.close(), ExitStatus.ERROR, "does not say what it serves: /v1/models did not"),
    ],
    ids=["several", "404", "no list", "401", "closed"],
)
def test_models_that_do_not_decide(other: Answer, status: ExitStatus, sentence: str) -> None:
    """A list of models that decides nothing is one sentence with what to give."""
    with serving(slow, other=other) as url:
        done = typed("load", url, "--concurrency", "2")

    assert status == done.returncode
    assert done.stderr.startswith(f"tokenpeak: {url} ")
    assert sentence in done.stderr
    assert 1 == done.stderr.count("\n")


def test_nothing_listens() -> None:
    """A refused connection is one sentence and status 1, also where the model is given."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = typed("load", f"http://127.0.0.1:{port}", "--model", "m", "--concurrency", "2")

    assert (ExitStatus.ERROR, "") == (done.returncode, done.stdout)
    assert done.stderr == (
        f"tokenpeak: http://127.0.0.1:{port} cannot be loaded: nothing listens at 127.0.0.1:{port} (connection "
        "refused). Start the server, or correct the URL.\n"
    )


def test_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """A server with a certificate of its own is one sentence with the two options that help; --ca-file helps."""
    certificate, key = certified(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(slow, context=context) as url:
        words = ("load", url.replace("http://", "https://"), "--model", "m", "--concurrency", "8", "--requests", "8")
        refused = typed(*words)
        trusted = typed(*words, "--ca-file", str(certificate))

    assert ExitStatus.ERROR == refused.returncode
    assert "its certificate is not trusted (self-signed certificate). Name its certificate by --ca-file" in (
        refused.stderr
    )
    assert "8 of 8 requests ended well" in trusted.stdout


def test_no_request_ended_well_is_no_table(tmp_path: Path) -> None:
    """Where no request ended well, the reason is shown and not a table of nothing."""
    with serving(lambda connection, _: connection.close()) as url:
        done = typed("load", url, "--model", "m", "--concurrency", "2", "--requests", "4")

    assert ExitStatus.ERROR == done.returncode
    assert "0 of 4 requests ended well" in done.stdout
    assert "Time to first token" not in done.stdout


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
        (OpenLoad(rate_per_s=400, requests=1), "makes 4,000 tok/s due; 3,000 were found"),
        (OpenLoad(rate_per_s=250, requests=1, max_concurrency=64), None),
        (StagedLoad(stages=(Stage(duration_s=9, rate_per_s=9), Stage(duration_s=9, rate_per_s=900))), "makes 9,000"),
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


def test_another_server_is_no_timetable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL where no test server answers is an error that says so."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))
    with serving(lambda connection, _: connection.sendall(stream())) as url:
        result = CliRunner().invoke(calibrate_command, ["--through", url])

    assert "No test server answers" in str(result.exception)
