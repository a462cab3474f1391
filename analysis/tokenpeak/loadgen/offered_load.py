"""Result of one load: its requests, and what the client and the engine observed."""

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from tokenpeak.loadgen.messages import LoadObservation
from tokenpeak.loadgen.metrics_page import Sample
from tokenpeak.spec.workload import ClosedLoad, LoadLevel, StagedLoad


@dataclass(frozen=True, kw_only=True)
class Offered:
    """What came of one load: its requests, and what the client and the engine say of it."""

    level: LoadLevel
    seen: LoadObservation
    samples: list[Sample]
    drained: bool | None
    table: pl.DataFrame
    began_at: datetime


def from_due(level: LoadLevel) -> bool:
    """Whether latency counts from when a request was due: in an open loop."""
    return not (isinstance(level, ClosedLoad) or (isinstance(level, StagedLoad) and not level.open))
