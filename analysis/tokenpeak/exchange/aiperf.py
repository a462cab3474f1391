"""AIPerf's summary (`profile_export_aiperf.json`), and GenAI-Perf's of the same shape."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.foreign import ForeignRun, JsonFormat, summary_of, workload_of
from tokenpeak.exchange.reading import Fields, read_json
from tokenpeak.metrics import STATISTICS
from tokenpeak.spec.load import ExternalLoad

EXPORT = "profile_export_aiperf.json"
MARKS = ("request_latency", "request_throughput")
TIMES = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",
    "inter_chunk_latency": "itl_s",
    "request_latency": "latency_s",
    "e2e_output_token_throughput": "request_output_tok_per_s",
}
SCALARS = {
    "request_throughput": "request_per_s",
    "output_token_throughput": "output_tok_per_s",
    "total_token_throughput": "total_tok_per_s",
    "input_token_throughput": "input_tok_per_s",
    "goodput": "goodput_request_per_s",
    "benchmark_duration": "duration_s",
    "request_count": "requests_ok",
    "error_request_count": "requests_failed",
    "total_isl": "input_tokens",
    "total_osl": "output_tokens",
    "total_output_tokens": "output_tokens",
}
UNITS = {"ms": 0.001, "sec": 1.0, "s": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}
"""Factors to seconds; other units are rates and counts, taken as they are."""
MAPPING = {ours: theirs for theirs, ours in TIMES.items()} | {ours: theirs for theirs, ours in SCALARS.items()}
DIFFERENCES = (
    "AIPerf's inter-token latency is (latency − TTFT) ÷ (tokens − tokens of the first chunk) of each request: kept as "
    "TPOT, and equal to ours where the first chunk has one token. Its inter-chunk latency is our ITL.",
    "AIPerf's output throughput per user is 1 ÷ its inter-token latency and left out; its end-to-end throughput, "
    "tokens ÷ latency, is our output speed of a request.",
)
WARM_UP = "warmup"
SELF = "output_token_throughput_per_user: 1 ÷ inter-token latency, not tokens ÷ latency"
IGNORED = (
    "schema_version", "aiperf_version", "benchmark_id", "run_info", "is_complete", "was_cancelled", "start_time",
    "end_time", "error_summary", "telemetry_data", "min_request_timestamp", "max_response_timestamp",
    "output_sequence_length", "input_sequence_length", "output_token_count", "output_token_throughput_per_user",
)  # fmt: skip


def looks_like(raw: object) -> bool:
    """The object is such a summary."""
    return isinstance(raw, Mapping) and all(
        isinstance(part := raw.get(key), Mapping) and "unit" in part for key in MARKS
    )


def tool_of(raw: Any) -> str:
    """The tool with its version."""
    version = raw.get("aiperf_version")
    return f"aiperf {str(version)[:40]}" if version else "aiperf"


def read_aiperf(path: Path) -> tuple[list[ForeignRun], list[str]]:
    """The run of a summary, and its metrics that have no place."""
    raw = read_json(path)
    if not looks_like(raw):
        raise ArchiveError(f"{path}: no summary of AIPerf; it lacks {', '.join(MARKS)} with units.")
    fields = Fields(raw, path)
    fields.ignore(IGNORED)
    values: dict[str, float] = {}
    for theirs, ours in SCALARS.items():
        part = fields.part(theirs)
        value = part.number("avg", scale=_scale(part)) if part is not None else None
        if value is not None:
            values[ours] = value if ours.endswith("_s") else round(value)
    for theirs, ours in TIMES.items():
        part = fields.part(theirs)
        if part is None:
            continue
        scale = _scale(part)
        for statistic in STATISTICS:
            name = "avg" if statistic == "mean" else statistic
            if (value := part.number(name, scale=scale)) is not None:
                values[f"{ours}_{statistic}"] = value
        count = part.number("count")
        if count is not None and ours != "itl_s":
            values[f"{ours}_n"] = count
    values["requests_sent"] = values.get("requests_ok", 0) + values.get("requests_failed", 0)
    values.setdefault("requests_failed", 0)
    if values.get("duration_s") and "input_tokens" in values:
        values.setdefault("input_tok_per_s", values["input_tokens"] / values["duration_s"])
    lengths = {
        ours: mean
        for theirs, ours in (("input_sequence_length", "input_tokens"), ("output_sequence_length", "output_tokens"))
        if (part := fields.part(theirs)) is not None and (mean := part.number("avg"))
    }
    config = fields.raw("input_config")
    return [
        ForeignRun(
            model=_model(config),
            workload=workload_of(lengths),
            level=_level(config, path, int(values["requests_sent"]) or None),
            summary=summary_of(values),
        )
    ], [*fields.unread(), SELF]


def _scale(part: Fields) -> float:
    return UNITS.get((part.text("unit") or "").casefold(), 1.0)


def _find(config: object, names: tuple[str, ...], depth: int = 0) -> Any:
    """The first value of one of these names anywhere in the tool's own configuration."""
    if depth > 8:
        return None
    if isinstance(config, Mapping):
        for name in names:
            if config.get(name) not in (None, "", []):
                return config[name]
        parts: list[Any] = list(config.values())
    else:
        parts = config if isinstance(config, list) else []
    return next((value for part in parts if (value := _find(part, names, depth + 1)) is not None), None)


def _level(config: object, path: Path, requests: int | None) -> ExternalLoad:
    asked = _measured(config, path)

    def number(*names: str) -> float | None:
        value = _find(asked, names)
        value = value[0] if isinstance(value, list) and value else value
        return Fields({"level": value}, path, "input_config").number("level") if _plain(value) else None

    concurrency, rate = number("concurrency"), number("request_rate", "rate")
    return ExternalLoad(
        external=True,
        concurrency=int(concurrency) if concurrency else None,
        rate_per_s=rate or None,
        requests=requests,
    )


def _measured(config: object, path: Path) -> object:
    """The phase whose requests are in the figures, with what it does not say itself; nothing where several are."""
    phases = config.get("phases") if isinstance(config, Mapping) else None
    if isinstance(phases, Mapping):
        phases = [{"name": name, **phase} for name, phase in phases.items() if isinstance(phase, Mapping)]
    if not isinstance(phases, list) or not phases:
        return config
    counted = [phase for phase in phases if not _is_excluded(phase)]
    if not counted:
        raise ArchiveError(f"{path}: each phase is excluded from the results, so there is none. Import another run.")
    return counted[0] if len(counted) == 1 else None


def _is_excluded(phase: object) -> bool:
    """A warm-up, or another phase that the tool leaves out of its figures."""
    if not isinstance(phase, Mapping):
        return False
    said = phase.get("exclude_from_results", phase.get("exclude"))
    return bool(said) if said is not None else WARM_UP in (phase.get("kind"), phase.get("name"))


def _plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _model(config: object) -> str:
    model = _find(config, ("model_names", "model_name", "model", "models"))
    model = model.get("items") if isinstance(model, Mapping) else model
    model = model[0] if isinstance(model, list) and model else model
    model = model.get("name") if isinstance(model, Mapping) else model
    return str(model)[:200] if isinstance(model, str) and model else "unknown"


FORMAT = JsonFormat(
    name="aiperf",
    looks_like=looks_like,
    tool_of=tool_of,
    read=lambda path: (*read_aiperf(path), []),
    differences=DIFFERENCES,
    mapping=MAPPING,
)
