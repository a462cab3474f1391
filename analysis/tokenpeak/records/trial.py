"""Trial: one launch of one config on one node, with its phases, runs, failure and restoration."""

from datetime import datetime, timedelta
from typing import Literal

from tokenpeak.records.base import FORMAT_VERSION, EnergyBoundary, PathName, Record
from tokenpeak.records.config import Config
from tokenpeak.records.plan import Prediction
from tokenpeak.records.quality import QualityMeasurement
from tokenpeak.records.run import RunRecord, Series
from tokenpeak.records.sweep import Provenance


class Failure(Record):
    """Why a trial gave no result."""

    phase: str
    cause: str
    """out_of_memory, kv_cache_too_small, context_too_long, tensor_parallel_mismatch, dtype_unsupported,
    quantization_unsupported, unknown_flag, bad_flag_value, model_missing, model_unsupported, vram_taken, port_taken,
    hung, stopped, crashed, refused, wrong_engine, engine_not_started, node_unreachable, network_outage,
    load_host_lost, production_overlap, interrupted, load_failed, inventory_task, unknown: each a FAILURE_CAUSES."""
    message: str
    evidence: tuple[str, ...] = ()
    """Lines of the engine's log that show it."""


class Phase(Record):
    """A span of a trial. `kind` says whose time it is; orchestration is TokenPeak's own."""

    name: str
    kind: Literal["orchestration", "engine_start", "load", "production_start"]
    started_s: float
    duration_s: float


class StartupFacts(Record):
    """What the engine said in its start-up log."""

    engine_version: str | None = None
    """That it reported itself, by `/version`, else by its log."""
    engine_digest: str | None = None
    """`sha256:…` of the image, or of the command's file, that was started; the node looked it up."""
    model_digest: str | None = None
    """`sha256:…` of the model's files on the node, by name, size and beginning; None where they were not found."""
    kv_cache_tokens: int | None = None
    kv_cache_bytes: int | None = None
    """On one device."""
    max_concurrency: float | None = None
    weights_load_s: float | None = None
    weights_bytes: int | None = None
    """On one device."""
    compile_s: float | None = None
    cuda_graph_bytes: int | None = None
    ready_s: float | None = None
    """From exec to the first real completion."""


class IdlePower(Record):
    """What a boundary draws with production stopped and no engine started; the 95% interval is the sensor's."""

    boundary: EnergyBoundary
    power_w: float
    low_w: float
    high_w: float


class Restoration(Record):
    """How production stood after the trial."""

    restored: bool
    """It is as it was recorded: it answers a real completion, or it was down before and still is."""
    was_running: bool
    model: str | None = None
    downtime_s: float | None = None
    message: str = ""


class TrialRecord(Record):
    """One launch of one config on one node, whatever came of it."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    trial_id: PathName
    """`NNNN-` and the first 8 digits of the config's id; NNNN counts the sweep's trials."""
    node: str
    hardware: str
    config: Config
    config_class: str
    replicate: int
    """0 for the first launch of this config on this hardware."""
    holdout: bool = False
    """A holdout run: the search's choice on fresh requests, which selected nothing."""
    simulated: bool
    status: Literal["ok", "failed", "interrupted"]
    failure: Failure | None = None
    started_at: datetime
    duration_s: float | None
    """None in an import: how long the launch took is not known."""
    argv: tuple[str, ...] = ()
    """The engine's command line as launched; holds no secret."""
    phases: tuple[Phase, ...] = ()
    startup: StartupFacts = StartupFacts()
    idle_power: tuple[IdlePower, ...] = ()
    """Of the node before its first engine of the sweep; empty in its other trials, and where nothing measured it."""
    runs: tuple[RunRecord, ...] = ()
    quality: QualityMeasurement | None = None
    """That its answers were measured after the load, beside it in a file of their own; None where they were not."""
    left_out: str | None = None
    """Why runs beside the objective's were not made; None: all were, as far as the trial went."""
    series: Series = Series()
    restoration: Restoration | None = None
    """None when production was not touched by this trial (restore: per_sweep)."""
    prediction: Prediction | None = None
    provenance: Provenance

    @property
    def ended_at(self) -> datetime:
        """When it ended; trials of which a search learns are in this order."""
        return self.started_at + timedelta(seconds=self.duration_s or 0.0)

    @property
    def orchestration_s(self) -> float:
        """What the trial cost apart from the engine's and production's own start and the load."""
        return sum(phase.duration_s for phase in self.phases if phase.kind == "orchestration")
