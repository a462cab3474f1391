"""A load host that lies: what it says is bounded and checked, and one sentence names it."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from loadgen.broken_server import serving
from loadgen.test_generator import Listener, measure
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.workers import local
from tokenpeak.loadgen.workers.messages import decode_from_worker, source_digest

ACTS_AS_A_HOST = """
import json, sys, time
def say(text):
    sys.stdout.write(text); sys.stdout.flush()
def send(kind, **content):
    say(json.dumps({"kind": kind, **content}) + "\\n")
send("hello", source=sys.argv[2], cores=1)
for line in sys.stdin:
    kind = json.loads(line)["kind"]
    if kind == "prepare": send("prepared", processes=1)
    if kind == "ping": send("pong", at_s=time.perf_counter())
    if kind == "assign": send("ready")
    if kind == "begin":
        exec(sys.argv[1])
"""
REPLY: dict[str, Any] = {
    "index": 0, "turn": None, "due_s": 0.0, "sent_s": 0.0, "first_byte_s": 0.1, "first_token_s": 0.1,
    "last_token_s": 0.2, "input_tokens": 8, "cached_tokens": 0, "output_tokens": 4, "events": 4, "event_times_us": "",
    "status": 200, "error": None, "detail": "",
}  # fmt: skip
REST: dict[str, Any] = {
    "lags": [], "start": 0.0, "wall_s": 1.0, "cpu_s": 0.1, "busiest_share": 0.1, "processes": 1, "stopped": None,
    "segments": [0, 0, 0, 0], "outages": [],
}  # fmt: skip


def seen(*replies: Any, **changes: Any) -> dict[str, Any]:
    """An observation with these replies."""
    return {"kind": "observation", "replies": replies, **REST, **changes}


OBSERVATIONS = {
    "tokens beyond any count": seen({**REPLY, "output_tokens": 10**30}),
    "an instant that is none": seen({**REPLY, "last_token_s": float("nan")}),
    "an error of a megabyte": seen({**REPLY, "error": "x" * 100_000}),
    "times that are no times": seen({**REPLY, "event_times_us": "AAA="}),
    "a field that no reply has": seen({**REPLY, "cost": 1}),
    "one request twice": seen(REPLY, REPLY),
    "processor time below nothing": seen(REPLY, cpu_s=-1.0),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observation_that_cannot_be(name: str) -> None:
    """What a host says it saw is within its bounds, or no message."""
    decode_from_worker(json.dumps(seen(REPLY)).encode())
    with pytest.raises(ValueError, match=r"^no message: (observation\.|two replies to one request)") as refused:
        decode_from_worker(json.dumps(OBSERVATIONS[name]).encode())

    assert len(str(refused.value)) <= 300


LIES = {
    "no observation": (
        f"say({json.dumps(json.dumps({**seen(), 'replies': 7}))} + chr(10))",
        "no message: observation.",
    ),
    "no end": ("while True: say('x' * 65536)", "an observation of more than"),
    "lists without end": (
        "say('{\"kind\":\"observation\",\"replies\":[' + '[],' * 3_000_000 + '[]]}' + chr(10))",
        "a message of more than",
    ),
    "progress without sense": ("send('progress', progress=[1])", "no message: progress."),
    "a message of another kind": ("send('prepared', processes=1)\nsend('assign')", "no message: .*'assign'"),
}


@pytest.mark.parametrize("name", LIES)
def test_host_that_lies_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is condemned by the host's name in one sentence, within some hundred megabytes."""
    monkeypatch.setattr(local, "_END_S", 0.2)
    lie, why = LIES[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    host = {"name": "liar", "argv": [sys.executable, "-c", ACTS_AS_A_HOST, f"{lie}\nsys.exit()", source_digest()]}

    named = pytest.raises(LoadError, match=f"^Load host liar was lost: it said what is {why}")
    with serving(Listener()) as url, named as refused:
        measure(url, tmp_path, {"concurrency": 1, "requests": 1}, hosts=[host])

    assert len(str(refused.value)) < 2000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 600 << 10
