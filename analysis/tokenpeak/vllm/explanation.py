"""Explanation of an engine's failure: its cause, what the log says of it and the advice, from the log read upwards."""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokenpeak.records import FAILURE_CAUSES
from tokenpeak.vllm.log_lines import plain_lines
from tokenpeak.vllm.symptoms import Symptom, symptoms

EVIDENCE_LINES = 6
EVIDENCE_CHARACTERS = 500
VALUE_CHARACTERS = 200
CONTINUED_LINES = 4
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]{0,200}\.)?(?:(?:[A-Z]\w{0,100})?(?:Error|Exception)|[A-Z]\w{0,100}(?:Interrupt|Exit|Warning))"
    r"(?:\([\w.]{1,100}\))?(?::|$)"
    # Some are called otherwise, such as torch._dynamo.exc.Unsupported.
    r"|^(?:[a-z_]\w{0,60}\.){1,8}[A-Z]\w{1,100}: "
)
_UNSAID = re.compile(r"(?::|validation errors? for \S{1,100})$")
"""How an exception's line ends that leaves the reason to the lines below it."""
_NAME = re.compile(r"[\w.]+")
"""An exception without a word of its own, such as `AssertionError`: the line of source above it says more."""
_SOURCE = re.compile(r"^\s{1,40}(?!File )[^\s~^]")
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
        # Ray, of the worker whose traceback it repeats
        r"The actor died because of an error raised in its creation task",
        # CPython, of the processes that wait for one that failed
        r"^(?:\w{1,20}\.){0,3}(?:CancelledError|SystemExit|KeyboardInterrupt)\b",
    )
)
"""Lines that only say that the cause stands further up."""
PASSING = re.compile(
    # 0.9 to 0.15 transformers_utils/config.py: a local path is no name on the hub, and need not be
    r"Error retrieving (?:safetensors|file list)"
    # 0.7 transformers_utils/config.py, of the same
    r"|^Arguments: \(HFValidationError"
    r"|^(?:INFO|DEBUG)\b"
)
"""Lines that an engine writes whether or not it fails."""
DIED = re.compile(
    # 0.8.5 and later v1/executor/multiproc_executor.py; the exit code since 0.32.0
    r"Worker proc \S{1,200} died unexpectedly(?: \(exit code: (?P<code>-?\d{1,9})\))?"
    # 0.7.3 executor/multiproc_worker_utils.py
    r"|Worker \S{1,100} pid \d{1,10} died, exit code: (?P<exit>-?\d{1,9})"
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
STARTED = re.compile(
    # uvicorn 0.3x lifespan/on.py and server.py; entrypoints/openai/api_server.py says neither before it serves
    r"Application startup complete\.|Uvicorn running on "
)
"""The server listens: the engine behind it has started."""
LEAKED = re.compile(r"nanobind|^ - (?:leaked|\.\.\. skipped)|resource_tracker|^\s{1,40}warnings\.warn")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why an engine failed."""

    cause: str
    """One of FAILURE_CAUSES."""
    says: str
    advice: str | None
    evidence: tuple[str, ...]
    """Lines of the log that show it, without their prefixes."""


def explain_failure(log: str, *, phase: str, exit_status: int | None, timed_out: bool) -> Explanation:
    """Why an engine failed that is known to have: see `classify_failure`."""
    lines = plain_lines(log)
    return _by_symptom(lines) or _by_ending(lines, phase=phase, exit_status=exit_status, timed_out=timed_out)


def explain_log(log: str) -> Explanation | None:
    """Why the engine of a log failed, of which nothing else is known; None where it started and failed in nothing."""
    lines = plain_lines(log)
    started = max((index for index, line in enumerate(lines) if STARTED.search(line)), default=None)
    if started is not None:
        # What a server logs of a client's request may be an exception, too: only what ends an engine counts.
        after = lines[started + 1 :]
        ends = (DIED, TIMED_OUT, *FOLLOWED)
        if not any(pattern.search(line) for line in after for pattern in ends):
            return _by_symptom(after)
    if found := _by_symptom(lines):
        return found
    ending = _by_ending(lines, phase="engine_start", exit_status=None, timed_out=False)
    if ending.cause != "refused":
        return replace(ending, advice="Read the log above these lines; no advice is known for this failure.")
    return Explanation(
        cause="unknown",
        says="The log ends before the engine serves, and does not say why.",
        advice="Take the whole log, of all processes: the cause stands above the last traceback.",
        evidence=ending.evidence,
    )


def _by_symptom(lines: list[str]) -> Explanation | None:
    hit = _symptom(lines, is_general=False) or _symptom(lines, is_general=True)
    if hit is None:
        return None
    index, symptom, match = hit
    values = {name: (value or "?").strip()[:VALUE_CHARACTERS] for name, value in match.groupdict().items()}
    return Explanation(
        cause=symptom.cause,
        says=symptom.says.format(**values),
        advice=symptom.do,
        evidence=_evidence(lines, index),
    )


def _symptom(lines: list[str], *, is_general: bool) -> tuple[int, Symptom, re.Match[str]] | None:
    table = [symptom for symptom in symptoms() if symptom.is_general == is_general]
    tried = set()
    for index, text in _upwards(lines):
        if text in tried:
            # Each worker writes the same traceback.
            continue
        tried.add(text)
        for symptom in table:
            if match := symptom.pattern.search(text):
                return index, symptom, match
    return None


def _upwards(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines from the last to the first, less those that say nothing of the cause."""
    for index in range(len(lines) - 1, -1, -1):
        text = lines[index]
        if text and not PASSING.search(text) and not any(pattern.search(text) for pattern in FOLLOWED):
            yield index, text


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


def _raised(lines: list[str]) -> tuple[str, tuple[str, ...]] | None:
    """What the lowest exception says and its lines: with those around it to which it leaves the reason."""
    index = next((index for index, text in _upwards(lines) if _EXCEPTION.match(text)), None)
    if index is None:
        return None
    shown = [lines[index].strip()]
    if _NAME.fullmatch(shown[0]):
        source = next((line.strip() for line in reversed(lines[:index]) if _SOURCE.match(line)), None)
        shown = [f"{shown[0]} at `{source}`"] if source else shown
    elif _UNSAID.search(shown[0]):
        below = (line.strip() for line in lines[index + 1 : index + 1 + CONTINUED_LINES])
        shown += [line for line in below if line and not any(pattern.search(line) for pattern in FOLLOWED)]
    return " ".join(shown)[:VALUE_CHARACTERS], tuple(line[:EVIDENCE_CHARACTERS] for line in shown)


def _by_ending(lines: list[str], *, phase: str, exit_status: int | None, timed_out: bool) -> Explanation:
    """Explanation of a failure that no symptom explains: by the lowest exception, and by how the process ended."""
    cause, says, evidence = _ending(lines, phase=phase, exit_status=exit_status, timed_out=timed_out)
    return Explanation(cause=cause, says=says, advice=FAILURE_CAUSES[cause].advice, evidence=evidence)


def _ending(
    lines: list[str], *, phase: str, exit_status: int | None, timed_out: bool
) -> tuple[str, str, tuple[str, ...]]:
    """Cause, message and evidence of a failure that no symptom explains."""
    gave_up = _last(lines, TIMED_OUT)
    if timed_out or gave_up is not None:
        waiting = gave_up if gave_up is not None else _last(lines[-40:], WAITING)
        tail = _tail(lines)
        evidence = tuple(dict.fromkeys((*([waiting[:EVIDENCE_CHARACTERS]] if waiting else []), *tail)))
        if any("nccl" in line.lower() for line in lines[-40:]):
            why = "Its last words are of NCCL: try disable_custom_all_reduce or NCCL_P2P_DISABLE=1."
        elif timed_out:
            came_to = f"Its log had come to: {tail[-1]}" if tail else "Its log is empty"
            why = f"{came_to.rstrip('. ')}. If it is only slow, raise deadlines.engine_ready_s."
        else:
            why = "Its processes waited for each other in vain."
        how = "was not ready when its deadline passed" if timed_out else "hung"
        return "hung", f"The engine {how}, in {phase}. {why}", evidence
    raised = _raised(lines)
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
        return "crashed", f"The engine crashed in {phase}: {raised[0]}", raised[1]
    if dead := tuple(line[:EVIDENCE_CHARACTERS] for line in lines if DIED.search(line)):
        return "crashed", f"A process of the engine died in {phase} without a word.", dead[-2:]
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
