"""The block that `vllm bench serve` prints, out of a log or a web page, with or without its line breaks."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.fields import mean_lengths, summary_of, with_derived, workload_of
from tokenpeak.exchange.foreign import ForeignRun
from tokenpeak.exchange.reading import checked_number, read_text
from tokenpeak.spec.workload import ExternalLoad

HEAD = "Serving Benchmark Result"
LABELS = {
    "Successful requests": "requests_ok",
    "Failed requests": "requests_failed",
    "Benchmark duration (s)": "duration_s",
    "Total input tokens": "input_tokens",
    "Total generated tokens": "output_tokens",
    "Request throughput (req/s)": "request_per_s",
    "Request goodput (req/s)": "goodput_request_per_s",
    "Output token throughput (tok/s)": "output_tok_per_s",
    "Peak output token throughput (tok/s)": "peak_output_tok_per_s",
    "Total token throughput (tok/s)": "total_tok_per_s",
    "Total Token throughput (tok/s)": "total_tok_per_s",
}
TIMES = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "itl_s", "E2EL": "latency_s"}
STATISTICS = {
    "Mean": "mean",
    "Median": "p50",
    "P25": "p25",
    "P50": "p50",
    "P75": "p75",
    "P90": "p90",
    "P95": "p95",
    "P99": "p99",
}
CONCURRENCY, RATE = "Maximum request concurrency", "Request rate configured (RPS)"
FIGURE = re.compile(r"([A-Z][A-Za-z0-9./() ]{2,60}?)(?: \((ms)\))?:\s+([0-9][0-9.,eE+-]*|nan|inf)\b")
MODEL = re.compile(r"--model[= ](\S+)|(?<=model=')([^']+)")


def holds_block(text: str) -> bool:
    """The text has a printed result."""
    return HEAD in text


def read_printed(path: Path) -> tuple[list[ForeignRun], list[str]]:
    """The runs printed in a file, and the labels that have no place."""
    text = read_text(path)
    pieces = text.split(HEAD)
    if len(pieces) < 2:
        raise ArchiveError(f"{path}: no {HEAD!r} in it.")
    found = [run_of(piece, path, before) for before, piece in pairwise(pieces)]
    return [run for run, _ in found], [label for _, unread in found for label in unread]


def run_of(block: str, path: Path, before: str = "", **known: object) -> tuple[ForeignRun, list[str]]:
    """The run of one block; `before` is searched for the command's model."""
    values: dict[str, float] = {}
    unread: list[str] = []
    level: dict[str, float] = {}
    for match in FIGURE.finditer(re.split(r"={40,}", block, maxsplit=1)[0] or block[:6000]):
        label, milli, figure = match[1].strip(" -"), match[2], match[3]
        if figure in ("nan", "inf"):
            continue
        value = checked_number(figure.rstrip("."), _refuse(path, label))
        target = LABELS.get(f"{label} ({milli})" if milli else label)
        statistic, _, metric = label.partition(" ")
        if target:
            values[target] = value
        elif metric in TIMES and statistic in STATISTICS and milli:
            values[f"{TIMES[metric]}_{STATISTICS[statistic]}"] = value / 1000
        elif label in (CONCURRENCY, RATE):
            level[label] = value
        else:
            unread.append(label)
    if "requests_ok" not in values or "duration_s" not in values:
        raise ArchiveError(f"{path}: a {HEAD!r} that breaks off before its figures. Copy the whole block.")
    ok = values["requests_ok"]
    if not ok:
        # Without a request that ended well the tool prints zeros, which nobody measured.
        values = {name: value for name, value in values.items() if not name.startswith(tuple(TIMES.values()))}
    values["requests_sent"] = ok + values.get("requests_failed", 0.0)
    model = MODEL.findall(before[-4000:])
    run = {
        "model": next((name for pair in reversed(model) for name in pair if name), "unknown"),
        "workload": workload_of(mean_lengths(values)),
        "level": ExternalLoad(
            external=True,
            concurrency=int(level[CONCURRENCY]) if level.get(CONCURRENCY) else None,
            rate_per_s=level.get(RATE) or None,
            requests=int(values["requests_sent"]) or None,
        ),
        "summary": summary_of(with_derived(values)),
        **known,
    }
    return ForeignRun(**run), unread  # type: ignore[arg-type]


def _refuse(path: Path, label: str) -> Callable[[str], NoReturn]:
    def refuse(words: str) -> NoReturn:
        raise ArchiveError(f"{path}: {label} {words}.")

    return refuse
