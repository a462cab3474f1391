"""What a hostile node answers never fills the controller's memory or ends a sweep: it is left out, and named."""

import base64
import json
import zlib
from typing import Any

import pytest

from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer, as_json, parse
from tokenpeak.node.protocol.parts import Phase, RestoreOutcome, Series
from tokenpeak.sweep.ansible.runner import _Collector
from tokenpeak.sweep.trial.record import unusable_reasons
from tokenpeak.vllm.startup_log import LOG_LIMIT_BYTES, unpacked_log

RESTORE = {"task_action": "node_command"}
BACK = RestoreOutcome(restored=True, was_running=True, model="m", downtime_s=3.5, message="Back.", by="finish")
SENT = FinishAnswer(
    script="abc",
    phases=(Phase(name="recording", kind="orchestration", started_s=0.1, duration_s=2),),
    started_at_unix_s=1.7e9,
    engine_ran=True,
    exit_status=0,
    engine_stopped=True,
    restoration=BACK,
    telemetry=Series(t_s=(1.0, 2.0), columns={"gpu0_power_w": (100, None)}),
    log="",
)
GOOD: dict[str, Any] = json.loads(json.dumps({**as_json(SENT), "script": "abc"}, default=vars))
EMPTY = FinishAnswer()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine_ran", "yes"),
        ("exit_status", 10**30),
        ("phases", [{"name": "x", "kind": "orchestration", "started_s": "0", "duration_s": 1}]),
        ("phases", [{"name": "x", "kind": "load", "started_s": 0, "duration_s": 1, "guests": 2}]),
        ("started_at_unix_s", float("nan")),
        ("started_at_unix_s", 10**400),
        ("telemetry", {"t_s": [1.0], "columns": {"gpu0_power_w": [1, 2]}}),
        ("telemetry", {"t_s": [1.0], "columns": {"gpu0_power_w": [float("inf")]}}),
        ("restoration", {"restored": "perhaps"}),
        ("given_back_by", "x" * 201),
    ],
)
def test_odd_field_is_left_out(name: str, value: Any) -> None:
    """A field of another type or range is left out, and makes the runs invalid by its name."""
    found = parse(FinishAnswer, {**GOOD, name: value})

    assert (f"{name} makes no sense",) == found.unusable
    assert getattr(EMPTY, name) == getattr(found, name)
    assert {**as_json(SENT), name: None} == {**as_json(found), name: None}
    (reason,) = unusable_reasons(LaunchAnswer(), found)
    assert "node_answer" == reason.code
    assert name in reason.text


def test_log_that_unpacks_to_more_than_is_kept() -> None:
    """Of a log that would fill the memory the first part is kept, and it says so."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(100)) + packer.flush()
    text = unpacked_log(base64.b64encode(packed).decode())

    assert LOG_LIMIT_BYTES < len(text) < LOG_LIMIT_BYTES + 100
    assert text.endswith(f"[cut at {LOG_LIMIT_BYTES} bytes]\n")


@pytest.mark.parametrize("stdout", ["[" * 100_000, '{"ready": ' + "[" * 100_000, "9" * 10_000, "nonsense", "null"])
def test_answer_that_is_none(stdout: str) -> None:
    """What a command printed that is no JSON object is no answer, however deep or long."""
    collector = _Collector(None)
    for kind in ("runner_on_ok", "runner_on_failed"):
        event = {"host": "gpu1", **RESTORE, "res": {"tokenpeak_step": "restore", "stdout": stdout}}
        collector({"event": kind, "event_data": event})

    assert {} == collector.result("gpu1").answers
