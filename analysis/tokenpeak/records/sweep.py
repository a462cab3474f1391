"""Sweep, its end and applies of its result: what was asked, by which software, where an import came from."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator

from tokenpeak.node.protocol.parts import Phase, Restoration
from tokenpeak.records.base import FORMAT_VERSION, PathName, Record, spec_of
from tokenpeak.records.node import NodeFacts
from tokenpeak.records.plan import GROUPS_OF_GPUS, Config, Plan

BakeStatus = Literal["passed", "slower", "failing", "not_judged"]
Despite = Literal["simulated", "interrupted", "shorter_context"]
"""Obstacles that an apply can go on with: results of simulated nodes on such nodes, a sweep that did not end, and
a context that is shorter than production's."""


class Provenance(Record):
    """Which software made a record."""

    tokenpeak_version: str
    git_revision: str | None = None
    python: str
    packages: dict[str, str] = {}


class SourceFile(Record):
    """A file that an import was made from."""

    name: str
    sha256: str


class Imported(Record):
    """Where an archive's figures come from when TokenPeak did not measure them."""

    format: str
    """The format: vllm_bench, vllm_printed, vllm_sweep, auto_tune, guidellm, aiperf, inferencex or table."""
    tool: str | None = None
    """The tool that measured, with its version where the files name it."""
    title: str | None = None
    publisher: str | None = None
    url: str | None = None
    published: str | None = None
    """Date of publication, as far as the source gives it."""
    measured: str | None = None
    """When it was measured, as far as the source gives it; None: not known, and every `started_at` is the import's."""
    files: tuple[SourceFile, ...] = ()
    mapping: dict[str, str] = {}
    """Field of this format → where its value is from."""
    differences: tuple[str, ...] = ()
    """Metrics that this source defines otherwise, with how."""
    unmapped: tuple[str, ...] = ()
    """Parts of the source that this format has no place for, with the reason where it is known."""
    unknown: tuple[str, ...] = ()
    """Facts that a reader would want and the source does not give."""
    cautions: tuple[str, ...] = ()
    """Warnings to read before taking a figure."""


class SweepRecord(Record):
    """The plan of a sweep, written before its first trial."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    name: str
    inventory: PathName
    started_at: datetime
    simulated: bool
    study: str | None = None
    spec: Annotated[dict[str, object], BeforeValidator(spec_of)]
    """The spec as given, every default filled in; parse with plan.spec.parse_spec."""
    nodes: tuple[NodeFacts, ...]
    plans: tuple[Plan, ...]
    provenance: Provenance
    load_hosts: tuple[str, ...] = ()
    """Who offered the load; empty: the controller did."""
    calibration: dict[str, object] | None = None
    """`calibrations`: what `tokenpeak calibrate` had found the load client able to measure on this sweep's network
    paths; None: nothing was on record for them."""
    imported: Imported | None = None
    """None: measured by TokenPeak itself."""

    def hardware_of(self, node: NodeFacts) -> str:
        """The label of the node's kind of hardware in this sweep."""
        return next((plan.hardware for plan in self.plans if node.node in plan.nodes), node.hardware)

    def gpus_used(self, config: Config, hardware: str) -> int | None:
        """How many GPUs the config's engine takes; None: the node has none, or neither flags nor node are known.

        An import that does not give the flags is taken to use all of its node.
        """
        nodes = [node for node in self.nodes if self.hardware_of(node) == hardware]
        there = len(nodes[0].gpus) if nodes else None
        named = any(config.flags.get(flag) is not None for flag in GROUPS_OF_GPUS)
        if (self.imported is not None or config.endpoint is not None) and not named:
            return there or None
        return config.gpus if there is None else min(config.gpus or 1, there) or None


class EndRecord(Record):
    """How a sweep stands when its controller left it."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    status: Literal["completed", "interrupted"]
    ended_at: datetime
    trials: int
    production_downtime_s: dict[str, float] = {}
    """Seconds that each node's production did not serve."""
    open_downtime_s: dict[str, float] = {}
    """The part of it that belongs to an outage whose end was not seen: at least so long, as far as was known."""
    unrestored: tuple[str, ...] = ()
    """Nodes whose production was not seen to serve again."""
    left_out_nodes: tuple[str, ...] = ()
    """Nodes that failed so often in a row that the sweep went on without them."""
    problems: tuple[str, ...] = ()


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
    """Judgement of an apply by production's own metrics; not judged: too little traffic, or another kind of it."""

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
    """Obstacles that were declared to be none."""
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
    """As it was to be, where it was put back."""
    engine_version: str | None = None
    phases: tuple[Phase, ...] = ()
    downtime_s: float | None = None
    bake: Bake | None = None
    restoration: Restoration | None = None
    provenance: Provenance
