"""Formats of traces: which keys mark one, and what a row of it says. One row of the table below for each format.

Times become seconds, and count from any zero. A row that says no lengths, as a failed request's, is no request.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]

MOONCAKE_BLOCK_TOKENS = 512
_DATE = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?P<part>\.\d{1,12})?(?P<zone>Z|[+-]\d\d:?\d\d)?", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class TraceRow:
    """What a row says of a request; lengths of 0 or less are of one that failed."""

    at_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[str, ...] = ()
    session: str | None = None
    cached_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class TraceFormat:
    """A format, with the schema that its reader follows."""

    name: str
    marks: tuple[str, ...]
    """Keys that a row has: all of them, each by the path to it."""
    row: Callable[[Row], TraceRow | None]
    """None for a row that is no request."""
    source: str
    block_tokens: int = MOONCAKE_BLOCK_TOKENS

    def is_marked(self, row: Row) -> bool:
        """Whether a row is of this format."""
        return all(at(row, mark) is not None for mark in self.marks)


def at(row: object, path: str) -> Any:
    """The value at a path of keys, `a/b`; None where there is none."""
    for key in path.split("/"):
        row = row.get(key) if isinstance(row, Mapping) else None
    return row


def _blocks(value: object) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _session(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def seconds_of(text: str) -> float:
    """A date's seconds since 1970; one without a zone counts as UTC, which changes no difference. ValueError."""
    date = _DATE.fullmatch(text.strip())
    if date is None:
        raise ValueError(f"{text!r} is no date")
    zone = (date["zone"] or "+00:00").replace("Z", "+00:00")
    return datetime.fromisoformat(date["second"] + zone).timestamp() + float(date["part"] or 0)


def _own(row: Row) -> TraceRow:
    return TraceRow(
        at_s=float(row["timestamp_s"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        blocks=_blocks(row.get("blocks")),
        session=_session(row.get("session")),
        cached_tokens=int(row.get("cached_tokens") or 0),
    )


def _mooncake(row: Row) -> TraceRow:
    return TraceRow(
        at_s=float(row["timestamp"]) / 1000,
        input_tokens=int(row["input_length"]),
        output_tokens=int(row["output_length"]),
        blocks=_blocks(row.get("hash_ids")),
        session=_session(row.get("session_id")),
    )


def _azure(row: Row) -> TraceRow:
    return TraceRow(
        at_s=seconds_of(str(row["TIMESTAMP"])),
        input_tokens=int(row["ContextTokens"]),
        output_tokens=int(row["GeneratedTokens"]),
    )


def _burst_gpt(row: Row) -> TraceRow:
    return TraceRow(
        at_s=float(row["Timestamp"]),
        input_tokens=int(row["Request tokens"]),
        output_tokens=int(row["Response tokens"]),
        session=_session(row.get("Session ID")),
    )


def _ai_perf(row: Row) -> TraceRow | None:
    lengths = [at(row, f"metrics/{kind}_sequence_length/value") for kind in ("input", "output")]
    if None in lengths or at(row, "metadata/benchmark_phase") == "warmup":
        return None
    due = at(row, "metadata/credit_issued_ns") or at(row, "metadata/request_start_ns")
    return TraceRow(
        at_s=int(due) / 1e9,
        input_tokens=int(lengths[0]),
        output_tokens=int(lengths[1]),
        session=_session(at(row, "metadata/conversation_id")),
    )


def _guide_llm(row: Row) -> TraceRow | None:
    begin = _first(row, ("request_start_time", "start_time"))
    given, made = row["prompt_tokens"], row.get("output_tokens")
    if begin is None or made is None:
        return None
    return TraceRow(at_s=float(begin), input_tokens=int(given), output_tokens=int(made))


def _first(row: Row, names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _completion(row: Row) -> TraceRow | None:
    """A response of the API, by itself or in a log's entry of request and response."""
    answer = at(row, "response/body") or row.get("response") or row
    given, made = at(answer, "usage/prompt_tokens"), at(answer, "usage/completion_tokens")
    begin = _first(row, ("timestamp", "start_time", "created_at", "created")) or at(answer, "created")
    if given is None or made is None or begin is None:
        return None
    return TraceRow(
        at_s=seconds_of(begin) if isinstance(begin, str) else float(begin),
        input_tokens=int(given),
        output_tokens=int(made),
        session=_session(row.get("session_id") or row.get("conversation_id")),
    )


def _span(row: Row) -> TraceRow:
    return TraceRow(
        at_s=int(row["startTimeUnixNano"]) / 1e9,
        input_tokens=int(row["gen_ai.usage.input_tokens"]),
        output_tokens=int(row["gen_ai.usage.output_tokens"]),
        session=_session(row.get("gen_ai.conversation.id")),
    )


FORMATS = (
    TraceFormat(
        name="tokenpeak",
        marks=("timestamp_s", "input_tokens", "output_tokens"),
        row=_own,
        source="the guide to one's own traffic",
    ),
    TraceFormat(
        name="mooncake",
        marks=("timestamp", "input_length", "output_length"),
        row=_mooncake,
        source="github.com/kvcache-ai/Mooncake, FAST25-release/traces: milliseconds, blocks of 512 tokens",
    ),
    TraceFormat(
        name="azure",
        marks=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        row=_azure,
        source="github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024",
    ),
    TraceFormat(
        name="burstgpt",
        marks=("Timestamp", "Request tokens", "Response tokens"),
        row=_burst_gpt,
        source="github.com/HPMLL/BurstGPT, README.md: seconds; responses of 0 tokens failed",
    ),
    TraceFormat(
        name="aiperf",
        marks=("metadata/request_start_ns", "metrics"),
        row=_ai_perf,
        source="github.com/ai-dynamo/aiperf, profile_export.jsonl: MetricRecordInfo",
    ),
    TraceFormat(
        name="guidellm",
        marks=("request_id", "prompt_tokens"),
        row=_guide_llm,
        source="github.com/vllm-project/guidellm, benchmarks.json: benchmarks/requests/successful",
    ),
    TraceFormat(
        name="opentelemetry",
        marks=("startTimeUnixNano", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        row=_span,
        source="opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans, in OTLP's JSON",
    ),
    TraceFormat(
        name="openai",
        marks=("usage/prompt_tokens",),
        row=_completion,
        source="platform.openai.com/docs/api-reference/chat/object: created and usage",
    ),
    TraceFormat(
        name="openai",
        marks=("response",),
        row=_completion,
        source="platform.openai.com/docs/api-reference/batch/request-output: response/body",
    ),
)
