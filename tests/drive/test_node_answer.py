"""What a hostile node answers never fills the controller's memory or ends a sweep: it is left out, and named."""

import base64
import json
import zlib
from typing import Any

import pytest

from tokenpeak.drive.node_answer import LOG_LIMIT_BYTES, checked, unpacked_log, unusable_reasons
from tokenpeak.drive.runner import _Collector

GOOD: dict[str, Any] = {
    "ready": True,
    "exit_status": 0,
    "phases": [{"name": "recording", "kind": "orchestration", "started_s": 0.1, "duration_s": 2}],
    "started_at_unix_s": 1.7e9,
    "telemetry": {"t_s": [1.0, 2.0], "columns": {"gpu0_power_w": [100, None]}},
    "restoration": {"restored": True, "was_running": True, "model": "m", "downtime_s": 3.5, "message": "Back."},
    "log": "",
    "something_new": [1],
}


def test_good_answer_is_kept() -> None:
    """An answer of the right shape is as it was, with what this version does not know."""
    assert checked(GOOD) == GOOD


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ready", "yes"),
        ("exit_status", 10**30),
        ("exit_status", True),
        ("phases", [{"name": "x", "kind": "orchestration", "started_s": "0", "duration_s": 1}]),
        ("phases", [{"name": "x", "kind": "lunch", "started_s": 0, "duration_s": 1}]),
        ("phases", 3),
        ("started_at_unix_s", float("nan")),
        ("started_at_unix_s", 1e300),
        ("telemetry", {"t_s": [1.0], "columns": {"gpu0_power_w": [1, 2]}}),
        ("telemetry", {"t_s": ["a"], "columns": {}}),
        ("telemetry", {"t_s": [1.0], "columns": {"gpu0_power_w": [float("inf")]}}),
        ("restoration", {"restored": "perhaps"}),
        ("restoration", {"restored": True, "was_running": True, "downtime_s": 1e300}),
        ("restoration", []),
        ("log", 5),
        ("message", ["x"]),
    ],
)
def test_odd_field_is_left_out(name: str, value: Any) -> None:
    """A field of another shape or range is left out, and makes the runs invalid by its name."""
    found = checked({**GOOD, name: value})

    assert {key: given for key, given in GOOD.items() if key != name} == {
        key: given for key, given in found.items() if key != "unusable"
    }
    (reason,) = unusable_reasons({"finish": found})
    assert ("node_answer", True) == (reason.code, name in reason.text)


def test_log_that_unpacks_to_a_gigabyte() -> None:
    """Of a log that would fill the memory the first part is kept, and it says so."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(1024)) + packer.flush()
    text = unpacked_log(base64.b64encode(packed).decode())

    assert LOG_LIMIT_BYTES < len(text) < LOG_LIMIT_BYTES + 100
    assert text.endswith(f"[cut at {LOG_LIMIT_BYTES} bytes]\n")


@pytest.mark.parametrize("stdout", ["[" * 100_000, '{"ready": ' + "[" * 100_000, "9" * 10_000, "nonsense", "null"])
def test_answer_that_is_none(stdout: str) -> None:
    """What a command printed that is no JSON object is no answer, however deep or long."""
    collector = _Collector(None)
    for kind in ("runner_on_ok", "runner_on_failed"):
        event = {"host": "gpu1", "task": "node | finish", "res": {"stdout": stdout}}
        collector({"event": kind, "event_data": event})

    assert {} == collector.result("gpu1").answers


def test_collected_answers_are_checked() -> None:
    """What a playbook hands on of a node has been held against its shape."""
    collector = _Collector(None)
    answer = {**GOOD, "phases": "all"}
    event = {"host": "gpu1", "task": "node | finish", "res": {"stdout": json.dumps(answer)}}
    collector({"event": "runner_on_ok", "event_data": event})

    assert ["phases"] == collector.result("gpu1").answers["finish"]["unusable"]
