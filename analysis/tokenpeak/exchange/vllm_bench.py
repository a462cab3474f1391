"""`vllm bench serve`, of every release since 0.6: saved results, plain or detailed, and the block that it prints.

TTFT, TPOT, ITL and throughput are defined as ours, but for one thing: latencies count from when a request was sent,
so at a rate they leave out what it waited in the client.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.engine_flags import EngineFlags, engine_flags
from tokenpeak.exchange.foreign import STATISTIC_OF, ForeignRun, mean_lengths, summary_of, with_derived, workload_of
from tokenpeak.exchange.reading import READ, Fields, checked_number, parse_json, read_text
from tokenpeak.spec.load import ExternalLoad
from tokenpeak.store.request_files import REQUEST_TYPES

TIMES = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "latency_s"}
MARKS = ("output_throughput", "completed", "duration")
"""Keys that every result of this tool has."""
SENT_NOT_DUE = (
    "TTFT and latency count from when a request was sent; ours, at a rate, from when it was due. "
    "They agree as long as the client keeps up."
)
FIGURES = {
    "duration": "duration_s",
    "completed": "requests_ok",
    "failed": "requests_failed",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
    "request_throughput": "request_per_s",
    "request_goodput": "goodput_request_per_s",
    "request_goodput:": "goodput_request_per_s",
    "output_throughput": "output_tok_per_s",
    "input_token_throughput": "input_tok_per_s",
    "total_token_throughput": "total_tok_per_s",
    "max_output_tokens_per_s": "peak_output_tok_per_s",
}
"""Its keys for ours. Releases around 0.6.4 wrote the goodput's key with a colon."""
DETAIL = ("input_lens", "output_lens", "ttfts", "itls", "errors", "start_times", "latencies", "queue_times")
IGNORED = ("generated_texts", "tokenizer_id", "endpoint_type", "num_prompts", "date", "rtfx")
"""Said elsewhere, or no figure."""

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
    "Total throughput (tok/s)": "total_tok_per_s",
    "Input token throughput (tok/s)": "input_tok_per_s",
}
CONCURRENCY = ("Maximum request concurrency", "Max request concurrency")
RATE = ("Request rate configured (RPS)", "Traffic request rate")
PRINTED_TIMES = {**TIMES, "e2e latency": "latency_s"}
"""SGLang prints the block too, under some other words."""
FIGURE = re.compile(r"([A-Z][A-Za-z0-9./() ]{2,60}?)(?: \((ms)\))?:\s+([0-9][0-9.,eE+-]*|nan|inf)\b")
MODEL = re.compile(r"--model[= ](\S+)|(?<=model=')([^']+)")
"""Of the block that the tool prints, found in a log or a web page, with or without its line breaks."""


def looks_like(raw: object) -> bool:
    """The object is a result of this tool."""
    return isinstance(raw, Mapping) and all(key in raw for key in MARKS)


def read_results(path: Path) -> list[tuple[Fields, Any]]:
    """Every result in a file: one object, a list, or objects one after the other as --append-result leaves them."""
    text = read_text(path)
    raws = objects(text, path)
    if not raws or not all(looks_like(raw) for raw in raws):
        raise ArchiveError(f"{path}: no result of vllm bench serve; it lacks {', '.join(MARKS)}. {READ}")
    return [(Fields(raw, path, f"[{index}]" if len(raws) > 1 else ""), raw) for index, raw in enumerate(raws)]


def objects(text: str, path: Path) -> list[Any]:
    """The objects in a text: one, a list, or one after the other."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines):
        return [parse_json(line, path) for line in lines]
    decoder, found, at = json.JSONDecoder(), list[Any](), 0
    stripped = text.strip()
    if stripped.startswith("{") and "}{" in stripped.replace("\n", "").replace(" ", ""):
        while at < len(stripped):
            try:
                _, end = decoder.raw_decode(stripped, at)
            except (ValueError, RecursionError):
                break
            found.append(parse_json(stripped[at:end], path))
            while end < len(stripped) and stripped[end].isspace():
                end += 1
            at = end
        if at >= len(stripped):
            return found
    raw = parse_json(text, path)
    return list(raw) if isinstance(raw, list) else [raw]


def read_vllm_bench(path: Path) -> tuple[list[ForeignRun], list[str]]:
    """The runs of a result file, and its keys that have no place."""
    runs, unread = [], []
    for fields, _ in read_results(path):
        runs.append(run_of(fields))
        unread += fields.unread()
    return runs, unread


def run_of(fields: Fields, **known: Any) -> ForeignRun:
    """One result as a run; `known` fills what the result itself does not say."""
    fields.ignore(IGNORED)
    values = {ours: value for theirs, ours in FIGURES.items() if (value := fields.number(theirs)) is not None}
    for count in ("requests_ok", "requests_failed", "input_tokens", "output_tokens"):
        if count in values and values[count] != int(values[count]):
            fields.refuse(count, f"must be a whole number, not {values[count]!r}")
    measured = latencies(fields)
    # Without a request that ended well the tool writes zeros, which nobody measured.
    values |= measured if values.get("requests_ok") else {}
    requests = requests_of(fields)
    sent = fields.count("num_prompts")
    if sent is None and requests is not None:
        sent = requests.height
    if sent is not None:
        values["requests_sent"] = sent
        values.setdefault("requests_failed", max(0, sent - values.get("requests_ok", sent)))
    fields.text("backend")
    set_flags = EngineFlags() if "flags" in known else engine_flags(fields.content, fields.content, tuned_only=True)
    fields.ignore(set_flags.keys)
    return ForeignRun(
        **{
            "model": fields.text("model_id") or "unknown",
            "config": fields.text("label") or set_flags.config,
            "flags": set_flags.flags,
            "choices": set_flags.choices,
            "workload": workload_of(mean_lengths(values)),
            "level": level_of(fields, sent),
            "summary": summary_of(with_derived(values)),
            "requests": requests,
            **known,
        }
    )


def latencies(fields: Fields, unit: str = "_ms", scale: float = 0.001) -> dict[str, float]:
    """Mean, deviation and percentiles of each latency, in seconds; percentiles that we do not keep stay unread."""
    return {
        f"{ours}_{own}": value
        for theirs, ours in TIMES.items()
        for statistic, own in STATISTIC_OF.items()
        if (value := fields.number(f"{statistic}_{theirs}{unit}", scale=scale)) is not None
    }


def level_of(fields: Fields, requests: int | None) -> ExternalLoad:
    """The rate (inf: all at once) and the cap of requests in flight."""
    concurrency = fields.count("max_concurrency") or None
    raw = fields.raw("request_rate")
    rate = None
    if raw not in (None, "inf", "Infinity") and not (isinstance(raw, float) and math.isinf(raw)):
        rate = fields.number("request_rate") or None
    fields.number("burstiness")
    return ExternalLoad(external=True, rate_per_s=rate, concurrency=concurrency, requests=requests or None)


def requests_of(fields: Fields) -> pl.DataFrame | None:
    """The table of requests that a detailed result holds; None for a plain one."""
    lists = {name: fields.items(name) for name in DETAIL}
    ttfts = lists["ttfts"]
    if not ttfts:
        return None
    count = len(ttfts)
    for name, items in lists.items():
        if items is not None and len(items) not in (0, count):
            fields.refuse(name, f"has {len(items)} entries, and there are {count} requests")
    starts = _numbers(fields, "start_times", count)
    origin = min((start for start in starts if start), default=0.0)
    rows = []
    for index, gaps in enumerate(lists["itls"] or [[]] * count):
        if not isinstance(gaps, list):
            fields.refuse(f"itls.{index}", "must be a list of gaps")
        own = [_gap(fields, gap, index) for gap in gaps]
        error = str(lists["errors"][index] or "") if lists["errors"] else ""
        start, ttft = starts[index], _number(fields, "ttfts", ttfts[index])
        sent = None if start is None else start - origin
        began = None if sent is None or ttft is None or error else sent + ttft
        last = None if began is None else began + sum(own)
        row = {
            "run_index": 0,
            "request_index": index,
            "phase": "measured",
            "sent_s": sent,
            "first_token_s": began,
            "last_token_s": last,
            "input_tokens": _whole(fields, "input_lens", lists["input_lens"], index),
            "output_tokens": _whole(fields, "output_lens", lists["output_lens"], index),
            "events": len(own) + 1 if began is not None else 0,
            "event_times_us": [round(gap * 1e6) for gap in own],
            "error": "failed" if error else None,
        }
        rows.append(row)
    return pl.DataFrame(rows, schema=REQUEST_TYPES)


def _numbers(fields: Fields, name: str, count: int) -> list[float | None]:
    items = fields.items(name) or [None] * count
    return [_number(fields, name, item) for item in items]


def _number(fields: Fields, name: str, item: object) -> float | None:
    return None if item is None else Fields({name: item}, fields.path, fields.place).number(name)


def _gap(fields: Fields, item: object, index: int) -> float:
    gap = _number(fields, f"itls.{index}", item)
    if gap is None:
        fields.refuse(f"itls.{index}", "must be a list of gaps")
    return gap


def _whole(fields: Fields, name: str, items: list[Any] | None, index: int) -> int | None:
    value = _number(fields, name, items[index]) if items else None
    return None if value is None else int(value)


def holds_block(text: str) -> bool:
    """The text has a printed result."""
    return HEAD in text


def read_printed(path: Path) -> tuple[list[ForeignRun], list[str]]:
    """The runs printed in a file, and the labels that have no place."""
    text = read_text(path)
    pieces = text.split(HEAD)
    if len(pieces) < 2:
        raise ArchiveError(f"{path}: no {HEAD!r} in it.")
    runs = [printed_run(piece, path, before) for before, piece in pairwise(pieces)]
    return [run for run, _ in runs], [label for _, unread in runs for label in unread]


def printed_run(block: str, path: Path, before: str = "", **known: object) -> tuple[ForeignRun, list[str]]:
    """The run of one block; `before` is searched for the command's model."""
    values: dict[str, float] = {}
    unread: list[str] = []
    level: dict[str, float] = {}
    for match in FIGURE.finditer(re.split(r"={40,}", block, maxsplit=1)[0] or block[:6000]):
        label, milli, figure = match[1].strip(" -"), match[2], match[3]
        if figure in ("nan", "inf"):
            continue
        value = checked_number(figure.rstrip("."), partial(_refuse, path, label))
        target = LABELS.get(f"{label} ({milli})" if milli else label)
        statistic, _, metric = label.partition(" ")
        if target:
            values[target] = value
        elif milli and metric.lower() in PRINTED_TIMES and statistic.lower() in STATISTIC_OF:
            values[f"{PRINTED_TIMES[metric.lower()]}_{STATISTIC_OF[statistic.lower()]}"] = value / 1000
        elif label in CONCURRENCY:
            level["concurrency"] = value
        elif label in RATE:
            level["rate"] = value
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
            concurrency=int(level["concurrency"]) if level.get("concurrency") else None,
            rate_per_s=level.get("rate") or None,
            requests=int(values["requests_sent"]) or None,
        ),
        "summary": summary_of(with_derived(values)),
        **known,
    }
    return ForeignRun(**run), unread  # type: ignore[arg-type]


def _refuse(path: Path, label: str, words: str) -> NoReturn:
    raise ArchiveError(f"{path}: {label} {words}.")
