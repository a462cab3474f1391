"""The raw format: what a sweep writes, one model per thing that is written.

format_version history:
    1   first format
    2   imports: `imported` of a sweep, and counts, durations, seeds and client that another tool did not keep may be
        null; servers that TokenPeak did not launch: `endpoint` of a config, and as the source of a node's facts; load
        hosts: `load_hosts` of a sweep and `hosts` of a run's client; `within_limits` of a run's summary; `highest` of a
        plan and its `estimated_trial_s`; `left_out` and `other_requests` of a trial; `measured_from_s` of a run;
        `network` of a run's client; `interconnect` of a node's facts; a file of version 1 reads the same
    3   `holdout` of a trial, which version 2 calls `other_requests`; an interval and `needed_s` of a run's energy,
        whose `energy_j` may be null; `temperature_c` and `further_energy` of a run; `power_meters` of a node's
         facts; `idle_power` and `quality` of a trial; `answers` of a planned config; `image`, `container` and `digest`
         of an engine build, `engine_digest` and `model_digest` of a trial's start-up; `left_out_nodes` of an end;
         `model` of a node's facts; the steady window of a run's summary

An archive is a folder:
    sweep.json                    SweepRecord, written once, before the first trial
    trials/TRIAL_ID.json          TrialRecord, one per trial, written when the trial has ended
    trials/TRIAL_ID.requests.parquet   a row per request of the trial's runs (see REQUEST_COLUMNS)
    trials/TRIAL_ID.engine.log.zst     the engine's log, whole
    trials/TRIAL_ID.quality.json.zst   QualityPasses: what the launch answered, where that was measured
    quality.json                  SweepQuality, made of these; rewritten when a trial's answers come in
    end.json                      EndRecord, rewritten each time that the sweep ends (completed or interrupted)
    applies/APPLY_ID.json         ApplyRecord, one per apply of its result on a node, and per rollback of one
Files are written atomically, and raw ones are never edited. Missing is null, never zero. Times are seconds; instants
are UTC.
"""

from tokenpeak.node.protocol.parts import (
    Checkpoint,
    EnergyBoundary,
    Gpu,
    Phase,
    PowerMeter,
    Production,
    Restoration,
    Series,
    Tensors,
)
from tokenpeak.records.base import FORMAT_VERSION, Distribution, Record
from tokenpeak.records.node import Container, EngineBuild, HardwareKey, ModelName, NodeFacts, hardware_groups
from tokenpeak.records.request_columns import REQUEST_COLUMNS
from tokenpeak.records.run import (
    BY_THE_ENGINE,
    OVERLOADED,
    QUALITY_FAILED,
    QUALITY_UNKNOWN,
    AdapterSummary,
    ClientHealth,
    Energy,
    EngineCounters,
    LoadHostHealth,
    MaxRate,
    NetworkHealth,
    PercentileIntervals,
    RateProbe,
    Reason,
    RunRecord,
    RunState,
    RunSummary,
    SteadyStateRecord,
    TurnSummary,
    Verdict,
)
from tokenpeak.records.sweep import (
    ApplyRecord,
    Bake,
    BakeFigure,
    Config,
    Despite,
    Dropped,
    EndRecord,
    Imported,
    Plan,
    PlannedConfig,
    Prediction,
    ProductionDefinition,
    ProductionTraffic,
    Provenance,
    SourceFile,
    SweepRecord,
    config_hash,
)
from tokenpeak.records.trial import (
    ENGINE_CAUSES,
    FAILURE_CAUSES,
    TRANSIENT_CAUSES,
    UNEXPLAINED_CAUSES,
    Failure,
    IdlePower,
    StartupFacts,
    TrialRecord,
)
