"""Start-up log of an engine: the facts of its start, and why it failed, by the table of errors in data/errors.toml.

vLLM's words by release: up to 0.8 the V0 engine logs KV blocks, V1 up to 0.31 logs tokens and concurrency on lines of
their own, 0.32 logs both on one line with the device's name first.
"""

import base64
import binascii
import re
import signal
import tomllib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenpeak.records import FAILURE_CAUSES, Failure, StartupFacts

TABLE = Path(__file__).parent / "data" / "errors.toml"
_NUMBER = r"[\d.,]+(?: [KMGT]?i?B)?"
GIB = 2**30
EVIDENCE_LINES = 6
EVIDENCE_CHARACTERS = 500
VALUE_CHARACTERS = 200
KV_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
LINE_CHARACTERS = 4096
"""Characters of a line that are looked through: the engine chooses how long it is."""
_COUNT = r"(\d[\d,]{0,14})"
_AMOUNT = r"(\d{1,6}(?:\.\d{1,9})?)"
"""Numbers that are read of a log: no other text is one, and these fit a record's 64 bits."""
_VERSION = re.compile(
    r"LLM engine \(v(?P<engine>[^)\s]{1,60})\)"  # 0.7.3 engine/llm_engine.py, V1 v1/engine/core.py
    r"|API server version (?P<server>\d\S{1,60})"  # entrypoints/openai/api_server.py up to 0.31
    r"|█\s{1,20}version (?P<banner>\d\S{1,60})"  # 0.32.0 entrypoints/utils.py
)
_KV_TOKENS = re.compile(rf"\bKV cache size: {_COUNT} tokens")  # v1/core/kv_cache_utils.py since 0.8
_KV_BLOCKS = re.compile(r"# (?!CPU)\w{1,20} blocks: (\d{1,12})")  # 0.7.3 executor/executor_base.py
_CONCURRENCY = re.compile(rf"Maximum concurrency for {_COUNT} tokens per request: {_AMOUNT}x")
_KV_BYTES = re.compile(
    rf"Available KV cache memory: {_AMOUNT} GiB"  # v1/worker/gpu_worker.py since 0.9
    rf"|memory reserved for KV Cache is {_AMOUNT}GiB"  # 0.8.5 worker/worker.py
    rf"|(?:Explicitly|Auto) set \({_AMOUNT}/[\d.]{{1,20}}\) GiB for KV cache"  # 0.32.0 v1/worker/cpu_worker.py
)
_WEIGHTS_TIME = re.compile(rf"Loading weights took {_AMOUNT} seconds")  # model_loader/default_loader.py since 0.8
_WEIGHTS = re.compile(
    # 0.7.3 worker/model_runner.py says GB and means GiB; the time stands there since 0.8
    rf"(?:Loading model weights|Model loading) took {_AMOUNT} (?:GB|GiB)(?: memory)?(?: and {_AMOUNT} seconds)?"
)
_COMPILED = re.compile(rf"torch\.compile (?:takes|took) {_AMOUNT} s in total")  # compilation/monitor.py
_GRAPHS = re.compile(
    rf"Graph capturing finished in [\d.]{{1,20}} secs, took {_AMOUNT} GiB"  # v1/worker/gpu_model_runner.py
)
_PREFIX = re.compile(
    r"^(?:\([^()]{0,80}pid=\d{1,10}\)\s{0,8})?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[^\]]{1,100}\]\s?)?"
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]{0,200}\.)?[A-Z]\w{0,100}(?:Error|Exception|Interrupt|Exit|Warning)(?::|$)")
FOLLOWED: tuple[re.Pattern[str], ...] = tuple(
    re.compile(text)
    for text in (
        # 0.8.5 v1/engine/core_client.py, 0.11.2 and later v1/engine/utils.py
        r"Engine core initialization failed\. ?(?:See root cause above\.)?",
        # 0.32.0 v1/engine/utils.py
        r"Frontend process failed during engine core initialization",
        # 0.8.5 and later v1/engine/exceptions.py
        r"EngineDeadError|EngineCore encountered an issue",
        # 0.8.5 and later v1/executor/multiproc_executor.py
        r"WorkerProc initialization failed due to an exception in a background process",
        # 0.7.3 and 0.8.5 entrypoints/openai/api_server.py
        r"Engine process failed to start",
    )
)
"""Lines that only say that the cause stands further up."""
DIED = re.compile(
    # 0.8.5 and later v1/executor/multiproc_executor.py; the exit code since 0.32.0
    r"Worker proc \S{1,200} died unexpectedly(?: \(exit code: (?P<code>-?\d{1,9})\))?"
    # 0.32.0 v1/engine/utils.py: Failed core proc(s): {'EngineCore': -9}
    r"|Failed core proc\(s\): \{'[^'\s]{1,100}': (?P<core>-?\d{1,9})\b"
)
"""A process of the engine that ended without a word."""
TIMED_OUT = re.compile(
    # torch 2.13 torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp
    r"Watchdog caught collective operation timeout"
    # 0.7.3 and later v1/executor/multiproc_executor.py
    r"|RPC call to \S{1,200} timed out"
    # torch 2.13 torch/csrc/distributed/c10d/TCPStore.cpp
    r"|wait timeout after \d{1,12}ms"
)
"""Processes of the engine that gave up waiting for each other."""
WAITING = re.compile(
    # 0.8.5 and later distributed/device_communicators/shm_broadcast.py; a long compilation says it too
    r"No available shared memory broadcast block found in"
    # 0.7.3 and later distributed/device_communicators/pynccl.py
    r"|vLLM is using nccl==|NCCL (?:INFO|WARN)"
)
"""Processes of the engine that wait for each other; only a deadline makes it a hang."""
ENDED_BY: dict[int, str] = {
    signal.SIGKILL: "the kernel for want of memory, or somebody",
    signal.SIGTERM: "somebody",
    signal.SIGINT: "somebody",
}
ASKED_BY = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that ask a process to end: no engine sends them to itself."""
LEAKED = re.compile(r"nanobind|^ - (?:leaked|\.\.\. skipped)|resource_tracker|^\s{1,40}warnings\.warn")
LOG_LIMIT_BYTES = 16 << 20
"""Of an engine's log, unpacked; a node sends 8 MiB at most."""


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """An error that the log can show. `says` is filled from the pattern's named groups; `do` is the advice."""

    cause: str
    pattern: re.Pattern[str]
    says: str
    do: str
    sites: tuple[str, ...]
    literal: str


@cache
def symptoms() -> tuple[Symptom, ...]:
    """The table, read once."""
    return tuple(
        Symptom(**{**row, "pattern": re.compile(row["pattern"]), "sites": tuple(row["sites"])})
        for row in tomllib.loads(TABLE.read_text())["symptom"]
    )


def is_own_sentence(text: str) -> bool:
    """Whether a text is what a symptom says, with nothing but numbers in it: none of its words are the log's."""
    return any(pattern.fullmatch(text) for pattern in _own_sentences())


@cache
def _own_sentences() -> tuple[re.Pattern[str], ...]:
    parts = (re.split(r"\{\w+\}", symptom.says) for symptom in symptoms())
    return tuple(re.compile(_NUMBER.join(map(re.escape, each))) for each in parts)


def startup_facts(log: str) -> StartupFacts:
    """Facts of a start by its log; None for whatever it does not say.

    Of several workers or engine cores, the smallest KV cache and the longest times count: the slowest holds the rest.
    `weights_bytes` and `kv_cache_bytes` are those of one device. The log does not have `ready_s`.
    """
    log = "\n".join(_lines(log))
    concurrency = [(int(_plain(tokens)), float(times)) for tokens, times in _CONCURRENCY.findall(log)]
    weights = _WEIGHTS.findall(log)
    load_s = [float(text) for text in _WEIGHTS_TIME.findall(log)] or [float(time) for _, time in weights if time]
    kv_bytes = [int(float(next(filter(None, groups))) * GIB) for groups in _KV_BYTES.findall(log)]
    version = _VERSION.search(log)
    return StartupFacts(
        engine_version=next(filter(None, version.groups())) if version else None,
        kv_cache_tokens=_kv_cache_tokens(log, concurrency),
        kv_cache_bytes=min(kv_bytes, default=None),
        max_concurrency=min((times for _, times in concurrency), default=None),
        weights_load_s=max(load_s, default=None),
        weights_bytes=max((int(float(gib) * GIB) for gib, _ in weights), default=None),
        compile_s=max((float(text) for text in _COMPILED.findall(log)), default=None),
        cuda_graph_bytes=max((int(float(text) * GIB) for text in _GRAPHS.findall(log)), default=None),
    )


def _lines(log: str) -> list[str]:
    return [line[:LINE_CHARACTERS] for line in log.splitlines()]


def _plain(number: str) -> str:
    return number.replace(",", "")


def _kv_cache_tokens(log: str, concurrency: list[tuple[int, float]]) -> int | None:
    if tokens := [int(_plain(text)) for text in _KV_TOKENS.findall(log)]:
        return min(tokens)
    blocks = [int(text) for text in _KV_BLOCKS.findall(log)]
    if not blocks or not concurrency:
        return None
    # V0 says how many blocks, not how large: the concurrency over one context, rounded to two digits, shows which.
    context, times = min(concurrency, key=lambda pair: pair[1])
    size = context * times / min(blocks) if min(blocks) else 0
    return min(blocks) * min(KV_BLOCK_SIZES, key=lambda known: abs(known - size))


def classify_failure(log: str, *, phase: str, exit_status: int | None, timed_out: bool) -> Failure:
    """Why the engine failed, from its log read upwards, then from how it ended.

    `exit_status` is negative or 128 + n for a signal, None while the engine runs; `timed_out` says that a deadline
    ended it. A cause that the log names counts before the deadline: an engine that ran out of memory often hangs too.
    """
    lines = _lines(log)
    if hit := _symptom(lines):
        index, symptom, match = hit
        values = {name: (value or "?")[:VALUE_CHARACTERS] for name, value in match.groupdict().items()}
        return Failure(
            phase=phase,
            cause=symptom.cause,
            message=f"{symptom.says.format(**values)} {symptom.do}",
            evidence=_evidence(lines, index),
        )
    cause, message, evidence = _ending(lines, phase=phase, exit_status=exit_status, timed_out=timed_out)
    advice = FAILURE_CAUSES[cause].advice
    return Failure(phase=phase, cause=cause, message=" ".join(filter(None, (message, advice))), evidence=evidence)


def _upwards(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines from the last to the first without the log's prefix, less those that only point further up."""
    for index in range(len(lines) - 1, -1, -1):
        text = _PREFIX.sub("", lines[index])
        if not any(pattern.search(text) for pattern in FOLLOWED):
            yield index, text


def _symptom(lines: list[str]) -> tuple[int, Symptom, re.Match[str]] | None:
    for index, text in _upwards(lines):
        for symptom in symptoms():
            if match := symptom.pattern.search(text):
                return index, symptom, match
    return None


def _evidence(lines: list[str], index: int) -> tuple[str, ...]:
    """The line that shows it, and the exception's own line above where it continues one."""
    first = index
    if lines[index][:1].isspace():
        while first > max(0, index - 3) and lines[first][:1].isspace():
            first -= 1
    return tuple(line[:EVIDENCE_CHARACTERS] for line in lines[first : index + 1])


def _tail(lines: list[str]) -> tuple[str, ...]:
    """The last lines that say something, less what Python says of leaks on its way out."""
    shown = (line for line in lines if line.strip() and not LEAKED.search(line))
    return tuple(line[:EVIDENCE_CHARACTERS] for line in shown)[-EVIDENCE_LINES:]


def _last(lines: list[str], pattern: re.Pattern[str]) -> str | None:
    return next((line for line in reversed(lines) if pattern.search(line)), None)


def _ending(
    lines: list[str], *, phase: str, exit_status: int | None, timed_out: bool
) -> tuple[str, str, tuple[str, ...]]:
    """Cause, message and evidence of a failure that no symptom explains."""
    gave_up = _last(lines, TIMED_OUT)
    if timed_out or gave_up is not None:
        waiting = gave_up if gave_up is not None else _last(lines[-40:], WAITING)
        why = "its deadline passed" if timed_out else "its processes waited for each other in vain"
        nccl = any("nccl" in line.lower() for line in lines[-40:])
        hint = " Its last words are of NCCL: try disable_custom_all_reduce or NCCL_P2P_DISABLE=1." if nccl else ""
        evidence = (*([waiting[:EVIDENCE_CHARACTERS]] if waiting else []), *_tail(lines))
        return "hung", f"The engine hung in {phase}: {why}.{hint}", tuple(dict.fromkeys(evidence))
    raised = next(((i, text) for i, text in _upwards(lines) if _EXCEPTION.match(text)), None)
    number = _signal(lines, exit_status)
    is_silent = raised is None and not any(map(DIED.search, lines))
    if is_silent and (exit_status == 0 or number in ASKED_BY):
        how = "with status 0" if number is None else f"by {signal.Signals(number).name}"
        return "stopped", f"The engine ended {how} in {phase}, as it does when somebody asks it to.", _tail(lines)
    if number is not None:
        name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
        who = ENDED_BY.get(number, "a fault in native code")
        died = [line[:EVIDENCE_CHARACTERS] for line in lines if DIED.search(line)]
        return "crashed", f"The engine was ended by {name} in {phase}: {who}.", tuple(died[-2:]) or _tail(lines)
    if raised is not None:
        return (
            "crashed",
            f"The engine crashed in {phase}: {raised[1][:VALUE_CHARACTERS]}",
            _evidence(lines, raised[0]),
        )
    if exit_status is not None:
        return "unknown", f"The engine ended with status {exit_status} in {phase} and did not say why.", _tail(lines)
    return "refused", f"The engine runs but did not serve in {phase}.", _tail(lines)


def _signal(lines: list[str], exit_status: int | None) -> int | None:
    """The signal that ended the engine or, when it lived on, one of its processes."""
    statuses = [exit_status] if exit_status is not None else []
    for line in reversed(lines):
        if died := DIED.search(line):
            statuses += [int(code) for code in died.groups() if code]
    for status in statuses:
        if status < 0:
            return -status
        if 128 < status < 160:
            return status - 128
    return None


def unpacked_log(packed: str) -> str:
    """The text of an engine's log as a node packs it, cut at a bound; raises ValueError for what is no such pack."""
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(packed), LOG_LIMIT_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error
    cut = f"\n[cut at {LOG_LIMIT_BYTES} bytes]\n" if unpacking.unconsumed_tail else ""
    return raw.decode(errors="replace") + cut
