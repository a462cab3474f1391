"""Trial play: one run of trial.yml for all nodes of a sweep, which is handed assignments for as long as there are any.

An Ansible process for each node would cost 200 MB; this one costs a forked task for each node at work. It hears on a
socket for which hosts there is something; their tasks ask there what it is, and before each step whether it may begin
(`dispatch`). Should Ansible
end, whatever was under way has failed, and the next assignment starts it anew.
"""

import contextlib
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tokenpeak.errors import TokenpeakError
from tokenpeak.node.machine.error import refusal
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.result import Event, NodeResult
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import Inventory

PLAYBOOK = "trial.yml"
_POLL_S = 0.2
_END_S = 10.0
"""For Ansible, once nothing is left to do."""
_REPORT_S = 15.0
"""For Ansible's report of what a host has ended."""
_UNREPORTED = (
    "Ansible's report of it did not come: see whether the disk for temporary files (TMPDIR) is full on this machine"
)
_LONGEST_LINE = 4096
_LONGEST_FOLDER = 80
"""A socket's path has at most 107 characters."""
_SPARE = 8
_GIVES_BACK = {"finish", "restore"}
"""Steps that a sweep which ends still waits for."""
Assignment = Mapping[str, Any]
"""What a node is to do: `launch`, `job`, `finish` with their request files, `restore` with its request."""


@dataclass
class _NodeState:
    """What a node does in the play."""

    round: int = 0
    """Of the latest assignment; what comes of an earlier one is nobody's any more."""
    assignment: Assignment | None = None
    is_given: bool = False
    is_ended: bool = False
    """Nothing more is wanted of the round."""
    gives_back: bool = False
    """The round has come to the steps that give the node back."""
    result: NodeResult | None = None
    through_s: float | None = None
    """When the host had this round behind it."""
    out: NodeResult | None = None
    """Why the host asks for nothing more in this run of Ansible."""
    on_event: Callable[[Event], None] = lambda _: None
    asking: socket.socket | None = None
    """Of a task that waits for an assignment."""
    steps: dict[socket.socket, Step] = field(default_factory=dict)
    """Of the steps at work."""


class TrialPlay:
    """Carries assignments out, each on its node, from any thread; Ansible runs from the first one on."""

    def __init__(self, inventory: Inventory, nodes: Sequence[str]) -> None:
        self._inventory = inventory
        self._places = {name: _NodeState() for name in nodes}
        self._changed = threading.Condition()
        self._run: threading.Thread | None = None
        self._strategy: socket.socket | None = None
        """On which Ansible hears for which hosts there is something."""
        self._is_over = self._is_cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let Ansible end, and end it where it does not."""
        with self._changed:
            self._is_over = True
            run = self._run
            self._hang_up()
            for place in self._places.values():
                self._hand_out(place)
            at_work = any(place.steps for place in self._places.values())
        if run is not None:
            run.join(0 if at_work else _END_S)
            self._is_cancelled = True
            run.join()

    def carry_out(
        self,
        node: str,
        assignment: Assignment,
        *,
        on_event: Callable[[Event], None] = lambda _: None,
        cut_short: Callable[[], bool] = lambda: False,
        let_go: Callable[[], bool] = lambda: False,
    ) -> NodeResult:
        """Carry the assignment out on the node, and wait for its end.

        Once `cut_short` answers True what is under way is ended, unless the node is being given back, and no further
        step begins. Once `let_go` does, nothing is waited for.
        """
        place = self._places[node]
        with self._changed:
            place.round += 1
            place.assignment, place.on_event = assignment, on_event
            place.is_given = place.is_ended = place.gives_back = False
            place.result, place.through_s = place.out, None
            if self._run is None:
                self._run = threading.Thread(target=self._play, name="trial play", daemon=True)
                self._run.start()
            self._hand_out(place)
            self._want(node)
            while place.result is None and not let_go():
                self._changed.wait(_POLL_S)
                if place.result is None and not place.gives_back and cut_short():
                    self._end(place)
                if place.through_s is not None and time.monotonic() - place.through_s > _REPORT_S:
                    # Ansible hands its reports on by files; the host itself has said that it is through.
                    place.result = place.result or NodeResult(has_run=True, failure=_UNREPORTED)
            if place.result is None:
                self._end(place)
            place.assignment = None
            return place.result or NodeResult()

    def _play(self) -> None:
        """Run the playbook until its hosts have nothing more to do, or Ansible ends otherwise."""
        results: Mapping[str, NodeResult] = {}
        words = "Ansible ended before that"
        try:
            results = self._played()
        except TokenpeakError as error:
            words = str(error)
        except Exception as error:  # whatever it was, nobody may wait for ever
            words = (refusal(error) if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        with self._changed:
            self._run = None
            self._hang_up()
            for name, place in self._places.items():
                place.out = None
                # Tasks may outlive Ansible: they do nothing more.
                if place.asking is not None:
                    _send(place.asking, {})
                    place.asking = None
                for connection in place.steps:
                    _send(connection, {"end": True})
                if place.assignment is not None and place.result is None:
                    done = results.get(name, NodeResult()) if place.is_given else NodeResult()
                    failure = done.failure or words
                    place.result = done.then(NodeResult(has_run=place.is_given, failure=failure))
            self._changed.notify_all()

    def _played(self) -> Mapping[str, NodeResult]:
        """What came of each host's last round."""
        short = "/tmp" if len(tempfile.gettempdir()) > _LONGEST_FOLDER else None  # noqa: S108 — a new private folder in it
        with (
            tempfile.TemporaryDirectory(prefix="tp-", dir=short, ignore_cleanup_errors=True) as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
        ):
            address = str(Path(folder, "s"))
            server.bind(address)
            server.listen(len(self._places) + _SPARE)
            threading.Thread(target=self._listen, args=(server,), name="dispatch", daemon=True).start()
            try:
                done = run_playbook(
                    PLAYBOOK,
                    self._inventory,
                    nodes=tuple(self._places),
                    extravars={"tokenpeak_dispatch": address},
                    on_event=lambda event: self._places[event.node].on_event(event),
                    on_round=self._end_round,
                    forks=len(self._places),
                    cancelled=lambda: self._is_cancelled,
                )
            finally:
                with contextlib.suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)
        return done.nodes

    def _listen(self, server: socket.socket) -> None:
        """Take the tasks' connections until the server is shut down."""
        while True:
            try:
                connection, _ = server.accept()
                threading.Thread(target=self._greet, args=(connection,), name="dispatch", daemon=True).start()
            except (OSError, RuntimeError):
                if server.fileno() < 0 or not _is_listening(server):
                    return
                time.sleep(_POLL_S)  # no descriptor or no thread is to be had: those who ask wait

    def _greet(self, connection: socket.socket) -> None:
        """Answer a task, and keep its connection for as long as the task is there."""
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            lines = connection.makefile("r", encoding="utf-8")
            greeting: dict[str, Any] = json.loads(lines.readline(_LONGEST_LINE))
            if "host" not in greeting:
                self._serve_strategy(connection, lines)
                return
            place = self._places[greeting["host"]]
            kept = (
                self._asked(place, connection) if "step" not in greeting else self._begun(place, greeting, connection)
            )
            with kept:
                lines.readline(_LONGEST_LINE)  # the task says nothing more: this is its end

    def _serve_strategy(self, connection: socket.socket, lines: Iterable[str]) -> None:
        """Say for which hosts there is something, and hear which have ended a round."""
        with self._changed:
            self._strategy = connection
            for name in self._places:
                self._want(name)
            if self._is_over:
                self._hang_up()
        for line in lines:
            place = self._places[json.loads(line)["through"]]
            with self._changed:
                if place.is_given and place.result is None:
                    place.through_s = time.monotonic()

    def _want(self, node: str) -> None:
        place = self._places[node]
        if self._strategy is not None and place.assignment is not None and not place.is_given:
            _send(self._strategy, {"host": node})

    def _hang_up(self) -> None:
        """Let all hosts ask what is next: there is nothing more, or nobody waits for it."""
        if self._strategy is not None:
            with contextlib.suppress(OSError):
                self._strategy.shutdown(socket.SHUT_RDWR)
            self._strategy = None

    @contextlib.contextmanager
    def _asked(self, place: _NodeState, connection: socket.socket) -> Iterator[None]:
        """A host that wants its next assignment."""
        with self._changed:
            place.asking = connection
            self._hand_out(place)
        try:
            yield
        finally:
            with self._changed:
                if place.asking is connection:
                    place.asking = None

    @contextlib.contextmanager
    def _begun(self, place: _NodeState, greeting: Mapping[str, Any], connection: socket.socket) -> Iterator[None]:
        """A host that would begin a step; it may where its round is still wanted."""
        step: Step = greeting["step"]
        with self._changed:
            is_wanted = greeting.get("round") == place.round and place.assignment is not None and not place.is_ended
            _send(connection, {"go": True} if is_wanted else {"end": True})
            if is_wanted:
                place.gives_back = place.gives_back or step in _GIVES_BACK
                place.steps[connection] = step
        if is_wanted:
            place.on_event(Event(kind="started", step=step, node=greeting["host"]))
        try:
            yield
        finally:
            with self._changed:
                place.steps.pop(connection, None)

    def _hand_out(self, place: _NodeState) -> None:
        """Give a host that asks what there is for it."""
        if place.asking is None:
            return
        if place.assignment is not None and not place.is_given and place.result is None:
            _send(place.asking, {"assignment": dict(place.assignment), "round": place.round})
            place.asking, place.is_given = None, True
        elif self._is_over:
            _send(place.asking, {})
            place.asking = None

    def _end(self, place: _NodeState) -> None:
        """End what is at work on the place, and let nothing more of the round begin."""
        if not place.is_ended:
            place.is_ended = True
            for connection in place.steps:
                _send(connection, {"end": True})

    def _end_round(self, node: str, number: int | None, result: NodeResult) -> None:
        """A host has ended a round; without a number it could not even ask for one, and asks no more."""
        with self._changed:
            place = self._places[node]
            if number is None:
                place.out = result
            if place.assignment is not None and place.result is None and number in (None, place.round):
                place.result = result
                self._changed.notify_all()


def _is_listening(server: socket.socket) -> bool:
    try:
        return bool(server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Say it to a task; one that has ended hears nothing."""
    with contextlib.suppress(OSError):
        connection.sendall(f"{json.dumps(message)}\n".encode())
