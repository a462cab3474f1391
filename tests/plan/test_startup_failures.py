"""What engines wrote when they did not start, by public reports: each gives its cause and a message that names it."""

from pathlib import Path

import pytest
import yaml

from tokenpeak.records import FAILURE_CAUSES, Failure
from tokenpeak.vllm.startup_log import classify_failure

REPORTED: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent / "data" / "startup_failures.yaml").read_text())


def failure(log: str) -> Failure:
    return classify_failure(log, phase="engine_start", exit_status=1, timed_out=False)


@pytest.mark.parametrize("reported", REPORTED, ids=lambda reported: reported["source"])
def test_reported_failure_is_classified(reported: dict[str, str]) -> None:
    """The cause is right, the message names it and ends in advice, and lines of the log show it."""
    found = failure(reported["log"])

    assert (reported["cause"], True) == (found.cause, reported["word"] in found.message), found.message
    assert found.evidence
    assert found.message.endswith(".")


def test_few_failures_stay_unexplained() -> None:
    """Of a hundred reports and more, at most one in twenty does not say why; each cause is a known one."""
    unexplained = [reported for reported in REPORTED if failure(reported["log"]).cause == "unknown"]

    assert 100 <= len(REPORTED)
    assert len(unexplained) <= 0.05 * len(REPORTED)
    assert {reported["cause"] for reported in REPORTED} <= set(FAILURE_CAUSES)
