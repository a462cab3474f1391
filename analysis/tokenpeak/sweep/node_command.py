"""Node command: a step that is one command, carried to a node by SSH itself.

A trial's steps and a probe's are one command each. A playbook run for them would cost 200 MB and a second or two of
processor time on this machine for each node at work; a process of SSH costs a twentieth of the one and a fiftieth of
the other, so that a small controller drives hundreds. Playbooks do what takes several tasks.
"""

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tokenpeak.node.error import refusal
from tokenpeak.node.protocol.answers import ProduceAnswer, RestoreAnswer, parse
from tokenpeak.node.protocol.commands import ANSWERS
from tokenpeak.sweep.connection import environment, node_command, script_command
from tokenpeak.sweep.inventory import Node
from tokenpeak.sweep.login_failures import Login, missing_python, with_remedy
from tokenpeak.sweep.node_result import (
    MOST_PRINTED_BYTES,
    WORDS_CHARACTERS,
    Event,
    NodeResult,
    answer_in,
    failure_words,
)
from tokenpeak.sweep.output_reader import MOST_SAID_BYTES, REST_S, OutputReader
from tokenpeak.sweep.step import Step

_CANCEL_POLL_S = 0.5
_END_S = 5.0
"""For a process that was asked to end."""
_SSH_FAILED = 255
_NOT_FOUND = 127
"""A shell's status for a program that is not there."""
_KEEPALIVES = 6
"""Half a minute without a word: a network that comes back sooner costs no trial."""
_TITLES: Mapping[Step, str] = {
    "install": "Install the guard",
    "produce": "Start production",
    "probe": "Probe the node",
    "launch": "Launch the engine in production's place",
    "load": "Run the load client",
    "finish": "Stop the engine and give the node back",
    "restore": "Restore production",
}


def run_node_command(
    node: Node,
    declaration: Mapping[str, Any],
    step: Step,
    request: bytes,
    *,
    on_event: Callable[[Event], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    limit_s: float = math.inf,
) -> NodeResult:
    """Run the node script's command of `step` with this request, and wait for its answer.

    Once `cancelled` answers True, or after `limit_s`, nothing is waited for, within half a second; what was started on
    the node is left to it.
    """
    options = ("--request", "-") if step == "restore" else ()
    argv = script_command(node, declaration, step, *options, keepalives=_KEEPALIVES, is_shared=True)
    return _run(argv, node, step, request, on_event, cancelled, limit_s=limit_s)


@dataclass(frozen=True, kw_only=True)
class PythonResult:
    """A Python command on a node that is none of its script's."""

    printed: str
    result: NodeResult
    in_time: bool


def run_python(
    node: Node, words: Sequence[str], title: str, *, limit_s: float, cancelled: Callable[[], bool]
) -> PythonResult:
    """Run a Python with arguments on the node, and wait for its end, its limit or `cancelled`."""
    argv = node_command(node, words, keepalives=_KEEPALIVES, is_shared=True)
    try:
        ended = _carried(argv, b"", cancelled, None, limit_s)
    except OSError as error:
        ended = _Ended(status=None, said=refusal(error))
    result = _result(argv, node, title, ended)
    if ended.status == _NOT_FOUND:
        result = replace(result, failure=missing_python(words[0]))
    return PythonResult(printed=ended.printed, result=result, in_time=ended.limit_s is None)


def run_here(
    argv: Sequence[str],
    node: Node,
    step: Step,
    *,
    folder: Path,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> NodeResult:
    """Run a step's command on this machine, for a node; once `cancelled` answers True it is asked to end, and ended."""
    return _run(argv, node, step, b"", on_event, cancelled, folder=folder)


def _run(
    argv: Sequence[str],
    node: Node,
    step: Step,
    request: bytes,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
    folder: Path | None = None,
    limit_s: float = math.inf,
) -> NodeResult:
    on_event(Event(kind="started", step=step, node=node.name))
    began = time.time()
    try:
        ended = _carried(argv, request, cancelled, folder, limit_s)
    except OSError as error:
        ended = _Ended(status=None, said=refusal(error))
    result = replace(_result(argv, node, _TITLES[step], ended, step), spans={step: (began, time.time())})
    kind = "unreachable" if result.unreachable else "failed" if result.failure else "ok"
    on_event(Event(kind=kind, step=step, node=node.name, answer=result.answers.get(step)))
    return result


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """How a process ended; `status` is None where it did not by itself, and `said` is empty where it was cancelled.

    `limit_s` is the limit that it did not keep, where that is why.
    """

    status: int | None
    printed: str = ""
    said: str = ""
    limit_s: float | None = None


def _result(argv: Sequence[str], node: Node, title: str, ended: _Ended, step: Step | None = None) -> NodeResult:
    if ended.status is None and not ended.said and ended.limit_s is None:
        return NodeResult()
    login = Login.of(node.name, node.variables)
    if ended.status == _SSH_FAILED and argv[0] == "ssh":
        said = ended.said.strip()[-WORDS_CHARACTERS:] or _silence(argv)
        return NodeResult(has_run=True, unreachable=with_remedy(said, login))
    found = answer_in(ended.printed)
    answer = parse(ANSWERS[step], found) if found is not None and step is not None and step in ANSWERS else None
    failure = None
    if ended.status != 0 or _is_down(answer):
        known: dict[str, Any] = {"cmd": list(argv), "rc": ended.status, "stdout": ended.printed, "stderr": ended.said}
        if step is None:
            # A login shell that runs nothing says so there.
            known["module_stdout"] = ended.printed
        if ended.limit_s is not None:
            known["timedout"] = {"period": ended.limit_s}
        failure = failure_words(title, known, login)
    answers = {} if answer is None or step is None else {step: answer}
    return NodeResult(answers=answers, has_run=True, failure=failure)


def _silence(argv: Sequence[str]) -> str:
    """What an SSH that said nothing has met."""
    if not any(word.startswith("ControlMaster") for word in argv):
        return "SSH ended without a word"
    return (
        "the SSH connection that this controller's commands share ended without a word: its process here was killed, "
        "or the network cut it. The next command opens another; if it goes on, see `dmesg` here for what ends processes"
    )


def _is_down(answer: object) -> bool:
    """Whether the node says that production, which it was to bring up, is not."""
    if isinstance(answer, ProduceAnswer):
        return answer.ready is False
    return isinstance(answer, RestoreAnswer) and (answer.restoration is None or not answer.restoration.restored)


def _carried(
    argv: Sequence[str], request: bytes, cancelled: Callable[[], bool], folder: Path | None, limit_s: float
) -> _Ended:
    """The process from its start to its end, or to `cancelled`, or to its limit.

    Its output is read as it comes, up to a bound.
    """
    began_s = time.monotonic()
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment(),
        start_new_session=True,  # Ctrl-C is this controller's to answer
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    threading.Thread(target=_feed, args=(process.stdin, request), name="request", daemon=True).start()
    printed = OutputReader(process.stdout, MOST_PRINTED_BYTES)
    said = OutputReader(process.stderr, MOST_SAID_BYTES, is_tail=True)
    # Waiting for the end of its output costs nothing; waiting for a process with a limit of time is a loop.
    while not printed.has_ended.wait(_CANCEL_POLL_S):
        if cancelled():
            _end(process)
            return _Ended(status=None)
        if time.monotonic() - began_s > limit_s:
            _end(process)
            return _Ended(status=None, limit_s=limit_s)
    if printed.is_full:
        _end(process)
        words = f"it printed more than {MOST_PRINTED_BYTES >> 20} MiB, more than any answer has"
        return _Ended(status=None, said=words)
    status = process.wait()
    said.has_ended.wait(REST_S)
    return _Ended(status=status, printed=printed.text(), said=said.text())


def _feed(pipe: IO[bytes], request: bytes) -> None:
    """Write the request; a process that ends without reading it says why itself."""
    with contextlib.suppress(OSError), pipe:
        pipe.write(request)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, and end it with all of its session that is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
