"""Notification: each way to a real receiver, again until it is taken, signed, and without a secret."""

import hashlib
import hmac
import json
import stat
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.node.conftest import Node
from tests.node.receiver import receiver

from tokenpeak.node.guard import guard, notify
from tokenpeak.node.machine import clock
from tokenpeak.node.production import production

SENT = notify.event("guard_acted", "The guard of gpu-1 gave the node back.", source="guard of gpu-1", node="gpu-1")
AT_ONCE = (0.0, 0.0, 0.0)


def secret_file(folder: Path, text: str = "s3cret\n") -> Path:
    """A file of its owner's alone."""
    path = folder / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_webhook_gets_the_event_signed(tmp_path: Path) -> None:
    """The body is the event; the signature is the HMAC-SHA256 of timestamp, dot and body, as a receiver computes it."""
    with receiver() as hook:
        ended = notify.send([{"webhook": hook.url, "secret_file": str(secret_file(tmp_path))}], SENT, AT_ONCE)

    ((headers, body),) = hook.got
    mac = hmac.new(b"s3cret", headers["X-Tokenpeak-Timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert [None] == ended
    assert SENT == json.loads(body)
    assert f"sha256={mac}" == headers["X-Tokenpeak-Signature"]
    assert b"s3cret" not in body and "s3cret" not in str(headers)


@pytest.mark.parametrize(
    ("statuses", "tries", "problem"),
    [
        ((503, 429), 3, None),
        ((500, 500, 500), 3, "it answered 500"),
        ((404,), 1, "it answered 404"),
        ((302,), 1, "302"),
    ],
)
def test_what_is_not_taken_is_sent_again(statuses: tuple[int, ...], tries: int, problem: str | None) -> None:
    """Again after a server's error, with the same id; not after a refusal, and a redirect is not followed."""
    with receiver(statuses) as hook:
        (ended,) = notify.send([{"webhook": hook.url}], SENT, AT_ONCE)

    assert tries == len(hook.got)
    assert {SENT["id"]} == {json.loads(body)["id"] for _, body in hook.got}
    assert (problem is None) == (ended is None) and (problem or "") in (ended or "")


def test_a_command_gets_the_event(tmp_path: Path) -> None:
    """As JSON on its standard input, and its kind, node and text in the environment; its failure is one."""
    kept = tmp_path / "kept"
    line = f"import os, sys; open({str(kept)!r}, 'w').write(os.environ['TOKENPEAK_EVENT'] + ' ' + sys.stdin.read())"

    ended = notify.send([{"command": [sys.executable, "-c", line]}, {"command": ["/bin/false"]}], SENT, (0.0,))

    assert [None, "it ended with status 1"] == ended
    kind, _, body = kept.read_text().partition(" ")
    assert ("guard_acted", SENT) == (kind, json.loads(body))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"webhook": "https://x"}, "give a list of receivers"),
        ([{"webhok": "https://x"}], "it has webhok; give one of command, webhook"),
        ([{"webhook": "file:///etc/passwd"}], "https:// or http://"),
        ([{"command": "page me"}], "as a list"),
        ([{"command": ["page"], "events": ["production_up"]}], "no event is called 'production_up'"),
    ],
)
def test_a_wrong_receiver_is_said(declared: object, said: str) -> None:
    """Each mistake in tokenpeak_notify is named with what to write; nobody is called by such a declaration."""
    (problem,) = notify.problems(declared)

    assert said in problem
    assert [] == notify.called(declared, "production_down", "node")


def test_the_guard_notifies_of_production_that_stays_down(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, less and less often; that it is down is notified once, and its return as well."""
    node.production()
    pauses: list[float] = []
    monkeypatch.setattr(production, "_START_PAUSE_S", 0.0)
    with receiver() as hook:
        node.declare(node="gpu-1", notify=[{"webhook": hook.url}])
        node.run("produce")
        node.run("launch", node.launch_request())
        node.end_guard()
        start = node.production_starts_by()

        def wait(_: object, timeout_s: float) -> None:
            pauses.append(timeout_s)
            if len(pauses) == 8:
                start.chmod(0o755)

        monkeypatch.setattr(guard, "watch", partial(guard.watch, wait=wait))
        node.fall_silent()
        node.run("guard")
        assert clock.wait_until(lambda: len(hook.got) == 3, 60)

    sent = {each["event"]: each["text"] for each in (json.loads(body) for _, body in hook.got)}
    assert [1, 2, 4, 8, 16, 32, 60, 60] == pauses[:8]
    assert {"production_down", "guard_acted", "production_back"} == set(sent)
    assert "Production of gpu-1 does not come back after trial 0000-abc" in sent["production_down"]


def test_a_receiver_that_hangs_delays_no_restoration(node: Node, tmp_path: Path) -> None:
    """A webhook that never answers, a command that does not end and a missing folder for metrics delay nothing."""
    node.production()
    with receiver(hangs=True) as hook:
        receivers = [{"webhook": hook.url}, {"command": ["/bin/sleep", "30"]}, {"command": ["/opt/none"]}]
        node.declare(node="gpu-1", notify=receivers, textfile_dir=str(tmp_path / "none"))
        node.run("produce")
        node.run("launch", node.launch_request())
        began = time.monotonic()
        node.lapse()

        assert notify.WEB_TIMEOUT_S > time.monotonic() - began
        assert node.run("status")["production"]["running"]
        assert clock.wait_until(lambda: len(hook.got) == 1, 60)


def metrics(folder: Path) -> dict[str, float]:
    """What the guard's file says, by Prometheus' own parser."""
    (path,) = folder.glob("*.prom")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    samples = [sample for family in text_string_to_metric_families(path.read_text()) for sample in family.samples]
    assert {"gpu-1"} == {sample.labels["node"] for sample in samples}
    return {sample.name.removeprefix("tokenpeak_"): sample.value for sample in samples}


def test_the_guard_writes_metrics(node: Node, tmp_path: Path) -> None:
    """For a text-file collector: armed while a trial has the node, and when the guard acted; a later guard knows it."""
    folder = tmp_path / "collector"
    folder.mkdir()
    node.production()
    node.declare(node="gpu-1", textfile_dir=str(folder))
    node.run("produce")
    node.run("launch", node.launch_request())
    armed = clock.wait_until(lambda: any(folder.glob("*.prom")) and metrics(folder).get("node_armed") == 1.0, 60)
    seen_ago_s = time.time() - metrics(folder)["guard_seen_timestamp_seconds"]
    node.lapse()
    found = metrics(folder)
    acted = found["guard_acted_timestamp_seconds"]

    assert armed
    assert 0 <= seen_ago_s < 60
    assert (0.0, 0.0, 1.0) == (found["node_armed"], found["guard_due"], found["guard_restored"])
    assert 0 <= time.time() - acted < 60

    node.run("launch", node.launch_request(trial_id="0001-abc"))
    node.run("finish", node.finish_request(trial_id="0001-abc"))
    assert clock.wait_until(lambda: metrics(folder)["guard_seen_timestamp_seconds"] > acted + 0.5, 60)
    assert acted == metrics(folder)["guard_acted_timestamp_seconds"]
