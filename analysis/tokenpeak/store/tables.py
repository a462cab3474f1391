"""Tables: name, kind and meaning of each column, once.

Frames are built to this list, Postgres's tables are made of it and filled from frames, and these meanings are its
column comments.
"""

import json
from dataclasses import dataclass
from typing import Literal

import polars as pl

from tokenpeak.metrics import BY_NAME, DERIVED, PER_GPU, STATISTICS
from tokenpeak.records import REQUEST_COLUMNS

Kind = Literal["text", "bigint", "double precision", "boolean", "timestamptz", "jsonb", "text[]", "double precision[]"]
"""A column's type in Postgres."""

_DTYPES: dict[str, pl.DataType] = {
    "text": pl.String(),
    "bigint": pl.Int64(),
    "double precision": pl.Float64(),
    "boolean": pl.Boolean(),
    "timestamptz": pl.Datetime("us", "UTC"),
    "jsonb": pl.String(),
    "text[]": pl.List(pl.String()),
    "double precision[]": pl.List(pl.Float64()),
}


@dataclass(frozen=True, kw_only=True)
class SqlColumn:
    """A column. A `jsonb` one is canonical JSON text in frames."""

    name: str
    kind: Kind
    meaning: str
    nullable: bool = True

    @property
    def dtype(self) -> pl.DataType:
        """Its type in frames."""
        return _DTYPES[self.kind]


@dataclass(frozen=True, kw_only=True)
class SqlTable:
    """A table: what a row is, its key and its columns, in order."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[SqlColumn, ...]

    def schema(self) -> dict[str, pl.DataType]:
        """Column → type, as frames have it."""
        return {column.name: column.dtype for column in self.columns}


def canonical_json(value: object) -> str:
    """JSON text that is equal whenever the values are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def columns_of(*rows: str) -> tuple[SqlColumn, ...]:
    """Columns from lines `name kind meaning`; an exclamation mark after the kind forbids null."""
    found = []
    for row in rows:
        name, kind, meaning = row.split(" ", 2)
        nullable = not kind.endswith("!")
        found.append(SqlColumn(name=name, kind=_KINDS[kind.removesuffix("!")], meaning=meaning, nullable=nullable))
    return tuple(found)


_KINDS: dict[str, Kind] = {
    "text": "text",
    "int": "bigint",
    "float": "double precision",
    "bool": "boolean",
    "time": "timestamptz",
    "json": "jsonb",
    "texts": "text[]",
    "floats": "double precision[]",
}


def metric_columns(name: str) -> tuple[SqlColumn, ...]:
    """A metric's column, or one for each statistic of a distribution, with unit and formula in its meaning."""
    metric = BY_NAME[name]
    meaning = f"{metric.title} [{metric.unit}], {metric.direction} is better: {metric.formula}"
    if metric.direction == "neither":
        meaning = f"{metric.title} [{metric.unit}]: {metric.formula}"
    if not metric.distribution:
        return (SqlColumn(name=name, kind="double precision", meaning=meaning),)
    return distribution_columns(name, meaning)


def distribution_columns(name: str, meaning: str) -> tuple[SqlColumn, ...]:
    """A column for the number of values and one for each statistic; `meaning` is that of the values."""
    count = SqlColumn(name=f"{name}_n", kind="bigint", meaning=f"Number of values in {name}_*")
    return (
        count,
        *(
            SqlColumn(name=f"{name}_{statistic}", kind="double precision", meaning=f"{statistic} of: {meaning}")
            for statistic in STATISTICS
        ),
    )


MARKET_BASED = "co2_market_kg_per_1m_output_tok"
PER_GPU_METRICS = tuple(PER_GPU.values())
LATER = (MARKET_BASED, *PER_GPU_METRICS)
"""The derived metrics that came after others, whose columns therefore stand at the end of runs."""
_PREDICTION = columns_of(
    "predicted_output_tok_per_s float Predicted output throughput of the objective run [tok/s]",
    "predicted_ttft_s float Predicted mean time to first token [s]",
    "predicted_tpot_s float Predicted mean time per output token [s]",
    "predicted_kv_cache_tokens int Predicted size of the KV cache [tokens]",
    "predicted_binding text What is predicted to limit it",
    "predicted_limit_output_tok_per_s float The most that the hardware could give for this workload [tok/s]",
    "predicted_uncertainty float Half-width of the prediction's 80% interval as a ratio",
)

_DRAFTING = "predicted_draft_accepted_length float Tokens of a step with a draft, as it was assumed"
"""A column of the prediction that came later than others: it stands where its migration put it."""

SWEEPS = SqlTable(
    name="sweeps",
    row="one spec carried out on one inventory",
    key=("sweep_id",),
    columns=columns_of(
        "sweep_id text! Start, spec and inventory of the sweep",
        "name text! The spec's name",
        "inventory text! The inventory's name",
        "study text Several sweeps meant to be compared share it",
        "simulated bool! The engine was simulated: figures show how TokenPeak works, not how fast hardware is",
        "started_at time! When it began",
        "ended_at time When its controller left it; null while it runs and after a controller that died",
        "status text! completed, interrupted, or running when no end was recorded",
        "trials int! Trials that can be read",
        "objective_metric text! The metric that is to be best",
        "objective_direction text! higher or lower",
        "objective_workload text! The workload of the objective run",
        "objective_level text! The load level of the objective run",
        "production_downtime_s json! Seconds that each node's production did not serve",
        "unrestored texts! Nodes whose production was not seen to serve again",
        "problems texts! What went wrong, in sentences",
        "slo json! The limits that runs must hold",
        "spec json! The whole spec, defaults filled in",
        "calibration json What the load host was found able to measure",
        "format_version int! Of the raw files",
        "tokenpeak_version text! Of the TokenPeak that wrote it",
        "git_revision text Of that TokenPeak's checkout",
        "provenance json! All versions of software that made it",
        "imported json Where the figures come from when TokenPeak did not measure them",
    ),
)

NODES = SqlTable(
    name="nodes",
    row="a machine of a sweep, as the probe found it or its inventory declares it",
    key=("sweep_id", "node"),
    columns=columns_of(
        "sweep_id text! The sweep",
        "node text! Its name in the inventory",
        "hardware text! The kind of hardware; nodes that share it share a plan",
        "source text! probed or declared",
        "probed_at time When it was probed",
        "simulated bool! It is a simulated node",
        "gpu_count int! Number of GPUs",
        "gpu_name text Names of its GPUs",
        "vram_bytes int All GPUs' memory [bytes]",
        "driver text GPU driver's version",
        "gpu_power_limit_w float All GPUs' power limit [W]",
        "compute_capability text Of its first GPU",
        "cpu text Its CPU",
        "cpu_cores int Number of CPU cores",
        "memory_bytes int Memory [bytes]",
        "disk_free_bytes int Free disk when it was probed [bytes]",
        "os text Operating system",
        "kernel text Kernel",
        "engine_version text Version of the engine installed",
        "production_manager text What manages production: systemd, command, docker and so on",
        "production_running bool Production ran when the node was probed",
        "production_model text The model that production serves",
        "problems texts! What would keep a trial from running",
        "gpus json! Each GPU as the node's tools report it",
    ),
)


def _interval_lines(name: str, meaning: str) -> tuple[str, ...]:
    """The columns of a divergence with its interval."""
    return (
        f"{name}_nats float {meaning}, above the noise floor [nats a token]",
        f"{name}_low_nats float Lower end of {name}_nats, at 99% [nats a token]",
        f"{name}_high_nats float Upper end of {name}_nats, at 99% [nats a token]",
    )


CONFIGS = SqlTable(
    name="configs",
    row="a config of a sweep's matrix for one kind of hardware, feasible or dropped",
    key=("sweep_id", "hardware", "config_id"),
    columns=(
        *columns_of(
            "sweep_id text! The sweep",
            "hardware text! The kind of hardware",
            "config_id text! Hash of the whole resolved config",
            "config_name text! Its alternatives' names",
            "config_class text Configs of one class cannot differ under the workload",
            "status text! feasible, dropped, or unplanned when a trial has it and no plan does",
            "dropped_rule text The rule that forbids it",
            "dropped_reason text Why it cannot work on this hardware",
            "model_name text! The model",
            "model_revision text The model's revision",
            "served_name text! The name that requests use",
            "engine_version text The engine's version that it asks for",
            "forced bool! Tried although a rule forbids it",
            "flags json! Server flags",
            "env json! Environment of the engine",
            "choices json! Axis to alternative; empty for a config outside the grid",
            "advice texts! What the rules say about it",
        ),
        *_PREDICTION,
        *columns_of(
            "rank int 1 is best on this hardware; null when nothing was measured, or a launch achieved nothing",
            "objective_mean float Geometric mean of the objective over launches, less holdout runs and node effects",
            "engine_build text The name of the engine build that it is launched with; null where a node has but one",
            _DRAFTING,
            "objective_unproven_mean float The same of launches whose answers failed or are not proven right",
            "quality text pass, fail or unknown: whether its answers agree with the reference's; null: no verdict",
            "quality_reason text Why, in a sentence",
            "quality_is_reference bool Its answers are the reference's",
            "quality_changes texts! What it has otherwise than the reference that can change answers",
            *_interval_lines("quality_kl", "Divergence of prefill from the reference"),
            *_interval_lines("quality_answer_kl", "Divergence of generated answers from the reference's"),
            *_interval_lines("quality_long_kl", "The same over a long context"),
            "quality_top1_agreement float Share of tokens whose likeliest token is the reference's",
            "quality_perplexity_ratio float Perplexity of the texts to it ÷ to the reference",
            "quality_perplexity_ratio_low float Lower end of quality_perplexity_ratio, at 99%",
            "quality_perplexity_ratio_high float Upper end of quality_perplexity_ratio, at 99%",
            "quality_same_answers float Share of the questions that were answered with the reference's tokens",
            "quality_tasks int Questions and tasks that it and the reference answered",
            "quality_tasks_right int How many of them it answered right",
            "quality_reference_tasks_right int How many of them the reference answered right",
            "quality_margin_nats float The margin above the noise floor [nats a token]",
            "quality_examples json! Questions whose answers differ most from the reference's",
        ),
    ),
)

TRIALS = SqlTable(
    name="trials",
    row="one launch of one config on one node, whatever came of it",
    key=("sweep_id", "trial_id"),
    columns=(
        *columns_of(
            "sweep_id text! The sweep",
            "trial_id text! Number and config of the trial",
            "config_id text! The config",
            "config_name text! Its alternatives' names",
            "config_class text! Configs of one class cannot differ under the workload",
            "hardware text! The kind of hardware",
            "node text! Where it ran",
            "replicate int! 0 for the first launch of this config on this hardware",
            "simulated bool! The engine was simulated",
            "status text! ok, failed or interrupted",
            "failure_phase text When it failed",
            "failure_cause text Why it failed, in a word",
            "failure_message text Why it failed, in a sentence",
            "failure_evidence texts! Lines of the engine's log that show it",
            "objective float The objective's value; null when it has none that may be ranked",
            "slo_met bool Every SLO limit held in the objective run; null when it is not known",
            "started_at time! When it began",
            "duration_s float How long it took [s]",
            "orchestration_s float! TokenPeak's own part of it [s]",
            "engine_start_s float! The engine's start [s]",
            "load_s float! The load [s]",
            "production_start_s float! Production's start [s]",
            "phases json! Where the time went",
            "argv texts! The engine's command line as launched",
            "engine_version text The version that the engine reported itself",
            "kv_cache_tokens int Size of the KV cache [tokens], from the engine's log",
            "max_concurrency float Requests of full length that fit the KV cache, from the engine's log",
            "weights_load_s float Loading the weights [s]",
            "weights_bytes int Size of the weights [bytes]",
            "compile_s float Compiling and capturing graphs [s]",
            "ready_s float From exec to the first real completion [s]",
            "restored bool Production was as recorded afterwards; null when this trial did not touch it",
            "production_was_running bool Production ran before",
            "production_downtime_s float How long production did not serve [s]",
            "restoration_message text What restoring production said",
            "choices json! Axis to alternative; empty for a config outside the grid",
            "tokenpeak_version text! Of the TokenPeak that made it",
            "git_revision text Of that TokenPeak's checkout",
        ),
        *_PREDICTION,
        *columns_of(
            "holdout bool! Holdout run: its requests are none of any other; no config is picked or ranked by it",
            "ended_at time! When it ended; a search learns from trials in this order",
            "left_out text Why runs beside the objective's were not made; null: all were, as far as the trial went",
            "engine_digest text sha256 of the image, or of the command's file, that was started",
            "quality text pass, fail or unknown: whether its config's answers are as the reference's; null: no verdict",
            "quality_reason text Why, in a sentence",
            "quality_kl_nats float Divergence of its prefill from the reference, above the noise floor [nats a token]",
            "quality_kl_low_nats float Lower end of quality_kl_nats, at 99% [nats a token]",
            "quality_kl_high_nats float Upper end of quality_kl_nats, at 99% [nats a token]",
            "quality_top1_agreement float Share of tokens whose likeliest token is the reference's",
            "quality_perplexity_ratio float Perplexity of the texts to it ÷ to the reference",
            "quality_duration_s float How long measuring its answers took [s]; null: another launch shows them",
            _DRAFTING,
            "quality_problem text Why this launch's answers could not be measured to the end",
            "quality_accepted_tokens int Drafted tokens that were accepted while its answers were measured",
            "quality_cached_tokens int Prompt tokens found in the prefix cache while its answers were measured",
            "objective_unproven float What the objective is if its answers are right; null where it is ranked",
            "model_digest text sha256 of the model's files, by name, size and beginning; null: they were not found",
        ),
    ),
)

RUNS = SqlTable(
    name="runs",
    row="one workload at one load level within a trial",
    key=("sweep_id", "trial_id", "run_index"),
    columns=(
        *columns_of(
            "sweep_id text! The sweep",
            "trial_id text! The trial",
            "run_index int! Order of the run within its trial, from 0",
            "config_id text! The config",
            "config_name text! Its alternatives' names",
            "hardware text! The kind of hardware",
            "node text! Where it ran",
            "replicate int! 0 for the first launch of this config on this hardware",
            "simulated bool! The engine was simulated",
            "trial_status text! ok, failed or interrupted",
            "workload_name text! The workload's name",
            "workload_kind text! fixed, synthetic, dataset, conversation, trace, or external for an import",
            "workload json! The workload as declared",
            "level_kind text! closed (a concurrency is held), open (requests are due at a rate) or unknown",
            "level_label text! The load level in a few words",
            "concurrency int Requests in flight of a closed load",
            "rate_per_s float Requests due per second of an open load",
            "level json! The load level as declared",
            "slo json! The limits of this run",
            "slo_met bool Every limit held; null without limits or with too few requests",
            "verdict text! valid, invalid or not_judged",
            "verdict_codes texts! Why it is invalid, in words",
            "verdict_reasons texts! Why it is invalid, in sentences",
            "started_at time! When it began",
            "started_s float Seconds after the trial's start",
            "measured_from_s float When its first measured request was due, in seconds after the trial's start",
            "seed int Seed of its random choices",
            "duration_s float From the first measured request's due time to the last measured token [s]",
            "requests_sent int Measured requests sent",
            "requests_ok int Measured requests that ended well",
            "requests_failed int Measured requests that failed",
            "failures json! Failed requests by kind",
            "input_tokens int Prompt tokens of the measured requests",
            "output_tokens int Output tokens of the measured requests",
        ),
        *metric_columns("request_per_s"),
        *metric_columns("output_tok_per_s"),
        *metric_columns("input_tok_per_s"),
        *metric_columns("total_tok_per_s"),
        *metric_columns("peak_output_tok_per_s"),
        *columns_of("windowed_output_tok_per_s floats! Output tokens in each successive second of the run"),
        *metric_columns("goodput_request_per_s"),
        *metric_columns("request_output_tok_per_s"),
        *metric_columns("ttft_s"),
        *metric_columns("tpot_s"),
        *metric_columns("itl_s"),
        *metric_columns("latency_s"),
        *columns_of(
            "client_processes int Processes of the load client",
            "client_cpu_s float CPU time of the load client [s]",
            "client_cpu_per_token_s float CPU time of the load client per output token [s]",
        ),
        *distribution_columns("client_dispatch_delay_s", "how long after it was due a request was sent [s]"),
        *distribution_columns("client_loop_lag_s", "how late the load client's event loop was [s]"),
        *columns_of(
            "engine_prompt_tok_per_s float Prompt tokens per second by the engine's counters",
            "engine_generation_tok_per_s float Generated tokens per second by the engine's counters",
            "engine_prefix_cache_hit_rate float Share of prompt tokens that the prefix cache served",
            "engine_preemptions int Requests that the engine preempted",
            "engine_running_mean float Requests running, mean",
            "engine_running_max float Requests running, most",
            "engine_waiting_mean float Requests waiting in the engine, mean",
            "engine_waiting_max float Requests waiting in the engine, most",
            "engine_kv_cache_usage_mean float Share of the KV cache in use, mean",
            "engine_kv_cache_usage_max float Share of the KV cache in use, most",
            "energy_source text energy_counter, sampled_power or estimated_tdp",
            "energy_boundary text What the energy covers: gpu_boards, cpu_package, cpu_and_dram or node",
            "energy_j float Energy of the run within the boundary [J]; null where the run was too short for ±5%",
        ),
        *metric_columns("power_w"),
        *metric_columns("energy_j_per_output_tok"),
        *(column for metric in DERIVED if metric.name not in LATER for column in metric_columns(metric.name)),
        *columns_of(
            "cost_currency text Currency of the cost",
            "max_rate_per_s float The highest rate within the limits [req/s], by search; null: none held or no search",
            "max_rate_low_per_s float Lower end of the interval that holds it [req/s]",
            "max_rate_high_per_s float Upper end of the interval that holds it [req/s]",
            "max_rate_confidence float Probability that the interval holds it",
            "max_rate_ended text Why the search ended: found, budget, probes, unreachable, unbounded",
            "max_rate_probes json Every rate that the search tried",
            "within_limits json! How many requests held each limit of the SLO, but for ITL; empty: not counted",
            "well_measured bool It describes the engine: it is not invalid, or for no reason but the engine's own",
            "overloaded bool Well measured, at a rate that was more than the engine could serve",
            "rate_held bool The engine kept up with the rate within the SLO; null when that is not known",
            "energy_low_j float Lower end of the energy's 95% interval by the sensor's readings [J]",
            "energy_high_j float Upper end of the energy's 95% interval by the sensor's readings [J]",
            "energy_needed_s float How long the run had to be for ±5% [s]; null where it was long enough",
        ),
        *metric_columns("saturation_per_s"),
        *columns_of(
            "saturation_low_per_s float Lower end of saturation_per_s, at max_rate_confidence [req/s]",
            "saturation_high_per_s float Upper end of saturation_per_s, at max_rate_confidence [req/s]",
            "steady_state text steady, overloaded or too_short: whether the engine kept up with the run's rate",
            "queue_growth float Requests in flight that each arrival added: 1 − capacity ÷ rate when overloaded",
            "queue_growth_error float Standard error of queue_growth",
            "steady_state_margin float An overload of this share of capacity or more is excluded by steady",
            "percentile_intervals json 95% interval of each percentile of the SLO [s]; a null end is not known",
            "recomputed_share float About the share of tokens computed again after preemptions; null: not counted",
            "temperature_c float Mean temperature of the boards when the run began [°C]; null: not read",
        ),
        *metric_columns(MARKET_BASED),
        *columns_of(
            "node_j_per_output_tok float Measured energy of the whole node per output token [J]; null: no meter",
            "cpu_j_per_output_tok float Measured energy of CPU, with memory where counted, per output token [J]",
            "idle_power_w float What energy_boundary draws before any engine starts [W]; null: not measured",
            "idle_share float Share of energy_j that idle_power_w comes to; null: not measured",
            "engine_draft_acceptance_rate float Share of drafted tokens that were accepted; null: nothing was drafted",
            "engine_draft_accepted_length float Mean tokens of a step with a draft, its own one counted; null: none",
        ),
        *(column for name in PER_GPU_METRICS for column in metric_columns(name)),
    ),
)

SERIES = SqlTable(
    name="series",
    row="one sample of one quantity during a trial",
    key=("sweep_id", "trial_id", "quantity", "t_s"),
    columns=columns_of(
        "sweep_id text! The sweep",
        "trial_id text! The trial",
        "quantity text! What was sampled; the name carries the unit",
        "t_s float! Seconds after the trial's start",
        "value float The sample; null when none was taken",
    ),
)

_COUNTS = (
    "run_index",
    "request_index",
    "turn",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "events",
    "status",
)
_REQUEST_KINDS = {"phase": "text", "error": "text"} | dict.fromkeys(_COUNTS, "int")

REQUESTS = SqlTable(
    name="requests",
    row="one HTTP request of a run; the times of its single events stay in the archive's Parquet files",
    key=("sweep_id", "trial_id", "run_index", "phase", "request_index"),
    columns=columns_of(
        "sweep_id text! The sweep",
        "trial_id text! The trial",
        *(
            f"{name} {_REQUEST_KINDS.get(name, 'float')} {meaning}"
            for name, meaning in REQUEST_COLUMNS.items()
            if name != "event_times_us"
        ),
    ),
)

RECORDS = SqlTable(
    name="records",
    row="a sweep's record and how it ended, as they were written, from which a report is made again",
    key=("sweep_id",),
    columns=columns_of(
        "sweep_id text! The sweep",
        "record text! What the sweep set out to do, whole, as JSON text, which keeps the order of axes",
        "end_record text How it stood when its controller left it, as JSON; null where none recorded that",
    ),
)

TABLES: tuple[SqlTable, ...] = (SWEEPS, RECORDS, NODES, CONFIGS, TRIALS, RUNS, SERIES, REQUESTS)
"""In the order in which they are filled."""
EXPORTED = tuple(table for table in TABLES if table is not RECORDS)
"""Those that an export holds; a record is in the archive's sweep.json."""

COMPUTED = {
    "sweep_name": "The spec's name",
    "objective_holdout": "The objective of the holdout run, by which nothing was picked",
    "objective_std": "Standard deviation of the objective between launches; null with one",
    "launches": "Trials of the config that were not interrupted",
    "measured": "Launches that gave a value that may be ranked",
    "failures": "Launches that failed",
}
"""What a column that a `v_*` view computes, or shows under another name, holds."""
