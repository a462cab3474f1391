"""Production's counts over a while, as arrays: what happened between one reading and the next.

A count that goes down is of an engine that was started again: what is before it is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpeak.errors import WorkloadError

Array = NDArray[np.float64]
COUNTS = ("requests_finished", "prompts", "prompts_tokens", "answers_tokens", "queries", "hits")
"""Cumulative: requests that ended in any way; those with lengths, and their tokens; tokens looked up in the prefix
cache, and found there."""
GAUGES = ("running", "waiting")
FEWEST_READINGS = 3


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Readings in order of time."""

    t_s: Array
    """Seconds since the first one."""
    counts: Mapping[str, Array]
    """COUNTS and GAUGES, each as long as `t_s`."""
    restarts: int = 0
    """How often the engine was started again meanwhile; readings are those since."""

    def between(self, name: str) -> Array:
        """By how much a count grew from each reading to the next; one shorter than `t_s`."""
        return np.diff(self.counts[name])

    @property
    def begun(self) -> Array:
        """How many requests began to run from each reading to the next: those that run more, or ended meanwhile."""
        return np.diff(self.counts["running"]) + self.between("requests_finished")

    def since_start(self, up_s: float) -> "Readings":
        """Two readings: at production's start, `up_s` ago, when all counts were 0, and the last one."""
        ends = {name: np.array([0.0, values[-1]]) for name, values in self.counts.items()}
        return Readings(t_s=np.array([0.0, up_s]), counts=ends, restarts=self.restarts)


def readings_of(t_s: Sequence[float], columns: Mapping[str, Sequence[float | None]]) -> Readings:
    """The readings of a node's answer; WorkloadError where they are too few, or lack what is needed."""
    missing = [name for name in (*COUNTS[:4], *GAUGES) if name not in columns]
    if missing:
        raise WorkloadError(
            f"Production's metrics lack {', '.join(missing)}: its traffic cannot be read off them. vLLM exports them "
            "unless it is started with --disable-log-stats."
        )
    table = np.array([[np.nan if value is None else value for value in columns[name]] for name in (*COUNTS, *GAUGES)
                      if name in columns])  # fmt: skip
    whole = ~np.isnan(table).any(axis=0)
    times, table = np.array(t_s, dtype=float)[whole], table[:, whole]
    names = [name for name in (*COUNTS, *GAUGES) if name in columns]
    finished = table[names.index("requests_finished")]
    falls = np.flatnonzero(np.diff(finished) < 0)
    if falls.size:
        times, table = times[falls[-1] + 1 :], table[:, falls[-1] + 1 :]
    if len(times) < FEWEST_READINGS:
        raise WorkloadError(f"Production's metrics were read {len(times)} times; observe it for longer.")
    counts = dict(zip(names, table, strict=True))
    for name in COUNTS:
        counts.setdefault(name, np.zeros(len(times)))
    return Readings(t_s=times - times[0], counts=counts, restarts=int(falls.size))
