"""GuideLLM's report, JSON or YAML (its schema version 2, and version 1 where the keys are the same)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.foreign import ForeignRun, JsonFormat, summary_of, workload_of
from tokenpeak.exchange.reading import Fields, read_document
from tokenpeak.metrics import STATISTICS
from tokenpeak.spec.load import ExternalLoad

TIMES: Mapping[str, tuple[str, float]] = {
    "time_to_first_token_ms": ("ttft_s", 0.001),
    "inter_token_latency_ms": ("tpot_s", 0.001),
    "request_latency": ("latency_s", 1.0),
}
"""Its metric → ours, and the factor to seconds."""
RATES = {
    "requests_per_second": "request_per_s",
    "output_tokens_per_second": "output_tok_per_s",
    "prompt_tokens_per_second": "input_tok_per_s",
    "tokens_per_second": "total_tok_per_s",
}
MAPPING = {ours: theirs for theirs, (ours, _) in TIMES.items()} | {ours: theirs for theirs, ours in RATES.items()}
DIFFERENCES = (
    "GuideLLM's inter-token latency is (last − first token) ÷ (tokens − 1) of each request: our TPOT, and kept as it. "
    "Its mean and percentiles weight each request by its tokens, and its n counts tokens; ours count requests. "
    "Its own time per output token counts TTFT in, and is left out. Gaps between events (our ITL) it does not give.",
    "GuideLLM's rates are means over time of the successful requests, ramp-up and ramp-down included.",
    "GuideLLM stops at a time: requests in flight then are incomplete, and count neither as sent nor as failed.",
)
OWN_TPOT = "time_per_output_token_ms: counts TTFT in; inter_token_latency_ms is our TPOT"
IGNORED = (
    "text", "image", "video", "audio", "tool_call", "turns", "request_totals", "request_concurrency",
    "prompt_token_count", "output_token_count", "total_token_count",
)  # fmt: skip
"""Read apart, or not of tokens."""


def looks_like(raw: object) -> bool:
    """The object is such a report."""
    return (
        isinstance(raw, Mapping)
        and isinstance(benchmarks := raw.get("benchmarks"), list)
        and bool(benchmarks)
        and isinstance(benchmarks[0], Mapping)
        and "metrics" in benchmarks[0]
    )


def tool_of(raw: Any) -> str:
    """The tool with its version."""
    metadata = raw.get("metadata")
    version = metadata.get("guidellm_version") if isinstance(metadata, Mapping) else None
    return f"guidellm {str(version)[:40]}" if version else "guidellm"


def read_guidellm(path: Path) -> tuple[list[ForeignRun], list[str]]:
    """The runs of a report, and its metrics that have no place."""
    report = Fields(read_document(path), path)
    benchmarks = report.items("benchmarks", required=True)
    if not benchmarks:
        raise ArchiveError(f"{path}: a GuideLLM report without benchmarks.")
    model = _model(report.part("config"))
    runs: list[ForeignRun] = []
    unread: list[str] = []
    for index, raw in enumerate(benchmarks):
        run, own = _run(Fields(raw, path, f"benchmarks[{index}]"), model)
        runs.append(run)
        unread += own
    return runs, list(dict.fromkeys(unread))


def _run(benchmark: Fields, model: str | None) -> tuple[ForeignRun, list[str]]:
    metrics = benchmark.part("metrics")
    if metrics is None:
        benchmark.refuse("metrics", "is missing")
    metrics.ignore(IGNORED)
    values: dict[str, float] = {}
    incomplete = 0
    if (totals := metrics.part("request_totals")) is not None:
        values |= _counts(totals)
        incomplete = totals.count("incomplete") or 0
    for theirs, (ours, scale) in TIMES.items():
        values |= _distribution(metrics, theirs, ours, scale)
    for theirs, ours in RATES.items():
        if (own := _successful(metrics, theirs)) is not None and (mean := own.number("mean")) is not None:
            values[ours] = mean
    lengths: dict[str, float] = {}
    for theirs, ours in (("prompt_token_count", "input_tokens"), ("output_token_count", "output_tokens")):
        own = _successful(metrics, theirs)
        if own is not None:
            if (total := own.number("total_sum")) is not None:
                values[ours] = round(total)
            if mean := own.number("mean"):
                lengths[ours] = mean
    scheduler = benchmark.part("scheduler_metrics")
    start, end = (scheduler.number(key) if scheduler else None for key in ("measure_start_time", "measure_end_time"))
    if start and end and end > start:
        values["duration_s"] = end - start
    metrics.raw("time_per_output_token_ms")
    unread = [f"metrics.{key}" for key in metrics.unread()]
    if incomplete:
        unread.append(
            f"{benchmark.place}: {incomplete:,} requests in flight at the end, which neither ended nor failed"
        )
    config = benchmark.part("config")
    return (
        ForeignRun(
            model=model or _model(config) or "unknown",
            workload=workload_of(lengths),
            level=_level(config, values),
            summary=summary_of(values),
        ),
        [*unread, f"metrics.{OWN_TPOT}"],
    )


def _counts(totals: Fields) -> dict[str, float]:
    """Requests that ended well and those that failed; one in flight when the benchmark ended is neither."""
    counts: dict[str, float] = {}
    for theirs, ours in (("successful", "requests_ok"), ("errored", "requests_failed")):
        if (count := totals.count(theirs)) is not None:
            counts[ours] = count
    if counts:
        counts.setdefault("requests_failed", 0)
        counts["requests_sent"] = sum(counts.values())
    return counts


def _successful(metrics: Fields, name: str) -> Fields | None:
    whole = metrics.part(name)
    return whole.part("successful") if whole is not None else None


def _distribution(metrics: Fields, theirs: str, ours: str, scale: float) -> dict[str, float]:
    own = _successful(metrics, theirs)
    if own is None or not own.number("count"):
        return {}
    statistics: dict[str, float | None] = {
        f"{ours}_n": own.number("count"),
        f"{ours}_mean": own.number("mean", scale=scale),
        f"{ours}_std": own.number("std_dev", scale=scale),
        f"{ours}_p50": own.number("median", scale=scale),
    }
    percentiles = own.part("percentiles")
    if percentiles is not None:
        for name in STATISTICS:
            if name[0] == "p" and (value := percentiles.number(name, scale=scale)) is not None:
                statistics[f"{ours}_{name}"] = value
    return {name: value for name, value in statistics.items() if value is not None}


def _level(config: Fields | None, values: Mapping[str, float]) -> ExternalLoad:
    strategy = (config.part("strategy") or config.part("profile")) if config is not None else None
    requests = int(values.get("requests_sent", 0)) or None
    if strategy is None:
        return ExternalLoad(external=True, requests=requests)
    kind = strategy.text("type_") or strategy.text("kind") or ""
    rate = strategy.raw("rate")
    rate = rate[0] if isinstance(rate, list) and rate else rate
    number = Fields({"rate": rate}, strategy.path, strategy.place).number("rate")
    streams = strategy.raw("streams")
    streams = streams[0] if isinstance(streams, list) and streams else streams
    count = Fields({"streams": streams}, strategy.path, strategy.place).count("streams")
    if kind in ("constant", "poisson", "async"):
        return ExternalLoad(external=True, rate_per_s=number or None, requests=requests)
    if kind == "synchronous":
        count = 1
    return ExternalLoad(external=True, concurrency=count or None, requests=requests)


def _model(config: Fields | None) -> str | None:
    """The backend's model: of the report's configuration in version 2, of each benchmark's in version 1."""
    spec = (config.part("spec") or config) if config is not None else None
    backend = spec.part("backend") if spec is not None else None
    return backend.text("model") if backend is not None else None


FORMAT = JsonFormat(
    name="guidellm",
    looks_like=looks_like,
    tool_of=tool_of,
    read=lambda path: (*read_guidellm(path), []),
    differences=DIFFERENCES,
    mapping=MAPPING,
)
