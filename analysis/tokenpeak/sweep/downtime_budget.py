"""Downtime budget of a sweep: hours of the day in which production may be down, and seconds of downtime in all.

A trial begins only when it can be over, production back, within both. How long a trial takes is known from the trials
before it; before the first, its deadlines stand for it. A trial that takes longer than expected is ended by the node's
own guard, so that what was granted is kept even when the controller is gone.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tokenpeak.errors import PlanError
from tokenpeak.node.protocol import requests
from tokenpeak.records import TrialRecord
from tokenpeak.spec.load import MaxRateLoad
from tokenpeak.spec.quality import MEASUREMENT_LIMIT_S
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.window import parse_window

_MARGIN = 1.25
"""A trial may take this much longer than the longest before it."""
_SHARE = 0.9
"""What is asked of a window at most: longer trials get a whole one, and no more."""
_HARD = 2.0
_BESIDES_S = 600.0
"""Where nothing was granted, the node still ends a trial that takes so many times its deadlines, and this more."""


@dataclass(frozen=True, kw_only=True)
class Granted:
    """A trial may begin. `deadline_s`: when the node ends it by itself, from now, whatever the controller says."""

    deadline_s: float


@dataclass(frozen=True, kw_only=True)
class Later:
    """No trial may begin before `until`."""

    until: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class Never:
    """No trial may begin any more."""

    reason: str


def longest_trial_s(spec: SweepSpec) -> float:
    """How long a trial may take by its own deadlines."""
    deadlines = spec.deadlines
    levels = [level for plan in spec.workloads for level in plan.levels]
    return (
        deadlines.engine_ready_s
        + len(levels) * deadlines.run_s
        + sum(level.budget_s for level in levels if isinstance(level, MaxRateLoad))
        + (MEASUREMENT_LIMIT_S if spec.quality is not False else 0.0)
        + deadlines.engine_stop_s
        + (deadlines.production_ready_s if spec.restore == "per_trial" else 0.0)
    )


def require_deadlines(spec: SweepSpec, node: str, declaration: Mapping[str, Any], lease_offset_s: float = 0.0) -> None:
    """Raise PlanError for a lease, longer by its offset, or deadlines beyond what the node's declaration allows."""
    if spec.endpoint is not None:
        return
    longest_s = longest_trial_s(spec) + (spec.deadlines.production_ready_s if spec.restore != "per_trial" else 0.0)
    wrong = requests.too_long(dict(declaration), spec.deadlines.lease_s + lease_offset_s, longest_s)
    if wrong:
        raise PlanError(
            f"{node} would refuse every trial of sweep {spec.name}: {'; '.join(wrong)}. Lower the sweep's deadlines "
            "(or its number of load levels), or raise the inventory's key and run tokenpeak install."
        )


class DowntimeBudget:
    """What is left of the sweep's downtime budget; shared by the workers of all nodes.

    `before_s` is the downtime of each node before this controller took the sweep up. An outage that was not seen to end
    is counted as far as it is known, until whoever gives the node back says how long the whole of it was.
    """

    def __init__(
        self,
        spec: SweepSpec,
        *,
        earlier: Sequence[TrialRecord] = (),
        before_s: Mapping[str, float] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._window = parse_window(spec.window) if spec.window else None
        self._max_downtime_s = spec.max_downtime
        self._longest_s = longest_trial_s(spec)
        self._production_ready_s = spec.deadlines.production_ready_s
        self._now = now
        self._lock = threading.Lock()
        self._seen_s: dict[str, float] = {}
        self._downtime_s = dict(before_s or {})
        self._open_s: dict[str, float] = {}
        """Outages that were not seen to end, as far as they are known."""
        self._reserved_s: dict[str, float] = {}
        self._is_kept = spec.restore == "per_sweep"
        self._kept_since: dict[str, datetime] = {}
        """Nodes that were not given back between their trials, and when their first one began."""
        self.refused: str | None = None
        """Why no more trials were allowed, once that has happened."""
        for trial in earlier:
            self._learn(trial)

    def ask(self, node: str, hardware: str) -> Granted | Later | Never:
        """Whether a trial may begin on the node now; granted downtime is held until `settle`."""
        with self._lock:
            needed_s = min(self._longest_s, _MARGIN * self._seen_s.get(hardware, float("inf")))
            deadlines_s: list[float] = []
            if self._window is not None:
                now = self._now()
                span = self._window.current(now)
                following = self._window.next_opening(now)
                if span is None:
                    return Later(until=following, reason="the window is shut")
                left_s = (span[1] - now).total_seconds()
                whole_s = (span[1] - span[0]).total_seconds()
                if left_s < min(needed_s, _SHARE * whole_s):
                    reason = f"a trial needs about {timedelta(seconds=round(needed_s))} and the window shuts before"
                    return Later(until=following, reason=reason)
                deadlines_s.append(left_s)
            if self._max_downtime_s is not None:
                down_s = self._down_s()
                left_s = self._max_downtime_s - down_s - sum(self._reserved_s.values())
                if left_s <= 0 or (left_s < needed_s and (hardware in self._seen_s or self._reserved_s)):
                    self.refused = (
                        f"max_downtime is {timedelta(seconds=round(self._max_downtime_s))}; production was down for "
                        f"{timedelta(seconds=round(down_s))} and a trial may take "
                        f"{timedelta(seconds=round(needed_s))} more."
                    )
                    return Never(reason=self.refused)
                deadlines_s.append(left_s)
                self._reserved_s[node] = min(needed_s, left_s)
        if not deadlines_s:
            return Granted(deadline_s=_HARD * self._longest_s + _BESIDES_S)
        granted_s = min(deadlines_s)
        # The guard's own work, giving production back, must end in what was granted too.
        return Granted(deadline_s=max(granted_s / 2, granted_s - self._production_ready_s))

    def settle(self, node: str, record: TrialRecord | None) -> None:
        """The granted trial ended, or came to nothing; its downtime counts from here on."""
        with self._lock:
            self._reserved_s.pop(node, None)
            if record is None:
                return
            self._learn(record)
            if record.restoration is not None:
                self._add(node, record.restoration.downtime_s, is_over=bool(record.restoration.restored))
            elif self._is_kept and record.argv:
                self._kept_since.setdefault(node, record.started_at)

    def add_downtime(self, node: str, seconds: float | None, *, is_over: bool = True) -> None:
        """The node was given back, or not yet, and production was down for so long since it was stopped.

        None: whoever says so does not know how long.
        """
        with self._lock:
            self._add(node, seconds, is_over=is_over)

    def _add(self, node: str, seconds: float | None, *, is_over: bool) -> None:
        self._kept_since.pop(node, None)
        known_s = self._open_s.pop(node, 0.0) if seconds is None else seconds
        if is_over:
            self._open_s.pop(node, None)
            self._downtime_s[node] = self._downtime_s.get(node, 0.0) + known_s
        else:
            self._open_s[node] = known_s

    def _down_s(self) -> float:
        """What production was down for so far, on nodes that are still kept until now."""
        kept_s = sum((self._now() - since).total_seconds() for since in self._kept_since.values())
        return sum(self._downtime_s.values()) + sum(self._open_s.values()) + max(0.0, kept_s)

    @property
    def downtime_s(self) -> dict[str, float]:
        """Seconds that production of each node was down in this sweep, outages that are not over included."""
        with self._lock:
            nodes = sorted({*self._downtime_s, *self._open_s})
            return {node: self._downtime_s.get(node, 0.0) + self._open_s.get(node, 0.0) for node in nodes}

    @property
    def open_s(self) -> dict[str, float]:
        """Of it, the part of outages that were not seen to end."""
        with self._lock:
            return dict(sorted(self._open_s.items()))

    def _learn(self, record: TrialRecord) -> None:
        if record.status == "ok":
            longest_s = max(self._seen_s.get(record.hardware, 0.0), record.duration_s or 0.0)
            self._seen_s[record.hardware] = longest_s
