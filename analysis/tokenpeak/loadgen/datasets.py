"""Prompts from a file: ShareGPT JSON, chat logs, JSONL or Parquet.

A ShareGPT entry is a list of turns under `conversations`; its first human turn is the prompt and the answer to it the
reference. A chat log's row has `messages`. Lengths of texts are estimated at four characters a token for filtering;
`usage` says what they were.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tokenpeak import bounded
from tokenpeak.errors import WorkloadError, suggestion
from tokenpeak.loadgen.hub import hub_rows
from tokenpeak.paths import shown
from tokenpeak.spec.workload import ConversationWorkload, DatasetWorkload

KEPT = ("role", "content", "name", "tool_calls", "tool_call_id")
"""Fields of a message; of others' notes in it (costs, dates, ids) a server knows nothing."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """The messages of a request, and the text that answered it; None where the row has no answer."""

    messages: tuple[Mapping[str, Any], ...]
    answer: str | None

    @property
    def text(self) -> str:
        """All that is asked, as one text: its length is the prompt's."""
        return "\n".join(text_of(message) for message in self.messages)


def chat_of(value: object) -> Chat | None:
    """The chat that a list of messages is; None for what is none, or asks nothing in words."""
    if not isinstance(value, list) or not all(_is_message(each) for each in value):
        return None
    messages = [{name: each[name] for name in KEPT if each.get(name) is not None} for each in value]
    last = max((at for at, each in enumerate(messages) if each["role"] == "assistant"), default=len(messages))
    answer = text_of(messages[last]) if last < len(messages) else None
    # A tool's result after the last answer belongs to a request that was not answered yet.
    asked = messages[:last]
    if not asked or not any(text_of(each) for each in asked):
        return None
    return Chat(messages=tuple(asked), answer=answer or None)


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part, dict) and "text" in part)


def salted(messages: tuple[Mapping[str, Any], ...], mark: str) -> list[dict[str, Any]]:
    """The messages with `mark` before the first text in them."""
    made = [dict(each) for each in messages]
    for message in made:
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = mark + content
            return made
        parts = [dict(part) for part in content or ()]
        for part in parts:
            if "text" in part:
                part["text"] = mark + part["text"]
                message["content"] = parts
                return made
    return made


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    is_parts = isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in content
    )
    return content is None or isinstance(content, str) or is_parts


CHARACTERS_PER_TOKEN = 4
LARGEST_BYTES, MOST_ROWS = 1024**3, 2_000_000
"""Of a dataset: the ShareGPT that benchmarks use has 0.7 GB and 94,000 conversations."""
_HEAD_BYTES = 1 << 16
HUMAN = ("human", "user")
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
CHATS = "messages"
"""The column that chat logs have their messages in; it need not be named."""

Row = tuple[str | Chat, str | int | None]
"""The prompt or chat, and the answer or its length where the file has it."""


@dataclass(frozen=True, kw_only=True)
class DatasetSample:
    """A prompt, or the messages of a chat, and how many tokens its answer should have."""

    prompt: str
    output_tokens: int | None
    messages: tuple[Mapping[str, Any], ...] = ()


def estimated_tokens(text: str) -> int:
    """Tokens of a text, as four characters each."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def read_samples(workload: DatasetWorkload) -> list[DatasetSample]:
    """The dataset's prompts that match, within the length limits; raises WorkloadError naming file, row and column."""
    sources: list[tuple[str, list[Row]]] = [(name, _file(Path(name).expanduser(), workload)) for name in workload.files]
    sources += [(name, _of_hub(name, workload)) for name in workload.names]
    where = " and ".join(name for name, _ in sources)
    match = re.compile(workload.match) if workload.match is not None else None
    samples, unanswered, matching = [], 0, 0
    if not any(rows for _, rows in sources):
        raise WorkloadError(f"{where} holds no prompt.")
    for name, (asked, answer) in ((name, row) for name, rows in sources for row in rows):
        chat = asked if isinstance(asked, Chat) else None
        if chat is not None and workload.endpoint != "chat":
            raise WorkloadError(f"{name} holds chats: give workload {workload.name!r} endpoint: chat.")
        prompt = chat.text if chat is not None else str(asked)
        if match is not None and not match.search(prompt):
            continue
        matching += 1
        tokens = estimated_tokens(prompt)
        if not workload.min_input_tokens <= tokens <= (workload.max_input_tokens or tokens):
            continue
        output = workload.output_tokens
        if output is None and answer is not None:
            output = answer if isinstance(answer, int) else estimated_tokens(answer)
        if output is None and chat is not None:
            # Nothing says when such an answer is long enough.
            unanswered += 1
            continue
        messages = chat.messages if chat is not None else ()
        samples.append(DatasetSample(prompt=prompt, output_tokens=output, messages=messages))
    if not samples:
        more = " None of its chats has an answer: give output_tokens." if unanswered else ""
        if not matching:
            raise WorkloadError(f"{where} holds no prompt in which {workload.match!r} is found.")
        raise WorkloadError(f"{where} holds no prompt within the length limits of workload {workload.name!r}.{more}")
    return samples


def _file(path: Path, workload: DatasetWorkload) -> list[Row]:
    if not path.exists():
        raise WorkloadError(f"The dataset {path} of workload {workload.name!r} does not exist; correct its path.")
    if path.suffix not in (".parquet", ".jsonl", ".json"):
        raise WorkloadError(f"{path} does not end in .json, .jsonl or .parquet, which say what it holds; rename it.")
    if path.suffix == ".json":
        data = bounded.read_bytes(path, LARGEST_BYTES, error=WorkloadError)
        entries = bounded.parse_json(data, path, nan="null", most=LARGEST_BYTES, error=WorkloadError)
        return _conversations(entries, path, turn_by_turn=workload.turn_by_turn)
    named = [name for name in (workload.prompt_column, workload.output_column) if name]
    rows = _parquet(path, named) if path.suffix == ".parquet" else _jsonl(path)
    return _rows(rows, str(path), workload)


def _of_hub(name: str, workload: DatasetWorkload) -> list[Row]:
    rows = hub_rows(name, workload.subset, workload.split, MOST_ROWS)
    if rows and workload.prompt_column not in rows[0] and {"conversations", "conversation"} & rows[0].keys():
        return _conversations(rows, name, turn_by_turn=workload.turn_by_turn)
    return _rows(rows, name, workload)


def _conversations(entries: object, place: str | Path, *, turn_by_turn: bool) -> list[Row]:
    """The conversations of a list of entries: of ShareGPT, whose first turn or all are asked, or chats."""
    pairs: list[Row] = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and (chat := chat_of(entry.get(CHATS))):
            pairs.append((chat, chat.answer))
            continue
        turns = entry.get("conversations") or entry.get("conversation") or [] if isinstance(entry, dict) else []
        utterances = [
            (turn.get("from") or turn.get("role"), turn.get("value") or turn.get("content") or "")
            for turn in (turns if isinstance(turns, list) else [])
            if isinstance(turn, dict)
        ]
        if turn_by_turn:
            messages = [{"role": ROLES.get(str(by)), "content": words} for by, words in utterances]
            if (chat := chat_of(messages)) is not None:
                pairs.append((chat, chat.answer))
            continue
        is_text = all(isinstance(words, str) for _, words in utterances[:2])
        if len(utterances) >= 2 and utterances[0][0] in HUMAN and utterances[0][1] and is_text:
            pairs.append((utterances[0][1], utterances[1][1] or None))
    if not pairs:
        raise WorkloadError(
            f"{place} holds no ShareGPT conversation that begins with a human turn and an answer, and no chat."
        )
    return pairs


def _rows(rows: Sequence[Mapping[str, Any]], place: str, workload: DatasetWorkload) -> list[Row]:
    output = [workload.output_column] if workload.output_column else []
    pairs: list[Row] = []
    for number, row in enumerate(rows, 1):
        asked_in = CHATS if workload.prompt_column not in row and CHATS in row else workload.prompt_column
        for column in (asked_in, *output):
            if column not in row:
                raise WorkloadError(f"{place}, row {number}, has no column {column!r}. {suggestion(column, row)}")
        asked, answer = row[asked_in], row[workload.output_column] if workload.output_column else None
        if asked is None:
            continue
        chat = chat_of(asked) if isinstance(asked, list) else None
        is_chat = isinstance(asked, list | dict) or asked_in != workload.prompt_column
        if is_chat and chat is None:
            raise WorkloadError(f"{place}, row {number}: {asked_in!r} is no list of messages with roles and texts.")
        if chat is not None and not workload.output_column:
            answer = chat.answer
        pairs.append((chat or str(asked), answer if isinstance(answer, int | str) else None))
    return pairs


def has_chats(path: Path) -> bool:
    """Whether a dataset begins with a row that has messages; False for what cannot be read."""
    try:
        with path.open("rb") as file:
            return f'"{CHATS}"'.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _parquet(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a file in which these columns are of plain values: a list has no bound of its own."""
    try:
        if path.stat().st_size > LARGEST_BYTES or not path.is_file():
            raise WorkloadError(f"{path} is no plain file of at most {LARGEST_BYTES:,} bytes.")
        schema = pl.read_parquet_schema(path)
        rows = pl.scan_parquet(path)
        count = rows.select(pl.len()).collect().item()
        if count > MOST_ROWS:
            raise WorkloadError(f"{path} has {count:,} rows; a dataset has at most {MOST_ROWS:,}. Take a part of it.")
        for column in columns:
            if column in schema and schema[column].is_nested():
                raise WorkloadError(
                    f"{path}: column {column!r} holds lists or objects, not texts. Name another column; chats are read "
                    "from JSONL."
                )
        texts = [pl.col(column).str.len_bytes().sum() for column in columns if schema.get(column) == pl.String]
        if texts and sum(rows.select(*texts).collect().row(0)) > LARGEST_BYTES:
            raise WorkloadError(f"{path} unpacks to more than {LARGEST_BYTES:,} bytes of text. Take a part of it.")
        return rows.select(name for name in schema if name in columns).collect().to_dicts()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise WorkloadError(f"{path} is not Parquet: {error}") from error


def _jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(bounded.read_bytes(path, LARGEST_BYTES, error=WorkloadError).splitlines(), 1):
        if not line.strip():
            continue
        row = bounded.parse_json(line, f"{path}, line {number}", nan="null", error=WorkloadError)
        if not isinstance(row, dict):
            raise WorkloadError(f"{path}, line {number}, is not an object but {shown(row)}.")
        rows.append(row)
        if len(rows) > MOST_ROWS:
            raise WorkloadError(f"{path} has more than {MOST_ROWS:,} lines. Take a part of it.")
    return rows


def read_starters(workload: ConversationWorkload) -> list[str]:
    """The beginnings of chats in the workload's file; raises WorkloadError naming file and line."""
    path = Path(str(workload.starters)).expanduser()
    if not path.exists():
        raise WorkloadError(f"The starters {path} of workload {workload.name!r} do not exist; correct their path.")
    texts = [row.get("text") for row in _jsonl(path)]
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not text:
            raise WorkloadError(f"{path}, entry {number}, needs a text, which is {shown(text)}.")
    if not texts:
        raise WorkloadError(f"The starters {path} are empty.")
    return [str(text) for text in texts]
