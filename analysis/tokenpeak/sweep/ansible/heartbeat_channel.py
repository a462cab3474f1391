"""Lease of a node: renewals from the controller, on a channel of their own.

A small process on the node reads heartbeats from its standard input and renews the node's lease, by the command with
which the node's own connection and become plugins would run it. When this controller dies, the pipe closes, renewals
stop, and the node's guard gives production back. The channel is not a playbook's, so that neither a long task nor a
lost one says anything about the controller.
"""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Self

from tokenpeak.errors import NodeError
from tokenpeak.node.guard import lease
from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import CommandFailure, HeardAnswer, LeaseAnswer, OverlapAnswer, parse
from tokenpeak.node.protocol.parts import Overlap
from tokenpeak.node.protocol.requests import HeartbeatRequest, as_json
from tokenpeak.sweep.ansible.result import ANYWHERE, WORDS_CHARACTERS, Login, answer_in, as_object, explained
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory

MOST_SAID_BYTES = 1 << 20
"""Of what a process says beside its answer; the last of it says why it ended."""
REST_S = 1.0
"""For the rest of what was said: a process that SSH leaves behind may hold that pipe for ever."""
_BEATS_PER_LEASE = 4
_LONGEST_BEAT_S = 15.0
_SHORTEST_BEAT_S = 0.5
_CLOSE_TIMEOUT_S = 3.0
_LONGEST_LINE_BYTES = 1 << 16
"""Of an answer on a channel, which is a number or what the node noted."""
_KEPT_LINES = 32
Argvs = dict[str, list[str]]
"""Host → the command of this machine that runs something there, by its connection and become plugins."""


class OutputReader:
    """What a process writes into a pipe, read by a thread: the last `MOST_SAID_BYTES` of it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.has_ended = threading.Event()
        self._pipe = pipe
        self._data = bytearray()
        threading.Thread(target=self._read, name="output", daemon=True).start()

    def _read(self) -> None:
        with self._pipe, contextlib.suppress(OSError):
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._data += chunk
                del self._data[:-MOST_SAID_BYTES]
        self.has_ended.set()

    def data(self) -> bytes:
        """What was read so far."""
        return bytes(self._data)


class LeaseChannel:
    """Heartbeats to one node from entering the context to leaving it; a process that ends is started anew.

    Each names the `holder`, whose lease alone it renews. The node answers each, so that `problem` can say whether it
    hears them now. `on_loss` gets the process's last words when it ends by itself, once for each that differ;
    `on_overlap` what the node noted of production that somebody started during a trial; `on_fenced` the node's sentence
    where it refuses the `claim` because another controller has the sweep, after which nothing is sent any more.
    """

    def __init__(
        self,
        argv: Sequence[str],
        holder: str,
        lease_s: float,
        on_loss: Callable[[str], None],
        on_overlap: Callable[[Overlap], None] = lambda _: None,
        login: Login = ANYWHERE,
        *,
        claim: dict[str, Any] | None = None,
        on_fenced: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._argv = list(argv)
        self._login = login
        self._holder = holder
        self._claim = claim
        self._on_fenced = on_fenced
        self._on_loss = on_loss
        self._on_overlap = on_overlap
        self._reported: set[str] = set()
        self._last_loss = ""
        self._beat_s = min(_LONGEST_BEAT_S, max(_SHORTEST_BEAT_S, lease_s / _BEATS_PER_LEASE))
        self._beats = 0
        self._heard = 0
        """The number of the last beat that the node has answered."""
        self.heard_at_unix_s: float | None = None
        """When the node last answered one; None before the first."""
        self._changed = threading.Condition()
        self._is_wanted = threading.Event()
        """A beat is to be sent at once."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._is_wanted.set()
        self._thread.join(timeout=_CLOSE_TIMEOUT_S * 2)

    def problem(self, timeout_s: float) -> str | None:
        """Why the node does not hear this controller; None once it has answered a beat sent after this call."""
        with self._changed:
            due = self._beats + 1
            self._is_wanted.set()
            if self._changed.wait_for(lambda: self._heard >= due, timeout_s):
                return None
            return self._last_loss or f"it answered nothing for {timeout_s:g} s"

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C must not reach it before the nodes are restored
                )
            except OSError as error:
                self._report(str(error))
                self._closing.wait(self._beat_s)
                continue
            assert process.stderr is not None
            errors = OutputReader(process.stderr)
            other: deque[bytes] = deque(maxlen=_KEPT_LINES)
            reader = threading.Thread(target=self._hear, args=(process, other), daemon=True)
            reader.start()
            self._beat(process)
            _end(process)
            reader.join(timeout=_CLOSE_TIMEOUT_S)
            if not self._closing.is_set():
                errors.has_ended.wait(REST_S)
                words = errors.data() + b"".join(other)
                refusal = _refusal(words)
                if refusal is not None and refusal.code == lease.FENCED:
                    self._on_fenced(refusal.text)
                    return
                self._report(_ending(words, process.returncode, self._login))
            self._closing.wait(min(1.0, self._beat_s))

    def _report(self, words: str) -> None:
        self._last_loss = words
        if words not in self._reported:
            self._reported.add(words)
            self._on_loss(words)

    def _hear(self, process: subprocess.Popen[bytes], other: deque[bytes]) -> None:
        """Take the node's answers in until the process has ended; lines that are none, the last of them, go to `other`.

        A line beyond its bound is several.
        """
        assert process.stdout is not None
        with process.stdout:
            while line := process.stdout.readline(_LONGEST_LINE_BYTES):
                given = as_object(line) or {}
                if (heard := parse(HeardAnswer, given).heard) is not None:
                    with self._changed:
                        self._heard = max(self._heard, heard)
                        self.heard_at_unix_s = time.time()
                        self._changed.notify_all()
                elif (overlap := parse(OverlapAnswer, given).overlap) is not None:
                    self._on_overlap(overlap)
                else:
                    other.append(line)

    def _beat(self, process: subprocess.Popen[bytes]) -> None:
        """Write heartbeats until the channel closes or its process is gone."""
        assert process.stdin is not None
        while process.poll() is None:
            self._is_wanted.clear()
            with self._changed:
                self._beats += 1
                number = self._beats
            try:
                beat = as_json(HeartbeatRequest(number=number, holder=self._holder, claim=self._claim))
                process.stdin.write(f"{json.dumps(beat)}\n".encode())
                process.stdin.flush()
            except OSError:
                return
            # On the same beat as this controller's other nodes, so that their leases lapse by their offsets alone.
            self._is_wanted.wait(self._beat_s - time.monotonic() % self._beat_s)
            if self._closing.is_set():
                return


def _ending(printed: bytes, status: int, login: Login) -> str:
    """Why a channel's process ended, from what it printed."""
    words = explained(printed.decode(errors="replace"), login) or one_line(_last_words(printed)[-WORDS_CHARACTERS:])
    return words or f"it ended with status {status}"


def _last_words(printed: bytes) -> str:
    """The last line that is not empty; of a node command's answer, its error."""
    lines = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
    refusal = _refusal(printed)
    return refusal.text if refusal is not None else lines[-1].strip() if lines else ""


def _refusal(printed: bytes) -> CommandFailure | None:
    """The error in a node command's answer; None where there is no such answer."""
    answer = answer_in(printed)
    return None if answer is None else parse(LeaseAnswer, answer).error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe and see the process go; it is ended when it does not go by itself."""
    assert process.stdin is not None
    try:
        process.stdin.close()
    except OSError:
        process.kill()  # the pipe broke: nobody reads it any more
    try:
        process.wait(timeout=_CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def channel_argvs(
    inventory: Inventory, words: Mapping[str, Sequence[str]], *, cancelled: Callable[[], bool] = lambda: False
) -> Argvs:
    """How each of these hosts runs its words; raises NodeError for one whose connection cannot be kept open."""
    if not words:
        return {}
    extravars = {"tokenpeak_channel_words": {name: list(of_host) for name, of_host in words.items()}}
    return lease_argvs(inventory, tuple(words), extravars, cancelled=cancelled)


def lease_argvs(
    inventory: Inventory, hosts: Sequence[str], extravars: Mapping[str, Any], *, cancelled: Callable[[], bool]
) -> Argvs:
    """How each of these nodes' leases is renewed, with these rights; raises NodeError as `channel_argvs` does."""
    done = run_playbook("channel.yml", inventory, nodes=hosts, extravars=extravars, cancelled=cancelled)
    for name, result in done.nodes.items():
        if not result.ok or not result.argv:
            raise NodeError(f"{name}: {result.failure or result.unreachable or 'nothing was asked of it'}.")
    return {name: list(result.argv) for name, result in done.nodes.items()}
