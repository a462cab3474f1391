"""Prompts from a file: ShareGPT JSON, JSONL or Parquet; and traces of timestamps and lengths.

A ShareGPT entry is a list of turns under `conversations`; its first human turn is the prompt and the answer to it the
reference. Lengths of texts are estimated at four characters a token for filtering; `usage` says what they were.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import bounded
from tokenpeak.errors import LoadError, suggestion
from tokenpeak.names import shown
from tokenpeak.spec.workload import DatasetWorkload, TraceWorkload

CHARACTERS_PER_TOKEN = 4
LARGEST_BYTES, MOST_ROWS = 1024**3, 2_000_000
"""Of a dataset: the ShareGPT that benchmarks use has 0.7 GB and 94,000 conversations."""
LONGEST = 1_000_000_000
"""Seconds or tokens of a trace's entry."""
HUMAN = ("human", "user")


@dataclass(frozen=True, kw_only=True)
class DatasetSample:
    """A prompt, and how many tokens its answer should have."""

    prompt: str
    output_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class TraceEntry:
    """A request of a trace; `due_s` counts from the first one, at the replay's speed."""

    due_s: float
    input_tokens: int
    output_tokens: int


def estimated_tokens(text: str) -> int:
    """Tokens of a text, as four characters each."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def read_samples(workload: DatasetWorkload) -> list[DatasetSample]:
    """The file's prompts within the workload's length limits; raises LoadError naming file, row and column."""
    path = Path(workload.path).expanduser()
    if not path.exists():
        raise LoadError(f"The dataset {path} of workload {workload.name!r} does not exist; correct its path.")
    kind = workload.format or {".parquet": "parquet", ".jsonl": "jsonl", ".json": "sharegpt"}.get(path.suffix)
    if kind is None:
        raise LoadError(f"{path} does not end in .json, .jsonl or .parquet; give the workload a format.")
    pairs = _sharegpt(path) if kind == "sharegpt" else _rows(path, kind, workload)
    found = []
    for prompt, answer in pairs:
        tokens = estimated_tokens(prompt)
        if tokens < workload.min_input_tokens or tokens > (workload.max_input_tokens or tokens):
            continue
        output = workload.output_tokens
        if output is None and answer is not None:
            output = answer if isinstance(answer, int) else estimated_tokens(answer)
        if output is not None:
            output = max(workload.min_output_tokens, min(output, workload.max_output_tokens or output))
        found.append(DatasetSample(prompt=prompt, output_tokens=output))
    if not found:
        raise LoadError(f"{path} holds no prompt within the length limits of workload {workload.name!r}.")
    return found


def _sharegpt(path: Path) -> list[tuple[str, str | int | None]]:
    data = bounded.read_bytes(path, LARGEST_BYTES, error=LoadError)
    entries = bounded.parse_json(data, path, nan="null", most=LARGEST_BYTES, error=LoadError)
    pairs: list[tuple[str, str | int | None]] = []
    for entry in entries if isinstance(entries, list) else []:
        turns = entry.get("conversations") or entry.get("conversation") or [] if isinstance(entry, dict) else []
        said = [
            (turn.get("from") or turn.get("role"), turn.get("value") or turn.get("content") or "")
            for turn in (turns if isinstance(turns, list) else [])
            if isinstance(turn, dict)
        ]
        is_text = all(isinstance(words, str) for _, words in said[:2])
        if len(said) >= 2 and said[0][0] in HUMAN and said[0][1] and is_text:
            pairs.append((said[0][1], said[1][1] or None))
    if not pairs:
        raise LoadError(f"{path} holds no ShareGPT conversation that begins with a human turn and an answer.")
    return pairs


def _rows(path: Path, kind: str, workload: DatasetWorkload) -> list[tuple[str, str | int | None]]:
    columns = [name for name in (workload.prompt_column, workload.output_column) if name]
    rows = _parquet(path, columns) if kind == "parquet" else _jsonl(path)
    pairs: list[tuple[str, str | int | None]] = []
    for number, row in enumerate(rows, 1):
        for column in columns:
            if column not in row:
                raise LoadError(f"{path}, row {number}, has no column {column!r}. {suggestion(column, row)}")
        answer = row[workload.output_column] if workload.output_column else None
        pairs.append((str(row[workload.prompt_column]), answer if isinstance(answer, int | str) else None))
    return pairs


def _parquet(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a file in which these columns are of plain values: a list has no bound of its own."""
    try:
        if path.stat().st_size > LARGEST_BYTES or not path.is_file():
            raise LoadError(f"{path} is no plain file of at most {LARGEST_BYTES:,} bytes.")
        schema = pl.read_parquet_schema(path)
        rows = pl.scan_parquet(path)
        count = rows.select(pl.len()).collect().item()
        if count > MOST_ROWS:
            raise LoadError(f"{path} has {count:,} rows; a dataset has at most {MOST_ROWS:,}. Take a part of it.")
        for column in columns:
            if column in schema and schema[column].is_nested():
                raise LoadError(f"{path}: column {column!r} holds lists or objects, not texts. Name another column.")
        texts = [pl.col(column).str.len_bytes().sum() for column in columns if schema.get(column) == pl.String]
        if texts and sum(rows.select(*texts).collect().row(0)) > LARGEST_BYTES:
            raise LoadError(f"{path} unpacks to more than {LARGEST_BYTES:,} bytes of text. Take a part of it.")
        return rows.select(name for name in schema if name in columns).collect().to_dicts()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise LoadError(f"{path} is not Parquet: {error}") from error


def _jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(bounded.read_bytes(path, LARGEST_BYTES, error=LoadError).splitlines(), 1):
        if not line.strip():
            continue
        row = bounded.parse_json(line, f"{path}, line {number}", nan="null", error=LoadError)
        if not isinstance(row, dict):
            raise LoadError(f"{path}, line {number}, is not an object but {shown(row)}.")
        rows.append(row)
        if len(rows) > MOST_ROWS:
            raise LoadError(f"{path} has more than {MOST_ROWS:,} lines. Take a part of it.")
    return rows


def read_trace(workload: TraceWorkload) -> list[TraceEntry]:
    """The trace in order of time, from 0, at the workload's speed; raises LoadError naming file, line and key."""
    path = Path(workload.path).expanduser()
    if not path.exists():
        raise LoadError(f"The trace {path} of workload {workload.name!r} does not exist; correct its path.")
    entries = []
    for number, row in enumerate(_jsonl(path), 1):
        try:
            entries.append((float(row["timestamp_s"]), int(row["input_tokens"]), int(row["output_tokens"])))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LoadError(
                f"{path}, entry {number}, needs timestamp_s, input_tokens and output_tokens as numbers; it is "
                f"{shown(row, 200)}."
            ) from error
        if not all(abs(value) <= LONGEST for value in entries[-1]):
            raise LoadError(f"{path}, entry {number}, has a number beyond {LONGEST:,}: {shown(row, 200)}.")
    if not entries:
        raise LoadError(f"The trace {path} is empty.")
    entries.sort()
    first = entries[0][0]
    return [
        TraceEntry(due_s=(at - first) / workload.speed, input_tokens=max(1, given), output_tokens=max(1, asked))
        for at, given, asked in entries
    ]
