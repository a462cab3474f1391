"""Trial: one launch of one config on one node, with its phases, runs, failure and its cause, and restoration."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tokenpeak.node.protocol.parts import EnergyBoundary, Phase, Restoration, Series
from tokenpeak.records.base import FORMAT_VERSION, PathName, Record
from tokenpeak.records.quality import QualityMeasurement
from tokenpeak.records.run import RunRecord
from tokenpeak.records.sweep import Config, Prediction, Provenance


class Failure(Record):
    """Why a trial gave no result."""

    phase: str
    cause: str
    """One of FAILURE_CAUSES."""
    message: str
    evidence: tuple[str, ...] = ()
    """Lines of the engine's log that show it."""


class StartupFacts(Record):
    """Facts of the engine's start, from its log."""

    engine_version: str | None = None
    """That it reported itself, by `/version`, else by its log; of a server other than vLLM its name."""
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
    engine_choices: dict[str, str] = {}
    """What it runs with, given or chosen by itself, by the names of its flags; what its log does not say is absent."""


class IdlePower(Record):
    """A boundary's power with production stopped and no engine started; the 95% interval is the sensor's."""

    boundary: EnergyBoundary
    power_w: float
    low_w: float
    high_w: float


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
    stated_quality: str | None = None
    """What the source of an import says of its answers, in its own words; None: it says nothing, or is ours."""
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
        """The time that the trial cost apart from the engine's and production's own start and the load."""
        return sum(phase.duration_s for phase in self.phases if phase.kind == "orchestration")


@dataclass(frozen=True, kw_only=True)
class FailureCause:
    """One word that a trial's failure can have."""

    code: str
    kind: Literal["config", "transient", "outage"]
    """Whose it is: the config's, which would fail again; nobody knows whose, so that another launch shows it; or that
    of the node, the network, the disk or the controller, which is never the config's."""
    advice: str | None
    """The next step; None where that follows from the engine's own words, which `vllm/data/errors.toml` explains."""
    is_engine: bool = False
    """It lies in config and engine together, so that a gate counts it against the engine."""
    climb: Literal["too_high", "too_low"] | None = None
    """Of a value that is raised step by step: what this failure says of it."""

    @property
    def is_retryable(self) -> bool:
        """Whether the config is launched again."""
        return self.kind != "config"

    @property
    def counts(self) -> bool:
        """Whether the launch counts against the config; one that does not is recorded as interrupted."""
        return self.kind != "outage"


_LOG = "Look at the engine's log in the trial."
_AGAIN = "The trial is made again."


def _config(
    code: str,
    advice: str | None = None,
    *,
    is_engine: bool = True,
    climb: Literal["too_high", "too_low"] | None = None,
) -> FailureCause:
    return FailureCause(code=code, kind="config", advice=advice, is_engine=is_engine, climb=climb)


def _transient(code: str, advice: str | None = None) -> FailureCause:
    return FailureCause(code=code, kind="transient", advice=advice)


def _outage(code: str, advice: str = _AGAIN) -> FailureCause:
    return FailureCause(code=code, kind="outage", advice=advice)


FAILURE_CAUSES = {
    cause.code: cause
    for cause in (
        _config("out_of_memory", climb="too_high"),
        _config("kv_cache_too_small", climb="too_low"),
        _config("context_too_long", climb="too_low"),
        _config("tensor_parallel_mismatch"),
        _config("dtype_unsupported"),
        _config("quantization_unsupported"),
        _config("unknown_flag"),
        _config("bad_flag_value"),
        _config("model_missing", is_engine=False),
        _config("model_unsupported"),
        _config("crashed", _LOG, climb="too_high"),
        _config("unknown", _LOG, is_engine=False, climb="too_high"),
        _config("refused", _LOG, is_engine=False),
        _config("wrong_engine", is_engine=False),
        _transient("vram_taken"),
        _transient("port_taken"),
        _transient("hung"),
        _transient("engine_not_started", "See why the node starts no such engine."),
        _transient("stopped", "See who ends processes on the node: an operator, a job, the system's shutdown."),
        _transient("load_failed", _LOG),
        _transient("inventory_task", "See the task files that the inventory names by tokenpeak_tasks."),
        _outage("interrupted"),
        _outage("node_unreachable", f"See whether the node is up and SSH gets there. {_AGAIN}"),
        _outage("network_outage", f"Look at the network between load generator and node. {_AGAIN}"),
        _outage("load_host_lost", f"See whether the load host is up. {_AGAIN}"),
        _outage("production_overlap"),
    )
}
"""All causes by their word."""

TRANSIENT_CAUSES = frozenset(code for code, cause in FAILURE_CAUSES.items() if cause.is_retryable)
"""Failures that say nothing about the config: its next launch may do."""
ENGINE_CAUSES = frozenset(code for code, cause in FAILURE_CAUSES.items() if cause.is_engine)
"""Failures that lie in config and engine; all others may be the machine's."""
UNEXPLAINED_CAUSES = frozenset({"unknown", "refused", "stopped"})
"""Causes of an engine's failure where neither its log nor its end says why: whoever knows more is right."""
