"""The tuner asks for an engine that has 31 days to end, or for production that has as long to answer.

Production stayed down that long. All times of a request together are at most what the node's declaration allows.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenpeak.node.__main__ import answered
from tokenpeak.node.engine.builds import require_allowed
from tokenpeak.node.machine.state import DECLARATION, State, content_of
from tokenpeak.node.protocol.requests import LaunchRequest, parse

TRIAL = {"trial_id": "0000-a", "holder": "h"}
LAUNCH: dict[str, Any] = {
    **TRIAL,
    "argv": ["vllm", "serve"],
    "env": {},
    "served_model": "m",
    "deadline_s": 100,
    "lease_s": 60,
    "trial_deadline_s": 600,
}
CHANGE = {"apply_id": "a", "holder": "h", "was_sha256": "0" * 64, "lease_s": 5, "confirm_within_s": 9}
MONTH_S = 31 * 86_400


@pytest.mark.parametrize("limits", [{"trial_deadline_max_s": 10_000}, {}])
@pytest.mark.parametrize(
    ("command", "request_", "times"),
    [
        *(
            ("launch", LAUNCH, {field: MONTH_S})
            for field in ("engine_stop_s", "production_ready_s", "trial_deadline_s", "deadline_s")
        ),
        ("launch", LAUNCH, {"trial_deadline_s": 86_000, "engine_stop_s": 600, "production_ready_s": 600}),
        *(("finish", TRIAL, {field: MONTH_S}) for field in ("engine_stop_s", "production_ready_s")),
        *(("change", CHANGE, {field: MONTH_S}) for field in ("confirm_within_s", "production_ready_s")),
    ],
)
def test_times(
    tmp_path: Path, limits: dict[str, float], command: str, request_: dict[str, Any], times: dict[str, float]
) -> None:
    """Each is bounded, by the default too where nothing is declared, and so are all together."""
    State.make(tmp_path / "state").put(DECLARATION, content_of({"limits": limits}), 0o600)
    path = tmp_path / "request.json"
    path.write_text(json.dumps({**request_, **times}))

    answer, _ = answered(command, tmp_path / "state", str(path))

    assert "tokenpeak_trial_deadline_max_s of the inventory is" in answer["error"]["text"]


def test_times_that_are_allowed() -> None:
    """A launch within the limits is not refused."""
    require_allowed({}, parse(LaunchRequest, LAUNCH))
