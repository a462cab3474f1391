"""Dispatch: how a running playbook's tasks and the controller speak, over a socket of this machine.

The strategy hears for which hosts there is something. A host's task asks for its next assignment; or it asks to begin a
step, and hears later should the step be ended. Lines of JSON, both ways. This is Ansible's side: the standard library
alone.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenpeak.node.protocol.frame import KEY, unframed

_POLL_S = 0.05
_SOFT_END_S = 2.0
"""For a child that was asked to end."""
Step = Literal[
    "install",
    "probe",
    "launch",
    "load",
    "finish",
    "restore",
    "status",
    "produce",
    "uninstall",
    "describe",
    "observe",
    "change",
    "confirm",
    "survey",
]
"""The node command that is run; `load` runs the load client. A task's result names it as `tokenpeak_step`."""


@dataclass
class StepAtWork:
    """What the controller has said of a step."""

    is_ended: threading.Event = field(default_factory=threading.Event)
    """It is not to begin, or to end at once."""

    def as_result(self) -> dict[str, Any]:
        """What a task's result says of it: nothing more of the host's round is wanted."""
        words = {"msg": "the controller ended it", "failed": True, "tokenpeak_round_over": True}
        return words if self.is_ended.is_set() else {}


class HostQueue:
    """Which hosts the controller has something for: the others cost no task's process while they wait.

    All of them once the controller has gone or has nothing more, and without an address.
    """

    def __init__(self, address: str | None) -> None:
        self._wanted: set[str] = set()
        self._is_open = address is None
        self._connection: socket.socket | None = None
        if address is not None:
            threading.Thread(target=self._listen, args=(address,), name="dispatch", daemon=True).start()

    def takes(self, host: str) -> bool:
        """Whether the host is to ask for its next assignment."""
        if host in self._wanted:
            self._wanted.discard(host)
            return True
        return self._is_open

    def has_any(self, hosts: Collection[str]) -> bool:
        """Whether one of these hosts is to ask."""
        return (self._is_open and bool(hosts)) or not self._wanted.isdisjoint(hosts)

    def put(self, host: str) -> None:
        """Report that the host has come to the end of a round."""
        if (connection := self._connection) is not None:
            with contextlib.suppress(OSError):
                connection.sendall(f"{json.dumps({'through': host})}\n".encode())

    def _listen(self, address: str) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError), _connected(address, {}) as (self._connection, lines):
            for line in lines:
                self._wanted.add(json.loads(line)["host"])
        self._is_open = True


def next_assignment(address: str, host: str) -> dict[str, Any]:
    """What the controller has for the host next, whenever that is, with its `round`; empty once there is nothing more.

    Nothing is left where no controller listens any more; raises OSError where this machine cannot even ask.
    """
    try:
        with _connected(address, {"host": host}) as (_, lines):
            answer: dict[str, Any] = json.loads(next(lines, "{}"))
            return answer
    except (FileNotFoundError, ConnectionError):
        return {}


@contextlib.contextmanager
def step_at_work(
    address: str | None, host: str, step: str, number: int | None, *, ends_with_controller: bool
) -> Iterator[StepAtWork]:
    """Ask whether the step of round `number` may begin; once the controller ends it, this process's children end.

    `ends_with_controller`: so do they where the controller has gone. A node's command goes on then.
    Raises OSError where no controller listens any more.
    """
    word = StepAtWork()
    if address is None:
        yield word
        return
    is_over = threading.Event()

    def wait(lines: Iterator[str]) -> None:
        has_heard = any(lines)
        if is_over.is_set() or not (has_heard or ends_with_controller):
            return
        word.is_ended.set()
        end_children()

    with _connected(address, {"host": host, "step": step, "round": number}) as (_, lines):
        if "go" not in json.loads(next(lines, "{}")):
            word.is_ended.set()
            yield word
            return
        waiting = threading.Thread(target=wait, args=(lines,), name="dispatch", daemon=True)
        waiting.start()
        try:
            yield word
        finally:
            is_over.set()
            if word.is_ended.is_set():
                waiting.join()


@contextlib.contextmanager
def _connected(address: str, greeting: Mapping[str, Any]) -> Iterator[tuple[socket.socket, Iterator[str]]]:
    """A connection to the controller and its lines, after this greeting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        connection.sendall(f"{json.dumps(greeting)}\n".encode())
        with connection.makefile("r", encoding="utf-8", errors="replace") as lines:
            try:
                yield connection, iter(lines.readline, "")
            finally:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def end_children() -> None:
    """Ask what this process has started in its own session to end, then end it: it would hold the task's pipes open.

    What has a session of its own, a node's guard or its engine, was started to outlive its command.
    """
    started = list(_descendants(os.getpid(), os.getsid(0)))
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        until_s = time.monotonic() + _SOFT_END_S
        while any(map(_is_there, started)) and time.monotonic() < until_s:
            time.sleep(_POLL_S)


def _descendants(pid: int, session: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if _session(child) == session:
                    yield child
                    yield from _descendants(child, session)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _is_there(pid: int) -> bool:
    """Whether the process has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def printed_answer(printed: str) -> dict[str, Any] | None:
    """The node command's answer in all that was printed; None where there is none."""
    return unframed(printed, KEY, _as_object)


def is_down(step: str, answer: Mapping[str, Any]) -> bool:
    """Whether the node says that production, which the step was to bring up, is not."""
    if step == "produce":
        return answer.get("ready") is False
    return step == "restore" and (answer.get("restoration") or {}).get("restored") is not True


def _as_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
