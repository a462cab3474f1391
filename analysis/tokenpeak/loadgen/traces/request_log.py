"""vLLM's own log of requests (`--enable-log-requests`), taken apart into rows.

Lengths are in the log where it has token ids: of prompts in each release before 0.11 and at the level DEBUG since, of
answers with `--enable-log-outputs` and DEBUG; else an answer counts as long as it was allowed to be. Ids become names
of blocks that show what begins alike, and are not kept.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from tokenpeak.loadgen.traces.formats import TraceRow

BLOCK_TOKENS = 16
"""Tokens of a block of vLLM's prefix cache."""
SCHEMA = "vllm/entrypoints/logger.py; since 0.2x vllm/entrypoints/serve/utils/request_logger.py"
MARK = re.compile(r"\bReceived request (?P<id>[^\s:]{1,200}):")
_TIME = re.compile(r"\b(?P<day>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d)\b")
_DETAILS = re.compile(r"\bRequest (?P<id>[^\s:]{1,200}) details:")
_ANSWER = re.compile(r"\bGenerated response (?P<id>[^\s:(]{1,200})")
_PROMPT_IDS = re.compile(r"prompt_token_ids: \[(?P<ids>[\d, ]{1,8000000})\]")
_OUTPUT_IDS = re.compile(r"output_token_ids: [\[(](?P<ids>[\d, ]{1,8000000})[\])]")
_MOST = re.compile(r"\bmax_tokens=(?P<most>\d{1,9})\b")
FIRST_PROMPT = "-0"
"""What vLLM adds to the id of a request's first prompt; its answer does not have it."""
DELTA = "(streaming delta)"
"""Marks a part of an answer, which is in the log as a whole, too."""


@dataclass(kw_only=True)
class _LoggedRequest:
    at_s: float | None = None
    output_tokens: int = 0
    most: int = 0
    ids: list[str] = field(default_factory=list)


def read_request_log(lines: Iterable[str]) -> list[TraceRow]:
    """A row for each request whose lengths the log says; requests within one second are spread over it evenly."""
    requests: dict[str, _LoggedRequest] = {}
    for line in lines:
        if received := MARK.search(line):
            when = _TIME.search(line)
            most = _MOST.search(line)
            known = requests.get(received["id"])
            requests[received["id"]] = _LoggedRequest(
                at_s=_seconds(when["day"], when["time"]) if when else None,
                most=int(most["most"]) if most else 0,
                ids=_ids(_PROMPT_IDS, line) or (known.ids if known else []),
            )
        elif details := _DETAILS.search(line):
            # They come just before the line that says when.
            requests[details["id"]] = _LoggedRequest(ids=_ids(_PROMPT_IDS, line))
        elif (answer := _ANSWER.search(line)) and DELTA not in line:
            request = requests.get(answer["id"]) or requests.get(answer["id"] + FIRST_PROMPT)
            if request is not None:
                request.output_tokens = len(_ids(_OUTPUT_IDS, line)) or request.output_tokens
    return _spread([_row(request, request.at_s) for request in requests.values() if request.ids and request.at_s])


def _row(request: _LoggedRequest, at_s: float) -> TraceRow:
    return TraceRow(
        at_s=at_s,
        input_tokens=len(request.ids),
        output_tokens=request.output_tokens or request.most,
        blocks=_names(request.ids),
    )


def _names(ids: list[str]) -> tuple[str, ...]:
    """A name for each block of ids, which distinguishes it together with all before it."""
    names, known = [], ""
    for begin in range(0, len(ids), BLOCK_TOKENS):
        block = ",".join(ids[begin : begin + BLOCK_TOKENS])
        known = hashlib.blake2b(f"{known} {block}".encode(), digest_size=8).hexdigest()
        names.append(known)
    return tuple(names)


def _ids(pattern: re.Pattern[str], line: str) -> list[str]:
    found = pattern.search(line)
    return found["ids"].replace(" ", "").strip(",").split(",") if found else []


def _seconds(day: str, time: str) -> float:
    """Seconds of a log's date, which has no year: one that a log goes through a new year with is a leap year."""
    return datetime.strptime(f"2024-{day} {time} +0000", "%Y-%m-%d %H:%M:%S %z").timestamp()


def _spread(rows: list[TraceRow]) -> list[TraceRow]:
    """The log's times are whole seconds: requests of one second follow each other evenly within it."""
    number, seen = Counter(row.at_s for row in rows), Counter[float]()
    spread = []
    for row in rows:
        spread.append(replace(row, at_s=row.at_s + seen[row.at_s] / number[row.at_s]))
        seen[row.at_s] += 1
    return spread
