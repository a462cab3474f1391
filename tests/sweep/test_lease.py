"""The lease channel: beats while it is open, none after."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tokenpeak.node.protocol.parts import Overlap
from tokenpeak.sweep.ansible.heartbeat_channel import LeaseChannel

LISTENER = """
import os, sys
out = open(sys.argv[1], "a", buffering=1)
print("pid", os.getpid(), file=out)
for line in sys.stdin:
    print("beat", file=out)
print("end", file=out)
"""


def wait_for(path: Path, word: str, count: int = 1) -> str:
    """The file's text once it has `word` so often; fails after 10 s."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        text = path.read_text() if path.exists() else ""
        if text.count(word) >= count:
            return text
        time.sleep(0.02)
    raise AssertionError(f"{word!r} did not appear {count} times in {path}")


def channel(path: Path, lost: list[str]) -> LeaseChannel:
    """A channel to a process here that notes what it hears."""
    return LeaseChannel([sys.executable, "-c", LISTENER, str(path)], "sweep-1", 2.0, lost.append)


ANSWERING = """
import json, sys
for line in sys.stdin:
    number = json.loads(line)["number"]
    print(json.dumps({"heard": number}), flush=True)
    if number == 1:
        noted = {"nonce": "1", "trial_id": "0001-abc", "holder": "sweep-1", "at_unix_s": 1.5}
        print(json.dumps({"overlap": noted}), flush=True)
"""


def test_node_that_answers_is_connected(tmp_path: Path) -> None:
    """An answer to a beat that was sent since proves the channel, and what the node noted comes along."""
    noted: list[object] = []
    with LeaseChannel([sys.executable, "-c", ANSWERING], "sweep-1", 40.0, lambda _: None, noted.append) as answering:
        found = [answering.problem(20), answering.problem(20)]

    assert [None, None] == found
    assert [Overlap(nonce="1", trial_id="0001-abc", holder="sweep-1", at_unix_s=1.5)] == noted


@pytest.mark.integration
def test_node_that_does_not_answer_is_not_connected(tmp_path: Path) -> None:
    """A process that lives proves nothing; one that ended has said why."""
    with channel(tmp_path / "heard", []) as silent:
        living = silent.problem(1)
    refused = ["sh", "-c", "echo 'Host key verification failed.' >&2; exit 255"]
    with LeaseChannel(refused, "sweep-1", 2.0, lambda _: None) as ending:
        gone = ending.problem(3)

    assert "it answered nothing for 1 s" == living
    assert (gone or "").startswith("its host key is unknown, so nothing was sent there.")


def test_channel_that_is_lost_is_opened_anew(tmp_path: Path) -> None:
    """A connection that goes does not lose the lease."""
    heard = tmp_path / "heard"
    lost: list[str] = []
    with channel(heard, lost):
        pid = int(wait_for(heard, "beat").split()[1])
        os.kill(pid, signal.SIGKILL)
        wait_for(heard, "pid", 2)

    assert ["it ended with status -9"] == lost


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo 'ops@gpu1: Permission denied (publickey).' >&2; exit 255", "Permission denied"),
        (
            """echo '{"error": {"code": "state", "text": "It belongs to root."}, "script": "abc"}'; exit 3""",
            "It belongs",
        ),
    ],
)
def test_why_a_lease_is_not_renewed_is_reported_once(tmp_path: Path, command: str, words: str) -> None:
    """Whoever watches learns what SSH or the node said, before the node gives itself back; not at every attempt."""
    lost: list[str] = []
    tried = tmp_path / "tried"
    with LeaseChannel(["sh", "-c", f"echo once >>{tried}; {command}"], "sweep-1", 2.0, lost.append):
        wait_for(tried, "once", 3)

    assert 1 == len(lost)
    assert words in lost[0]
