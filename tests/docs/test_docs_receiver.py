"""The webhook receiver that a page shows takes what the product signs, and nothing else."""

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.front_door.documented import doc_blocks
from tests.node.receiver import receiver
from tests.sim.running_engine import free_port

from tokenpeak.node.guard import notify

PAGE = "how-to/notify"
SENT = notify.event("guard_acted", "The guard of gpu-1 gave the node back.", source="guard of gpu-1", node="gpu-1")


def secret_file(folder: Path, name: str, text: str) -> Path:
    """A file of its owner's alone."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


@contextmanager
def shown_receiver(folder: Path, secret: Path) -> Iterator[str]:
    """The URL of the page's own program, with only its port and the secret's file replaced."""
    [block] = [block for block in doc_blocks(PAGE) if block.file == "receiver.py"]
    port = free_port()
    text = block.text.replace("8090", str(port)).replace("/etc/tokenpeak/hook.secret", str(secret))
    assert text.count(str(port)) == 1 and text.count(str(secret)) == 1
    (folder / "receiver.py").write_text(text)
    with subprocess.Popen([sys.executable, folder / "receiver.py"], stdout=subprocess.PIPE, text=True) as running:
        try:
            url = f"http://127.0.0.1:{port}/hook"
            deadline = time.monotonic() + 30
            while post(url, b"{}", {}) is None:
                assert time.monotonic() < deadline, "the receiver does not answer"
                time.sleep(0.05)
            yield url
        finally:
            running.terminate()


def post(url: str, body: bytes, headers: dict[str, str]) -> int | None:
    """The status of the answer; None where nobody listens."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("POST", "/hook", body, headers)
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def test_the_shown_receiver_refuses_what_was_changed_or_kept(tmp_path: Path) -> None:
    """What the product sent is taken as it is, and refused with another body, another time, or an hour later."""
    secret = secret_file(tmp_path, "secret", "s3cret\n")
    with receiver() as hook:
        notify.send([{"webhook": hook.url, "secret_file": str(secret)}], SENT, (0.0,))
    [(headers, body)] = hook.got
    signed = {name: value for name, value in headers.items() if name.lower().startswith("x-tokenpeak")}
    [timestamp] = [value for name, value in signed.items() if name.lower() == "x-tokenpeak-timestamp"]
    old = str(int(timestamp) - 3600)
    resigned = {
        **{name: value for name, value in signed.items() if name.lower() == "x-tokenpeak-id"},
        "X-TokenPeak-Timestamp": old,
        "X-TokenPeak-Signature": notify.signature("s3cret", old, body),
    }
    with shown_receiver(tmp_path, secret) as url:
        found = [
            post(url, body, signed),
            post(url, body.replace(b"gpu-1", b"gpu-2"), signed),
            post(url, body, {name: old if value == timestamp else value for name, value in signed.items()}),
            post(url, body, resigned),
        ]

    assert [204, 401, 401, 401] == found
    assert re.fullmatch(r"\d{10}", timestamp)


@pytest.mark.parametrize(
    ("to", "kind", "expected"),
    [
        ("slack", "guard_acted", {"text": "TokenPeak: The guard of gpu-1 gave the node back."}),
        ("pagerduty", "production_down", {"event_action": "trigger", "dedup_key": "tokenpeak gpu-1"}),
        ("pagerduty", "production_back", {"event_action": "resolve", "dedup_key": "tokenpeak gpu-1"}),
    ],
)
def test_the_shown_program_forwards_an_event(tmp_path: Path, to: str, kind: str, expected: dict[str, Any]) -> None:
    """By the product's own receiver `command`, with only PagerDuty's address replaced."""
    [block] = [block for block in doc_blocks(PAGE) if block.file == "forward.py"]
    event = notify.event(kind, SENT["text"], source="guard of gpu-1", node="gpu-1")
    with receiver() as hook:
        program = tmp_path / "forward.py"
        program.write_text(block.text.replace("https://events.pagerduty.com/v2/enqueue", hook.url))
        secret = secret_file(tmp_path, "secret", f"{hook.url if to == 'slack' else 'r0uting'}\n")
        failures = notify.send([{"command": [sys.executable, str(program), to, str(secret)]}], event, (0.0,))
    [(_, body)] = hook.got
    sent = json.loads(body)

    assert [None] == failures
    assert expected == {name: sent[name] for name in expected}
    if to == "pagerduty":
        assert "r0uting" == sent["routing_key"]
        assert {"summary": SENT["text"], "source": "gpu-1", "severity": "critical"} == sent["payload"]
