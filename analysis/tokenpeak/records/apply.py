"""Apply: a config carried into a node's production, or a confirmed apply undone, and what came of it."""

from datetime import datetime
from typing import Literal

from tokenpeak.node.protocol.parts import Phase, Restoration
from tokenpeak.records.base import FORMAT_VERSION, PathName, Record
from tokenpeak.records.plan import Config
from tokenpeak.records.sweep import Provenance

BakeStatus = Literal["passed", "slower", "failing", "not_judged"]
Despite = Literal["simulated", "interrupted", "shorter_context"]
"""What an apply can be declared to go on with: results of simulated nodes on such nodes, a sweep that did not end, and
a context that is shorter than production's."""


class ProductionDefinition(Record):
    """A definition of production: its checksum, and what it says less what may be secret."""

    sha256: str
    text: str


class BakeFigure(Record):
    """One figure of production after an apply against the same time before; bounds of the ratio hold at 99.9%."""

    name: Literal["ttft_mean", "ttft_tail", "tpot_mean", "tpot_tail", "failed"]
    """Means in seconds; tails: the share of requests beyond the slowest tenth's bound of before; failed: a share."""
    before: float
    after: float
    ratio: float | None
    low: float | None
    high: float | None
    n_before: float
    n_after: float


class Bake(Record):
    """What production's own metrics say after an apply; not judged: too little traffic, or another kind of it."""

    status: BakeStatus
    reason: str
    figures: tuple[BakeFigure, ...] = ()
    before_s: float
    after_s: float
    test_load: int = 0
    """Connections of the test load; 0: clients' requests alone."""


class ApplyRecord(Record):
    """An apply on one node, or its rollback, whatever came of it."""

    format_version: int = FORMAT_VERSION
    apply_id: PathName
    kind: Literal["apply", "rollback"]
    sweep_id: PathName
    """By whose result; of a rollback, by whose the apply was."""
    node: str
    config: Config | None
    """None of a rollback."""
    simulated: bool
    despite: tuple[Despite, ...] = ()
    """What was declared to be no obstacle."""
    who: str
    """User and host of the controller."""
    started_at: datetime
    duration_s: float
    status: Literal["confirmed", "put_back", "not_begun", "unknown"]
    """unknown: the node was out of reach; it puts back by itself what was not confirmed."""
    failed_in: str | None = None
    message: str
    before: ProductionDefinition | None = None
    after: ProductionDefinition | None = None
    """What was to be, where it was put back."""
    engine_version: str | None = None
    phases: tuple[Phase, ...] = ()
    downtime_s: float | None = None
    bake: Bake | None = None
    restoration: Restoration | None = None
    provenance: Provenance
