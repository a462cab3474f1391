"""The raw format: what a sweep writes, one model per thing that is written.

format_version history:
    1   first format
    2   imports: `imported` of a sweep, and counts, durations, seeds and client that another tool did not keep may be
        null; servers that TokenPeak did not launch: `endpoint` of a config, and as the source of a node's facts; load
        hosts: `load_hosts` of a sweep and `hosts` of a run's client; `within_limits` of a run's summary; `highest` of a
        plan; `left_out` and `other_requests` of a trial; `measured_from_s` of a run; `network` of
        a run's client; a file of version 1 reads the same

An archive is a folder:
    sweep.json                    SweepRecord, written once, before the first trial
    trials/TRIAL_ID.json          TrialRecord, one per trial, written when the trial has ended
    trials/TRIAL_ID.requests.parquet   a row per request of the trial's runs (see REQUEST_COLUMNS)
    trials/TRIAL_ID.engine.log.zst     the engine's log, whole
    end.json                      EndRecord, rewritten each time that the sweep ends (completed or interrupted)
Files are written atomically and never edited. Missing is null, never zero. Times are seconds; instants are UTC.
"""

from collections import Counter
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tokenpeak.names import PathName
from tokenpeak.workload import AnyLevel, AnyWorkload, Slo

FORMAT_VERSION = 2

REQUEST_COLUMNS: dict[str, str] = {
    "run_index": "which run of the trial, from 0",
    "request_index": "order in which the requests of the run were due, from 0",
    "phase": "warmup, measured, or probe: of a search for the highest rate, but not the probe that its summary is of",
    "turn": "turn of a conversation, from 0; null for single requests",
    "due_s": "when it was due, seconds after the run's start",
    "sent_s": "when its first byte was handed to the socket",
    "first_byte_s": "when the first byte of the response arrived",
    "first_token_s": "when the first event with a token arrived",
    "last_token_s": "when the last event with a token arrived",
    "input_tokens": "prompt tokens, from usage",
    "cached_tokens": "prompt tokens that the engine says came from its prefix cache; null when it does not say",
    "output_tokens": "completion tokens, from usage",
    "events": "events that carried tokens",
    "event_times_us": "microseconds between successive token events, starting from the first token (list)",
    "status": "HTTP status; null when no response came",
    "error": "kind of failure; null when the request ended well",
}


class Record(BaseModel):
    """A frozen part of the raw format that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Distribution(Record):
    """A metric over `n` requests (or gaps, or ticks); all None when n is 0. An import may not know n: None."""

    n: int | None
    mean: float | None = None
    std: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class ModelName(Record):
    """Which model a config serves, and under which name requests ask for it."""

    name: str
    revision: str | None = None
    served_name: str


class Config(Record):
    """One alternative of each axis on top of the fixed part, resolved.

    `config_id` is the first 12 hex digits of the SHA-256 over model, flags, env and engine version as canonical JSON;
    `choices` maps each axis to the alternative's name and is empty for an extra config.
    """

    config_id: PathName
    name: str
    choices: dict[str, str] = {}
    model: ModelName
    flags: dict[str, bool | int | float | str | None] = {}
    env: dict[str, str] = {}
    engine_version: str | None = None
    force: bool = False
    endpoint: str | None = None
    """The URL of a server that was measured as it stood; its flags and environment are then not known."""


class Dropped(Record):
    """A config of the matrix that is not tried, with the rule that forbids it."""

    config: Config
    rule: str
    reason: str


class Prediction(Record):
    """What the performance model foretells for a config under the sweep's objective run; None where it cannot tell."""

    output_tok_per_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    kv_cache_tokens: int | None = None
    binding: str | None = None
    """What limits it: weights_bandwidth, kv_bandwidth, compute, interconnect, launch_overhead, kv_capacity, client."""
    limit_output_tok_per_s: float | None = None
    """The most that the hardware could give for this workload."""
    uncertainty: float | None = None
    """Half-width of the 80% interval as a ratio: 0.3 is ±30%."""


class PlannedConfig(Record):
    """A feasible config with its class and prediction. Configs of one class cannot differ under the workload."""

    config: Config
    config_class: str
    prediction: Prediction | None = None
    advice: tuple[str, ...] = ()


class Plan(Record):
    """The matrix of one kind of hardware: theoretical = feasible + dropped."""

    hardware: str
    nodes: tuple[str, ...]
    theoretical: int
    feasible: tuple[PlannedConfig, ...]
    dropped: tuple[Dropped, ...] = ()
    estimated_duration_s: float | None = None
    highest: str | None = None
    """The axis of which only the highest value is wanted that launches and survives the load. The search finds it
    first, by one config, and tries the others at that value alone."""


class Gpu(Record):
    """One device as the node's own tools report it; None where they do not say."""

    index: int
    name: str
    vram_bytes: int | None = None
    vram_used_bytes: int | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    compute_capability: str | None = None
    uuid: str | None = None


class Production(Record):
    """What the node normally serves, as found by the probe."""

    manager: str
    """systemd, command, docker, podman, compose, kubernetes, supervisord or none."""
    unit: str | None = None
    running: bool
    enabled: bool | None = None
    url: str | None = None
    model: str | None = None
    arguments: tuple[str, ...] = ()
    """What its engine was started with, the model first; empty when that cannot be seen. Secrets are left out."""


class NodeFacts(Record):
    """What the probe found on a node, what its inventory declares without a probe, or what an import's source says.

    A server that TokenPeak did not launch stands as a node whose source is `endpoint`; its GPUs are those of all
    machines behind it, where an inventory tells them.
    """

    node: str
    source: Literal["probed", "declared", "published", "endpoint"]
    probed_at: datetime | None = None
    simulated: bool = False
    gpus: tuple[Gpu, ...] = ()
    cpu: str | None = None
    cpu_cores: int | None = None
    memory_bytes: int | None = None
    disk_free_bytes: int | None = None
    os: str | None = None
    kernel: str | None = None
    engine_version: str | None = None
    engine_help: tuple[str, ...] = ()
    """The lines of the installed engine's own help that begin with a flag; empty when it was not asked."""
    engine_env: dict[str, str] = {}
    """What its inventory sets in the engine's environment, as far as a plan depends on it."""
    engine_env_allowed: tuple[str, ...] | None = None
    """Names and `PREFIX_*` patterns of the variables that a config may set there; None: the default ones."""
    production: Production | None = None
    vram_holders: tuple[str, ...] = ()
    """Processes that hold VRAM, as `pid name MiB`."""
    engine_port_free: bool | None = None
    model_present: bool | None = None
    problems: tuple[str, ...] = ()
    """What would keep a trial from running, in sentences that say what to do."""

    @property
    def hardware(self) -> str:
        """The kind of hardware in a few words, such as `4x Tesla V100-PCIE-32GB`; nodes that share it share a plan."""
        if self.source == "endpoint":
            behind = Counter(gpu.name for gpu in self.gpus)
            boards = " + ".join(f"{count}x {name}" for name, count in sorted(behind.items()))
            return f"{boards} behind {self.node}" if boards else f"server at {self.node}"
        if self.gpus:
            names = sorted({gpu.name for gpu in self.gpus})
            return f"{len(self.gpus)}x {' + '.join(names)}"
        if self.source == "published" and self.cpu is None:
            return "unknown hardware"
        return f"CPU {self.cpu or 'unknown'} ({self.cpu_cores or '?'} cores)"


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
    """What was read: vllm_bench, vllm_printed, vllm_sweep, auto_tune, guidellm, aiperf, inferencex or table."""
    tool: str | None = None
    """The tool that measured, with its version where the files tell it."""
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
    """What the source has and this format has no place for, with the reason where it is known."""
    unknown: tuple[str, ...] = ()
    """What the source does not say and a reader would want to know."""
    cautions: tuple[str, ...] = ()
    """What a reader must know before taking a figure."""


class SweepRecord(Record):
    """What a sweep set out to do, written before its first trial."""

    format_version: int = FORMAT_VERSION
    sweep_id: PathName
    name: str
    inventory: PathName
    started_at: datetime
    simulated: bool
    study: str | None = None
    spec: dict[str, object]
    """The spec as given, every default filled in; parse with plan.spec.parse_spec."""
    nodes: tuple[NodeFacts, ...]
    plans: tuple[Plan, ...]
    provenance: Provenance
    load_hosts: tuple[str, ...] = ()
    """Who offered the load; empty: the controller did."""
    calibration: dict[str, object] | None = None
    """`calibrations`: what `tokenpeak calibrate` had found the load client able to measure on this sweep's ways; None:
    nothing was on record for them."""
    imported: Imported | None = None
    """None: measured by TokenPeak itself."""


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
    problems: tuple[str, ...] = ()


class Series(Record):
    """Samples on one clock: `t_s` seconds after the trial's start, and a column of equal length for each quantity.

    Names carry units: requests_running, requests_waiting, kv_cache_usage (0..1), gpu0_power_w, gpu0_sm_clock_mhz,
    gpu0_temperature_c, gpu0_vram_used_bytes, gpu0_utilization (0..1), gpu0_slowed (0 or 1) and so on. None: no sample.
    """

    t_s: tuple[float, ...] = ()
    columns: dict[str, tuple[float | None, ...]] = {}


class RunSummary(Record):
    """The metrics of a run, over its measured requests; names as in metrics.py. None: an import does not say."""

    duration_s: float | None
    """From the first measured request's due time to the last measured token."""
    requests_sent: int | None
    requests_ok: int | None
    requests_failed: int | None
    failures: dict[str, int] = {}
    """Failed requests by kind."""
    input_tokens: int | None
    output_tokens: int | None
    request_per_s: float | None = None
    output_tok_per_s: float | None = None
    input_tok_per_s: float | None = None
    total_tok_per_s: float | None = None
    peak_output_tok_per_s: float | None = None
    windowed_output_tok_per_s: tuple[float, ...] = ()
    """Output tokens that arrived in each successive second of the run."""
    goodput_request_per_s: float | None = None
    within_limits: dict[str, int] = {}
    """How many of the requests sent held each limit of the SLO, as `ttft_s_p99`; a failed one holds none. Limits on
    ITL, whose percentile is over gaps, are left out; empty too where nothing was counted."""
    request_output_tok_per_s: Distribution
    ttft_s: Distribution
    tpot_s: Distribution
    itl_s: Distribution
    latency_s: Distribution


class LoadHostHealth(Record):
    """One load host's part in a run that several offered together."""

    load_host: str
    requests: int
    processes: int
    cpu_s: float
    began_late_s: float
    """After the moment at which all hosts were to begin."""
    clock_error_s: float
    """By how much its clock, as read over the wire, may be wrong; latencies do not depend on it."""


class NetworkHealth(Record):
    """What the network did to a run, by the kernels of the load generator and of the server."""

    segments: int
    """TCP segments sent and received."""
    segments_lost: int
    """Of them, sent again, or come after a later one, as they do when an earlier one was lost."""
    outages_s: tuple[tuple[float, float], ...] = ()
    """When the server's machine answered nothing, not even its kernel: begin and end, in seconds after the run's
    start. An engine that pauses is no outage."""


class ClientHealth(Record):
    """What the load client knows of its own error in this run; all None in an import, whose client was another."""

    processes: int | None = 1
    cpu_s: float | None = None
    cpu_per_token_s: float | None = None
    dispatch_delay_s: Distribution
    """Sent − due."""
    loop_lag_s: Distribution
    """How late the event loop's ticks were."""
    hosts: tuple[LoadHostHealth, ...] = ()
    """The load hosts that offered the run together; empty: one machine did."""
    network: NetworkHealth | None = None
    """None: not watched."""


class EngineCounters(Record):
    """What the engine's own /metrics say of a run; None where this version does not export it."""

    prompt_tok_per_s: float | None = None
    generation_tok_per_s: float | None = None
    prefix_cache_hit_rate: float | None = None
    preemptions: int | None = None
    running_mean: float | None = None
    running_max: float | None = None
    waiting_mean: float | None = None
    waiting_max: float | None = None
    kv_cache_usage_mean: float | None = None
    kv_cache_usage_max: float | None = None


class Energy(Record):
    """The energy of a run within a boundary, and how it is known.

    kWh, CO₂, water and cost follow from it by the spec's factors; frames derive them, so that factors can be changed
    later.
    """

    source: Literal["energy_counter", "sampled_power", "estimated_tdp"]
    boundary: Literal["gpu_boards", "cpu_package", "node"]
    energy_j: float | None
    """None in an import that gives the power and no duration."""
    power_w: float | None
    energy_j_per_output_tok: float | None = None


class Reason(Record):
    """Why a run is invalid: a code, the measured value and its limit, and a sentence."""

    code: str
    text: str
    value: float | None = None
    limit: float | None = None


OVERLOADED = "overloaded"
"""Code of the reason that a run's rate was more than the engine could serve."""
BY_THE_ENGINE = frozenset({OVERLOADED, "preemptions"})
"""Codes of reasons that tell of the engine under this load; all others tell of a run that was measured badly."""


class Verdict(Record):
    """Whether a run may be ranked."""

    status: Literal["valid", "invalid", "not_judged"]
    reasons: tuple[Reason, ...] = ()

    @property
    def word(self) -> str:
        """The status in a word; a well measured run at a rate that was too high is overloaded."""
        codes = {reason.code for reason in self.reasons}
        return OVERLOADED if OVERLOADED in codes <= BY_THE_ENGINE else self.status.replace("_", " ")


class RateProbe(Record):
    """One rate tried in the search for the highest within an SLO."""

    rate_per_s: float
    requests: int
    holds: bool
    ratio: float | None = None
    """The worst metric ÷ its limit: 1 is just within; None when too much failed to tell. A delay that grew through the
    probe beyond doubt counts as it would have grown to, had the probe been long enough to show that overload."""
    spread: float
    """Relative standard error of `ratio`."""
    achieved_per_s: float | None = None
    goodput_request_per_s: float | None = None
    stopped_early: bool = False
    metrics: dict[str, float] = {}
    """Each limited metric, in seconds, as `ttft_s_p99`."""


class MaxRate(Record):
    """The highest rate within an SLO: an interval that holds it with a confidence, and every probe made."""

    rate_per_s: float | None
    """None: no rate within reach held."""
    low_per_s: float | None = None
    high_per_s: float | None = None
    confidence: float
    """Probability that the interval holds the highest rate, as far as the probes tell."""
    ended: Literal["found", "budget", "probes", "unreachable", "unbounded"]
    probes: tuple[RateProbe, ...] = ()
    started_s: float | None = None
    """When the first probe began, seconds after the trial's start."""
    duration_s: float | None = None
    """How long all probes took."""


class TurnSummary(Record):
    """One turn of a workload's conversations."""

    turn: int
    requests_ok: int
    input_tokens: int
    output_tokens: int
    ttft_s: Distribution
    tpot_s: Distribution
    latency_s: Distribution


class RunRecord(Record):
    """One workload at one load level within a trial."""

    run_index: int
    workload: AnyWorkload
    level: AnyLevel
    level_label: str
    slo: Slo
    started_at: datetime
    started_s: float | None
    """Seconds after the trial's start; None in an import."""
    measured_from_s: float | None = None
    """When its first measured request was due, warm-up over, in seconds after the trial's start; None where that was
    not kept. `summary.duration_s` counts from here."""
    seed: int | None
    summary: RunSummary
    slo_met: bool | None = None
    """Every limit of the SLO held; None when no SLO is given or too few requests were measured."""
    client: ClientHealth
    max_rate: MaxRate | None = None
    """What the search found, for a level of that kind; `summary` is then its longest probe at a rate that held."""
    turns: tuple[TurnSummary, ...] = ()
    """Per turn, for conversations."""
    failure_messages: dict[str, str] = {}
    """For each kind of failure, what the first one said."""
    engine: EngineCounters | None = None
    energy: Energy | None = None
    verdict: Verdict

    @property
    def window_s(self) -> tuple[float, float] | None:
        """From its first measured request to its last measured token, in seconds after the trial's start."""
        if self.measured_from_s is None or self.summary.duration_s is None:
            return None
        return self.measured_from_s, self.measured_from_s + self.summary.duration_s


class Failure(Record):
    """Why a trial gave no result."""

    phase: str
    cause: str
    """out_of_memory, kv_cache_too_small, context_too_long, tensor_parallel_mismatch, dtype_unsupported,
    quantization_unsupported, unknown_flag, bad_flag_value, model_missing, model_unsupported, vram_taken, port_taken,
    hung, crashed, refused, node_unreachable, load_host_lost, production_overlap, interrupted, load_failed, unknown."""
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
    other_requests: bool = False
    """Other requests than in every other trial: the search's choice once more, by which no config was picked."""
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
    runs: tuple[RunRecord, ...] = ()
    left_out: str | None = None
    """Why runs beside the objective's were not made; None: all were, as far as the trial went."""
    series: Series = Series()
    restoration: Restoration | None = None
    """None when production was not touched by this trial (restore: per_sweep)."""
    prediction: Prediction | None = None
    provenance: Provenance

    @property
    def orchestration_s(self) -> float:
        """What the trial cost apart from the engine's and production's own start and the load."""
        return sum(phase.duration_s for phase in self.phases if phase.kind == "orchestration")
