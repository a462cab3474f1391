"""When a sweep ends because its nodes fail, and when it goes on without one of them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from tokenpeak.search.history import Proposal
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.downtime_budget import Granted
from tokenpeak.sweep.limits import ConcurrencyLimiter, NodeFailures
from tokenpeak.sweep.trial.execution import TrialResult
from tokenpeak.sweep.trial.request import TrialRequest
from tokenpeak.sweep.trial.worker import SharedParts, Worker


class Gone(Worker):
    """The worker of a node on which no trial can begin."""

    def _hindrance(self) -> str | None:
        return f"{self.node} is gone"

    def _carry_out(self, request: TrialRequest, on_event: Callable[[Event], None]) -> TrialResult:
        raise AssertionError("no trial begins")


def shared_parts(queue: Any, failures: Any, **own: Any) -> Any:
    """What workers share, with a budget that grants every trial."""
    budget = MagicMock()
    budget.ask.return_value = Granted(deadline_s=60.0)
    site = SimpleNamespace(interrupt=SimpleNamespace(gentle=lambda: False), load_hosts=MagicMock())
    given = {name: MagicMock() for name in ("spec", "archive", "answers", "progress", "notifier")} | own
    limiter = ConcurrencyLimiter(1)
    return SharedParts(
        site=site,  # type: ignore[arg-type]
        trial_queue=queue,
        budget=budget,
        limiter=limiter,
        node_failures=failures,
        **given,
    )


def test_workers_of_other_nodes_begin_nothing_more() -> None:
    """Of eight nodes that all fail, five are tried twice: then there are ten trials, and nobody claims another."""
    claimed: list[str] = []
    queue = MagicMock()
    queue.claim.side_effect = lambda _, node: (
        claimed.append(node) or (Proposal(config_id="c", replicate=0, reason=""), "0001-c")
    )
    failures = NodeFailures(0.5)
    for number in range(8):
        shared = shared_parts(queue, failures)
        Gone(shared, node=f"n{number}", ready=MagicMock(), restore_pending=False).run()

    assert [f"n{number}" for number in range(5) for _ in range(2)] == claimed
    queue.close.assert_called()


@pytest.mark.parametrize(
    ("good", "failed", "share", "ends"),
    [
        # Five of ten are half, not more.
        (5, {"a": 2, "b": 2, "c": 1}, 0.5, False),
        (5, {"a": 2, "b": 2, "c": 2}, 0.5, True),
        (8, {"a": 1, "b": 1, "c": 1}, 0.25, True),
        # One or two bad nodes, however often, are left out by themselves.
        (2, {"a": 9, "b": 9}, 0.5, False),
        # Nine trials are too few for a share.
        (0, {"a": 3, "b": 3, "c": 3}, 0.5, False),
        (0, {"a": 4, "b": 3, "c": 3}, 1.0, False),
    ],
)
def test_sweep_ends_beyond_the_share(good: int, failed: dict[str, int], share: float, *, ends: bool) -> None:
    """By trials that failed for reasons of three nodes or more, of ten or more trials."""
    failures = NodeFailures(share)
    for _ in range(good):
        failures.count("good", None)
    for node, times in failed.items():
        for _ in range(times):
            failures.count(node, "its driver is gone")

    assert ends == (failures.too_many is not None)
