"""A file as a trace: JSON Lines, CSV, one JSON document, or vLLM's log; plain, gzip or zstd as its name says."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tokenpeak import bounded
from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.traces import request_log
from tokenpeak.loadgen.traces.formats import FORMATS, TraceFormat, TraceRow, at
from tokenpeak.loadgen.traces.spans import rows_within
from tokenpeak.loadgen.traces.trace import Trace, TraceEntry, shaped
from tokenpeak.paths import shown
from tokenpeak.spec.workload import TraceWorkload

LARGEST_BYTES, MOST_ROWS = 1 << 30, 2_000_000
"""Of a trace: BurstGPT's larger file has 3,858,000 rows and 190 MB; take a part of it."""
LONGEST = 1_000_000_000
"""Tokens of a request, or seconds between the first and the last."""
HEAD_ROWS = 50
"""Rows among which one must be of a format: the first may be of failed requests, or of other spans."""


def read_trace(workload: TraceWorkload) -> Trace:
    """The trace as the workload replays it; raises WorkloadError naming file, row and what is wrong."""
    path = Path(workload.path).expanduser()
    if not path.exists():
        raise WorkloadError(f"The trace {path} of workload {workload.name!r} does not exist; correct its path.")
    rows, block_tokens = _rows(path)
    kept = [row for row in rows if row.input_tokens > 0 and row.output_tokens > 0]
    if not kept:
        raise WorkloadError(f"The trace {path} holds no request with lengths of its prompt and its answer.")
    kept.sort(key=lambda row: row.at_s)
    if kept[-1].at_s - kept[0].at_s > LONGEST:
        raise WorkloadError(f"The trace {path} takes more than {LONGEST:,} seconds; are its times of one unit?")
    entries = tuple(
        TraceEntry(
            due_s=row.at_s - kept[0].at_s,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            blocks=row.blocks,
            session=row.session,
            cached_tokens=row.cached_tokens,
        )
        for row in kept
    )
    trace = shaped(Trace(entries=entries, block_tokens=workload.block_tokens or block_tokens), workload)
    if not trace.entries:
        raise WorkloadError(
            f"The trace {path} has no request from {workload.begin_s:g} s on until {workload.end_s:g} s; it takes "
            f"{entries[-1].due_s:g} s. Correct begin_s and end_s of workload {workload.name!r}."
        )
    return trace


def _rows(path: Path) -> tuple[list[TraceRow], int]:
    """The requests, and how many tokens a block of theirs has."""
    data = bounded.read_bytes(path, LARGEST_BYTES, error=WorkloadError)
    text = _unpacked(data, path).decode("utf-8", "replace").removeprefix("\ufeff")
    if request_log.MARK.search(text[: 1 << 20]) and not text.lstrip().startswith("{"):
        return request_log.read_request_log(text.splitlines()), request_log.BLOCK_TOKENS
    rows = _objects(text, path)
    head = list(islice(rows, HEAD_ROWS))
    kind = next((each for row in head for each in FORMATS if each.is_marked(row)), None)
    if kind is None:
        raise WorkloadError(
            f"{path} is no trace that is known here; its first entry has "
            f"{shown(sorted(head[0]) if head else [], 200)}. "
            f"Known are {', '.join(dict.fromkeys(each.name for each in FORMATS))} and vLLM's log of requests; or give "
            "each request a line with timestamp_s, input_tokens and output_tokens."
        )
    read = []
    for number, row in enumerate((*head, *rows), 1):
        if number > MOST_ROWS:
            raise WorkloadError(f"{path} has more than {MOST_ROWS:,} requests. Take a part of it.")
        if (request := _request(kind, row, f"{path}, entry {number}")) is not None:
            read.append(request)
    return read, kind.block_tokens


def _request(kind: TraceFormat, row: Mapping[str, Any], place: str) -> TraceRow | None:
    if kind.name != "tokenpeak" and not kind.is_marked(row):
        return None
    try:
        request = kind.row(row)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WorkloadError(
            f"{place}, is no request as {kind.name} writes one, which needs {', '.join(kind.marks)}; "
            f"it has {_marked(kind, row)}."
        ) from error
    if request and not all(abs(each) <= LONGEST for each in (request.input_tokens, request.output_tokens)):
        raise WorkloadError(f"{place}, has a number beyond {LONGEST:,}: {_marked(kind, row)}.")
    return request


def _marked(kind: TraceFormat, row: Mapping[str, Any]) -> str:
    """What a row has under the keys of its format: others may hold what somebody wrote."""
    return shown({mark: at(row, mark) for mark in kind.marks}, 200)


def _unpacked(data: bytes, path: Path) -> bytes:
    if path.suffix == ".zst":
        return bounded.unpacked(data, path, LARGEST_BYTES)
    if path.suffix != ".gz":
        return data
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(LARGEST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise WorkloadError(f"{path} is not a whole gzip file: {error}.") from error
    if len(content) > LARGEST_BYTES:
        raise WorkloadError(f"{path} unpacks to more than {LARGEST_BYTES:,} bytes. Take a part of it.")
    return content


def _objects(text: str, path: Path) -> Iterator[Mapping[str, Any]]:
    begin = text.lstrip()[:1]
    if begin not in ("{", "["):
        yield from csv.DictReader(io.StringIO(text))
        return
    lines = text.splitlines()
    is_lines = begin == "{" and lines[0].rstrip().endswith("}")
    if not is_lines:
        document = bounded.parse_json(text.encode(), path, nan="null", most=LARGEST_BYTES, error=WorkloadError)
        for each in document if isinstance(document, list) else [document]:
            yield from rows_within(each)
        return
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{path}, line {number}"
            row = bounded.parse_json(line.encode(), place, nan="null", error=WorkloadError)
            if not isinstance(row, dict):
                raise WorkloadError(f"{place}, is not an object but {shown(row)}.")
            yield from rows_within(row)
