"""Runs against real local servers: who sends what when, over which connection."""

import json
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from loadgen.broken_server import serving, stream
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.assignment import LoadAssignment
from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import Run, run_job
from tokenpeak.loadgen.test_server import local_test_server
from tokenpeak.records import RunRecord
from tokenpeak.spec.load import LoadLevel

SYNTHETIC = {"kind": "synthetic", "name": "x", "input_tokens": 8, "output_tokens": 3}
CONVERSATION = {"kind": "conversation", "name": "c", "starters": 1, "starter_tokens": 5, "turns": 3}
CONVERSATION |= {"turn_input_tokens": 2, "output_tokens": 3}


def measure(
    url: str, folder: Path, level: dict[str, Any], workload: dict[str, Any] | None = None, **keys: Any
) -> RunRecord:
    run = {"run_index": 0, "workload": workload or SYNTHETIC, "level": level, "slo": keys.pop("slo", {})}
    job = LoadJob.model_validate({"base_url": url, "model": "m", "output_dir": folder, "runs": [run], **keys})
    return run_job(job)[0]


def requests(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "requests.parquet")


class Listener:
    """Answers well after a pause, and keeps what it was asked."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.heard: list[bytes] = []
        self.at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._pause_s = pause_s

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        with self._lock:
            self.heard.append(request)
            self._now += 1
            self.at_once = max(self.at_once, self._now)
        time.sleep(self._pause_s)
        with self._lock:
            self._now -= 1
        connection.sendall(stream())

    def bodies(self) -> list[dict[str, Any]]:
        return bodies(self.heard)


def bodies(requests: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in requests]


def test_closed_loop_keeps_its_concurrency(tmp_path: Path) -> None:
    """As many requests as asked are in flight, and never more."""
    listener = Listener(pause_s=0.05)
    with serving(listener) as url:
        record = measure(url, tmp_path, {"concurrency": 6, "requests": 30})

    assert (6, 30) == (listener.at_once, record.summary.requests_ok)


def test_warmup_is_not_counted(tmp_path: Path) -> None:
    """Four warm-up requests by two take two rounds, the ten measured ones another five; the metrics are of these."""
    with serving(Listener(pause_s=0.1)) as url:
        record = measure(url, tmp_path, {"concurrency": 2, "requests": 10, "warmup_requests": 4})

    assert 10 == record.summary.requests_sent
    assert {"warmup": 4, "measured": 10} == dict(requests(tmp_path).group_by("phase").len().iter_rows())
    assert record.window_s is not None and record.started_s is not None
    begins, ends = (moment - record.started_s for moment in record.window_s)
    assert 0.2 <= begins < 0.5
    assert 0.7 <= ends < 1.2


def test_open_loop_counts_from_due(tmp_path: Path) -> None:
    """With a cap of one, requests queue in the client, and their latency counts from when they were due."""
    with serving(Listener(pause_s=0.1)) as url:
        record = measure(
            url, tmp_path, {"rate_per_s": 100, "arrivals": "constant", "requests": 10, "max_concurrency": 1}
        )

    assert record.summary.latency_s.p99 is not None
    assert record.summary.latency_s.p99 > 0.8
    assert "late_dispatch" not in [reason.code for reason in record.verdict.reasons]
    assert record.client.dispatch_delay_s.p99 is not None
    assert record.client.dispatch_delay_s.p99 < 0.05


def test_a_timetable_that_is_not_kept_is_no_valid_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if three of four requests were lost on the way to the workers: the reason has both numbers."""
    whole = Run.assignment

    def cut(run: Run, level: LoadLevel) -> LoadAssignment:
        found = whole(run, level)
        return replace(found, due_s=(found.due_s or ())[::4])

    monkeypatch.setattr(Run, "assignment", cut)
    with serving(Listener()) as url:
        record = measure(url, tmp_path, {"rate_per_s": 200, "requests": 60})

    texts = {reason.code: reason.text for reason in record.verdict.reasons}
    assert texts["too_few_sent"].startswith("Only 15 of the 60 requests that were due were sent")


def test_bound_by_time(tmp_path: Path) -> None:
    """A closed loop bounded by time sends for that long."""
    with serving(Listener(pause_s=0.05)) as url:
        measure(url, tmp_path, {"concurrency": 2, "duration_s": 0.5})

    sent = requests(tmp_path)["sent_s"].to_list()
    assert (True, True) == (max(sent) > 0.3, max(sent) <= 0.55)


def test_stages_change_the_concurrency(tmp_path: Path) -> None:
    """A staged closed loop has each stage's requests in flight."""
    listener = Listener(pause_s=0.05)
    with serving(listener) as url:
        measure(
            url, tmp_path, {"stages": [{"duration_s": 0.3, "concurrency": 1}, {"duration_s": 0.4, "concurrency": 5}]}
        )

    frame = requests(tmp_path)
    early, late = frame.filter(pl.col("sent_s") < 0.3).height, frame.filter(pl.col("sent_s") >= 0.3).height
    assert 5 == listener.at_once
    assert early <= 7
    assert late >= 15


def test_trace_is_replayed_at_its_speed(tmp_path: Path) -> None:
    """A trace's requests are due at its timestamps divided by the speed."""
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp_s": 100 + at, "input_tokens": 8, "output_tokens": 3}) + "\n" for at in (0, 2, 4))
    )
    workload = {"kind": "trace", "name": "t", "path": str(path), "speed": 20}
    with serving(Listener()) as url:
        measure(url, tmp_path, {"replay": True}, workload)

    assert [0.0, 0.1, 0.2] == pytest.approx(requests(tmp_path)["due_s"].to_list())


def test_conversation_resends_its_history(tmp_path: Path) -> None:
    """Each turn resends the starter, what was asked and what was answered."""
    listener = Listener()
    with serving(listener) as url:
        record = measure(url, tmp_path, {"concurrency": 1, "requests": 3}, CONVERSATION)

    roles = [[message["role"] for message in body["messages"]] for body in listener.bodies()]
    assert [["system", *["user", "assistant"] * turn, "user"] for turn in range(3)] == roles
    assert " tok tok tok" == listener.bodies()[1]["messages"][2]["content"]
    assert [0, 1, 2] == [turn.turn for turn in record.turns]


def test_conversations_are_offered_at_the_rate(tmp_path: Path) -> None:
    """At 50 requests/s in chats of three turns, a chat begins every 60 ms, and every request is sent."""
    level = {"rate_per_s": 50, "requests": 30, "arrivals": "constant"}
    with serving(Listener()) as url:
        measure(url, tmp_path, level, {**CONVERSATION, "turns": 3})
    sent = requests(tmp_path)

    assert 30 == sent.height
    assert [0.06 * chat for chat in range(10)] == pytest.approx(sent.filter(turn=0)["due_s"].sort().to_list())


def test_think_time_passes_between_turns(tmp_path: Path) -> None:
    """A turn is due its think time after the answer before it."""
    with serving(Listener()) as url:
        measure(url, tmp_path, {"concurrency": 1, "requests": 2}, {**CONVERSATION, "turns": 2, "think_time_s": 0.2})

    first, second = requests(tmp_path).sort("request_index").iter_rows(named=True)
    assert second["due_s"] - first["last_token_s"] >= 0.19


def test_key_headers_and_base_path(tmp_path: Path) -> None:
    """The key, custom headers and the base path reach the server; the key comes from a file."""
    key = tmp_path / "key"
    key.write_text("secret\n")
    listener = Listener()
    with serving(listener) as url:
        measure(
            f"{url}/router/v1",
            tmp_path,
            {"concurrency": 1, "requests": 1},
            api_key_file=str(key),
            headers={"X-Team": "speed"},
        )

    head = listener.heard[0].partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"post /router/v1/completions http/1.1")
    assert b"authorization: bearer secret" in head
    assert b"x-team: speed" in head


def test_no_proxy_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked beside the load goes to the server too, with its key, whatever proxy the environment names."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, serving(Listener()) as url:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        measure(url, tmp_path, {"concurrency": 1, "requests": 1})
        proxy.setblocking(False)

        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_processes_merge_into_one_result(tmp_path: Path) -> None:
    """Two processes share a level, and the result is one run with every request once."""
    listener = Listener(pause_s=0.02)
    with serving(listener) as url:
        record = measure(url, tmp_path, {"concurrency": 5, "requests": 21}, processes=2)

    assert 2 == record.client.processes
    assert 21 == record.summary.requests_ok
    assert 5 == listener.at_once
    assert list(range(21)) == requests(tmp_path)["request_index"].to_list()


def certified(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of its own for this machine, and its key."""
    certificate, private = folder / f"{name}.pem", folder / f"{name}-key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"),
            *("-keyout", private, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, private


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's certificate is checked against the CA file that was given, and against those of the system."""
    certificate, private = certified(tmp_path, "here")
    other, _ = certified(tmp_path, "elsewhere")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    once = {"concurrency": 1, "requests": 1}
    with serving(Listener(), context) as url:
        secure = url.replace("http:", "https:")
        trusted = measure(secure, tmp_path, {"concurrency": 2, "requests": 4}, ca_file=str(certificate))
        doubted = measure(secure, tmp_path, once, ca_file=str(other))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        of_system = measure(secure, tmp_path, once, ca_file=str(other))

    assert (4, 1) == (trusted.summary.requests_ok, of_system.summary.requests_ok)
    assert {"tls_failed": 1} == doubted.summary.failures


def test_repeated_prompts_get_a_salt_of_their_own(tmp_path: Path) -> None:
    """A trace-free run bounded by time never sends the same prompt twice."""
    listener = Listener()
    with serving(listener) as url:
        measure(url, tmp_path, {"concurrency": 4, "duration_s": 0.5})

    prompts = [tuple(body["prompt"]) for body in listener.bodies()]
    assert len(prompts) == len(set(prompts))


def test_timetable_is_measured(tmp_path: Path) -> None:
    """Against the test server TTFT and latency are what it serves: never less, nor more where least disturbed."""
    with local_test_server(0.05, 0.02) as url:
        workload = {"kind": "synthetic", "name": "x", "input_tokens": 8, "output_tokens": 16}
        record = measure(url, tmp_path, {"concurrency": 8, "requests": 24}, workload)
    rows = requests(tmp_path)
    first_s = rows["first_token_s"] - rows["sent_s"]
    whole_s = rows["last_token_s"] - rows["sent_s"]

    assert 0.05 == pytest.approx(first_s.min(), abs=0.005)
    assert 0.05 + 15 * 0.02 == pytest.approx(whole_s.min(), abs=0.02)
    assert first_s.median() == pytest.approx(record.summary.ttft_s.p50)
    assert 24 * 16 == record.summary.output_tokens


def test_bad_url_is_an_error(tmp_path: Path) -> None:
    """An address that is no URL of a server is refused before anything is sent."""
    with pytest.raises(LoadError, match="not the URL of a server"):
        measure("ftp://x", tmp_path, {"concurrency": 1, "requests": 1})
