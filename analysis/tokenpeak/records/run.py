"""Run: one workload at one load level within a trial, its figures, verdict, and the health of client and network."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from tokenpeak.node.protocol.parts import EnergyBoundary
from tokenpeak.records.base import Distribution, Record, level_of, workload_of
from tokenpeak.spec.load import AnyLevel
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import AnyWorkload


class Reason(Record):
    """Why a run is invalid: a code, the measured value and its limit, and a sentence."""

    code: str
    text: str
    value: float | None = None
    limit: float | None = None


OVERLOADED = "overloaded"
"""Code of the reason that a run's rate was more than the engine could serve."""
QUALITY_FAILED = "quality_failed"
QUALITY_UNKNOWN = "quality_unknown"
"""Codes of the reasons that the launch's answers are worse than the reference's, or are not known to be as good."""

BY_THE_ENGINE = frozenset({OVERLOADED, "preemptions", QUALITY_FAILED, QUALITY_UNKNOWN})
"""Codes of reasons that lie in the engine under this load; all others mean that a run was measured badly."""


class Verdict(Record):
    """Whether a run may be ranked."""

    status: Literal["valid", "invalid", "not_judged"]
    reasons: tuple[Reason, ...] = ()

    @property
    def well_measured(self) -> bool:
        """Whether the run describes the engine: it is not invalid, or for no reason but the engine's own."""
        codes = {reason.code for reason in self.reasons}
        return self.status != "invalid" or (bool(codes) and codes <= BY_THE_ENGINE)

    @property
    def overloaded(self) -> bool:
        """Whether a well measured run's rate was more than the engine could serve."""
        return self.well_measured and any(reason.code == OVERLOADED for reason in self.reasons)

    def with_reasons(self, reasons: Sequence[Reason]) -> "Verdict":
        """The verdict with more reasons against the run; unchanged when there are none."""
        return Verdict(status="invalid", reasons=(*self.reasons, *reasons)) if reasons else self

    @property
    def word(self) -> str:
        """The status in a word; a well measured run at a rate that was too high is overloaded."""
        return OVERLOADED if self.overloaded else self.status.replace("_", " ")


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
    """None of a pooling workload, which has none."""
    request_per_s: float | None = None
    output_tok_per_s: float | None = None
    input_tok_per_s: float | None = None
    total_tok_per_s: float | None = None
    steady_from_s: float | None = None
    steady_to_s: float | None = None
    """The window of a closed loop over which the rates above and goodput are, in seconds after the first measured
    request was due: before it the loop fills, after it it drains. None: they are over the whole load, `duration_s`, as
    in open loops, runs too short for a window, imports, and archives written before it was recorded."""
    steady_waves: int | None = None
    """Requests that ended in that window ÷ those in flight."""
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
    request_input_tok_per_s: Distribution = Distribution(n=None)
    """Unknown in archives written before it was recorded."""
    ttfat_s: Distribution = Distribution(n=None)
    """Of answers that followed thoughts; not recorded where no request had thoughts and the SLO does not limit it."""
    __pydantic_extra__: dict[str, Distribution] = Field(init=False)
    """Further metrics over requests, as metrics.py declares them."""
    model_config = ConfigDict(extra="allow")

    def recomputed_share(self, preemptions: int) -> float:
        """About how many of the tokens were computed again: each preemption costs a prompt and half an answer."""
        requests = self.requests_ok or 0
        prompt, answer = self.input_tokens or 0, self.output_tokens or 0
        if not requests or not prompt + answer:
            return float(preemptions > 0)
        return preemptions / requests * (prompt + answer / 2) / (prompt + answer)


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
    """Losses and outages of the network in a run, by the kernels of the load generator and of the server."""

    segments: int
    """TCP segments sent and received."""
    segments_lost: int
    """Of them, sent again, or come after a later one, as they do when an earlier one was lost."""
    outages_s: tuple[tuple[float, float], ...] = ()
    """When the server's machine answered nothing, not even its kernel: begin and end, in seconds after the run's
    start. An engine that pauses is no outage."""


class ClientHealth(Record):
    """The load client's own errors in this run; all None in an import, whose client was another."""

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
    """Figures of a run from the engine's own /metrics; None where this version does not export it."""

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
    swapped_mean: float | None = None
    swapped_max: float | None = None
    """Requests whose KV cache was moved to the host's memory, which V0 alone does."""
    cpu_cache_usage_mean: float | None = None
    cpu_cache_usage_max: float | None = None
    """Share of that memory in use, of V0."""
    draft_acceptance_rate: float | None = None
    """Accepted ÷ drafted tokens of speculative decoding; None where nothing was drafted."""
    draft_accepted_length: float | None = None
    """Mean tokens of a step with a draft: those accepted, and the one that the model adds."""


class Energy(Record):
    """The energy of a run within a boundary, and how it is known.

    kWh, CO₂, water and cost follow from it by the spec's factors; frames derive them, so that factors can be changed
    later.
    """

    source: Literal["energy_counter", "sampled_power", "estimated_tdp"]
    boundary: EnergyBoundary
    energy_j: float | None
    """None in an import that gives the power and no duration, and where the run was too short for ±5%."""
    energy_low_j: float | None = None
    energy_high_j: float | None = None
    """The 95% interval by the sensor's readings, its calibration apart; None for an estimate or an older record."""
    needed_s: float | None = None
    """How long the run would have had to be for ±5%; None where it was long enough."""
    power_w: float | None
    energy_j_per_output_tok: float | None = None


RunState = Literal["steady", "overloaded", "too_short"]
"""Of a run at a rate: the engine kept up, its queue grew, or the run cannot say which."""
PercentileIntervals = dict[str, tuple[float | None, float | None]]
"""Interval of a percentile, in seconds, as `ttft_s_p95`; None: that end is beyond what the run's requests show."""


class RateProbe(Record):
    """One rate tried in the search for the highest within an SLO."""

    rate_per_s: float
    requests: int
    holds: bool
    ratio: float | None = None
    """The worst metric ÷ its limit: 1 is just within; None when too much failed. A delay that grew through the
    probe beyond doubt counts as it would have grown to, had the probe been long enough to show that overload."""
    spread: float
    """Relative standard error of `ratio`."""
    achieved_per_s: float | None = None
    goodput_request_per_s: float | None = None
    stopped_early: bool = False
    metrics: dict[str, float] = {}
    """Each limited metric, in seconds, as `ttft_s_p99`."""
    concurrency: int | None = None
    """Of a closed loop that saturated the engine; `rate_per_s` is then what it achieved. None: an open loop."""
    percentile_intervals: PercentileIntervals = {}
    """95% intervals of the limited metrics; empty where it was overloaded, since they depend on its length then."""
    state: RunState | None = None
    """Whether the engine kept up; None for a closed loop, and in archives written before it was recorded."""
    duration_s: float | None = None
    """How long it took, its drain included."""


class MaxRate(Record):
    """The highest rate within an SLO: an interval that holds it with a confidence, and every probe made."""

    rate_per_s: float | None
    """None: no rate within reach held."""
    low_per_s: float | None = None
    high_per_s: float | None = None
    confidence: float
    """Probability that the interval holds the highest rate, as far as the probes show."""
    ended: Literal["found", "budget", "probes", "unreachable", "unbounded"]
    probes: tuple[RateProbe, ...] = ()
    started_s: float | None = None
    """When the first probe began, seconds after the trial's start."""
    duration_s: float | None = None
    """How long all probes took."""
    saturation_per_s: float | None = None
    """Requests that the engine ends per second when more are in flight than it can serve within the limits."""
    saturation_low_per_s: float | None = None
    saturation_high_per_s: float | None = None


class SteadyStateRecord(Record):
    """Whether the engine kept up with the rate of a run: the test of results/steady_state.py and what it rests on."""

    state: RunState
    growth: float | None
    """Requests in flight that each arrival added; None with too few requests. At a rate r it is 1 − capacity ÷ r where
    the engine is overloaded, and 0 where it is not."""
    growth_error: float | None
    margin: float
    """The least that `steady` excludes: an overload of this share of capacity."""
    requests_needed: int
    """A run of so many requests distinguishes an overload of the margin from a steady state."""


class TurnSummary(Record):
    """One turn of a workload's conversations."""

    turn: int
    requests_ok: int
    input_tokens: int
    output_tokens: int
    ttft_s: Distribution
    tpot_s: Distribution
    latency_s: Distribution


class AdapterSummary(Record):
    """One LoRA adapter's part of a run, over its measured requests; `base` is the model without one."""

    adapter: str
    requests_sent: int
    requests_failed: int
    input_tokens: int
    output_tokens: int
    output_tok_per_s: float | None
    """Its share of the run's output tokens × the run's rate."""
    ttft_s: Distribution
    tpot_s: Distribution
    latency_s: Distribution


class RunRecord(Record):
    """One workload at one load level within a trial."""

    run_index: int
    workload: Annotated[AnyWorkload, BeforeValidator(workload_of)]
    level: Annotated[AnyLevel, BeforeValidator(level_of)]
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
    steady_state: SteadyStateRecord | None = None
    """Of an open loop at one rate, and of a search's summarized probe; None for other loads, and in archives written
    before it was recorded."""
    percentile_intervals: PercentileIntervals = {}
    """95% intervals, of an open loop that was not overloaded, of the SLO's percentiles and of TTFT and TPOT p95."""
    slo_met: bool | None = None
    """Every limit of the SLO held; None when no SLO is given or too few requests were measured."""
    client: ClientHealth
    max_rate: MaxRate | None = None
    """Result of the search, for a level of that kind; `summary` is then its longest probe at a sustainable rate."""
    turns: tuple[TurnSummary, ...] = ()
    """Per turn, for conversations."""
    adapters: tuple[AdapterSummary, ...] = ()
    """Per LoRA adapter, for a workload that names some."""
    failure_messages: dict[str, str] = {}
    """For each kind of failure, what the first one said."""
    engine: EngineCounters | None = None
    energy: Energy | None = None
    further_energy: tuple[Energy, ...] = ()
    """Of each further boundary that something measured, such as the whole node beside its boards."""
    temperature_c: float | None = None
    """Mean over the boards when its first measured request was due; None where none was read, and in archives written
    before it was recorded."""
    verdict: Verdict

    @property
    def rate_held(self) -> bool | None:
        """Whether the engine held the run's rate: it kept up, within the SLO.

        None: the run was measured badly, has no SLO, or too few requests to decide.
        """
        if not self.verdict.well_measured:
            return None
        return False if self.verdict.overloaded else self.slo_met

    @property
    def window_s(self) -> tuple[float, float] | None:
        """From its first measured request to its last measured token, in seconds after the trial's start."""
        if self.measured_from_s is None or self.summary.duration_s is None:
            return None
        return self.measured_from_s, self.measured_from_s + self.summary.duration_s
