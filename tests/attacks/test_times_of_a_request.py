"""The tuner asks for an engine that has 31 days to end, or for production that has as long to answer.

Production stayed down that long. All times of a request together are at most what the node's declaration allows.
"""

from typing import Any

import pytest

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.protocol import apply, requests

DECLARATION = {"limits": {"lease_max_s": 600, "trial_deadline_max_s": 10_000}}
LAUNCH: dict[str, Any] = {
    "trial_id": "0000-a",
    "holder": "h",
    "argv": ["vllm", "serve"],
    "env": {},
    "served_model": "m",
    "deadline_s": 100,
    "lease_s": 60,
    "trial_deadline_s": 600,
}
MONTH_S = 31 * 86_400
SAID = "tokenpeak_trial_deadline_max_s of the inventory is 10000"


@pytest.mark.parametrize("declaration", [DECLARATION, {}])
@pytest.mark.parametrize("field", ["engine_stop_s", "production_ready_s", "trial_deadline_s", "deadline_s"])
def test_launch(declaration: dict[str, Any], field: str) -> None:
    """Each is bounded, by the default too where nothing is declared."""
    requests.check_declared(declaration, requests.parse(requests.LaunchRequest, LAUNCH))
    request = requests.parse(requests.LaunchRequest, {**LAUNCH, field: MONTH_S})

    with pytest.raises(ScriptError, match="tokenpeak_trial_deadline_max_s"):
        requests.check_declared(declaration, request)


def test_times_together() -> None:
    """None alone is too long, and all of them are."""
    times = {"trial_deadline_s": 9_000, "engine_stop_s": 600, "production_ready_s": 600}

    with pytest.raises(ScriptError, match=SAID):
        requests.check_declared(DECLARATION, requests.parse(requests.LaunchRequest, {**LAUNCH, **times}))


@pytest.mark.parametrize("field", ["engine_stop_s", "production_ready_s"])
def test_finish(field: str) -> None:
    """So is how a trial ends."""
    request = requests.parse(requests.FinishRequest, {"trial_id": "0000-a", "holder": "h", field: MONTH_S})

    with pytest.raises(ScriptError, match=SAID):
        requests.check_finish(DECLARATION, request)


@pytest.mark.parametrize("field", ["confirm_within_s", "production_ready_s"])
def test_change(field: str) -> None:
    """And how long an apply waits."""
    given = {"apply_id": "a", "holder": "h", "was_sha256": "0" * 64, "lease_s": 5, "confirm_within_s": 9}
    request = requests.parse(apply.ChangeRequest, {**given, field: MONTH_S})

    with pytest.raises(ScriptError, match=SAID):
        apply.check_declared(DECLARATION, request)
