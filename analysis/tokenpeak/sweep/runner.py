"""Playbooks run through ansible-runner; the only module that imports it.

Each run has a fresh private folder that is removed afterwards: a folder that is used again leaks the previous run's
extravars, and its artifacts hold the environment in plain text. Secrets are therefore kept out of both: extravars are
paths, and the environment is cut to what Ansible and SSH need.
"""

import contextlib
import os
import re
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import ansible_runner

from tokenpeak import paths
from tokenpeak.errors import NodeError
from tokenpeak.node.protocol.answers import NodeAnswer, parse
from tokenpeak.node.protocol.commands import ANSWERS
from tokenpeak.node.words import one_line
from tokenpeak.sweep.connection import is_kept, open_sockets, search_path
from tokenpeak.sweep.inventory import Inventory
from tokenpeak.sweep.login_failures import Login, logins_of, with_remedy
from tokenpeak.sweep.node_result import WORDS_CHARACTERS, Event, NodeResult, answer_in, failure_words
from tokenpeak.sweep.resolution import as_extravars
from tokenpeak.sweep.step import Step, step_of

_CANCEL_POLL_S = 0.5
_TAIL_LINES = 12
_ANSIBLE_MEMORY_BYTES = 1 << 30
"""Of Ansible's processes together, beyond what each of them usually has; they hold a node's output several times over.
Their children may have more: on a local node the engine is one, so that no limit is set that children inherit."""
_USUAL_BYTES = 150 << 20
_FLOOD_POLL_S = 0.1
"""Output that is cut into lines takes gigabytes in seconds, and events may keep the thread that runs Ansible busy."""


@dataclass(frozen=True, kw_only=True)
class PlaybookResult:
    """What came of a run: a result per node that it was limited to."""

    nodes: Mapping[str, NodeResult]
    cancelled: bool
    duration_s: float


class _Collector:
    """Makes results of ansible-runner's events."""

    def __init__(
        self, on_event: Callable[[Event], None] | None, logins: Callable[[], Mapping[str, Login]] = dict
    ) -> None:
        self.answers: dict[str, dict[Step, NodeAnswer]] = {}
        self.spans: dict[str, dict[Step, tuple[float, float]]] = {}
        self.ended: set[str] = set()
        self.unreachable: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._started: dict[tuple[str, Step], float] = {}
        self._on_event = on_event
        self._find_logins = logins

    def __call__(self, event: dict[str, Any]) -> bool:
        """Take one event in; True, because ansible-runner drops its own record of it otherwise.

        What is raised here would end the run of all nodes. One whose event cannot be taken in has failed alone.
        """
        kind = str(event.get("event", "")).removeprefix("runner_on_")
        data = event.get("event_data") or {}
        node = data.get("host")
        if kind not in ("start", "ok", "failed", "skipped", "unreachable") or node is None:
            return True
        try:
            self._take(kind, node, data)
        except Exception as error:
            self.failures.setdefault(node, _untaken(kind, error))
        return True

    def _take(self, kind: str, node: str, data: Mapping[str, Any]) -> None:
        now = time.time()
        step = step_of(str(data.get("task_path", "")))
        found = data.get("res")
        result: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        if kind != "start":
            self.ended.add(node)
        if step is not None and kind == "start":
            self._started[node, step] = now
        elif step is not None:
            self.spans.setdefault(node, {})[step] = (self._started.get((node, step), now), now)
            self._take_answer(node, step, result)
        if kind == "unreachable":
            said = str(result.get("msg") or "").strip()[:WORDS_CHARACTERS]
            self.unreachable[node] = with_remedy(said or "unreachable", self._login(node))
        if kind == "failed" and not data.get("ignore_errors"):
            title = str(data.get("task", "")).rsplit(" : ", 1)[-1]
            self.failures[node] = failure_words(title, result, self._login(node))
        if self._on_event is not None:
            answer = self.answers.get(node, {}).get(step) if step is not None and kind != "start" else None
            self._on_event(Event(kind="started" if kind == "start" else kind, step=step, node=node, answer=answer))

    def _login(self, node: str) -> Login:
        return self._logins.get(node) or Login(address=node)

    @cached_property
    def _logins(self) -> Mapping[str, Login]:
        return self._find_logins()

    def _take_answer(self, node: str, step: Step, result: Mapping[str, Any]) -> None:
        answer = answer_in(result.get("stdout"))
        if answer is not None and step in ANSWERS:
            self.answers.setdefault(node, {})[step] = parse(ANSWERS[step], answer)

    def result(self, node: str) -> NodeResult:
        """What is known of `node` when the run has ended."""
        return NodeResult(
            answers=self.answers.get(node, {}),
            spans=self.spans.get(node, {}),
            has_run=node in self.ended,
            unreachable=self.unreachable.get(node),
            failure=self.failures.get(node),
        )


def _untaken(kind: str, error: Exception) -> str:
    """Why an event could not be taken in, with its place: what a node sent, or a defect of ours."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = one_line(f"{type(error).__name__}: {error}"[:WORDS_CHARACTERS])
    return (
        f"what Ansible reported of it ({kind}) could not be taken in: {said} ({Path(place.filename).name}, line "
        f"{place.lineno}). See what its Python and its node script print; if nothing odd, report a defect"
    )


def run_playbook(
    playbook: str,
    inventory: Inventory,
    *,
    nodes: Sequence[str] = (),
    extravars: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    logins: Callable[[], Mapping[str, Login]] | None = None,
    skip_tags: Sequence[str] = (),
) -> PlaybookResult:
    """Run `playbook` of the playbooks folder on `nodes` (all when empty) and wait for its end.

    `logins` answers how hosts are logged in to, by name, once one of them has failed; None: by the variables of
    `inventory`. Tasks with one of `skip_tags` are left out.
    `on_event` and `cancelled` are called from this thread; once `cancelled` answers True, Ansible is killed within
    half a second and what it had started on nodes is left to them. Raises NodeError when Ansible itself could not run.
    """
    limit = tuple(nodes) or tuple(node.name for node in inventory.nodes)
    hosts = (*inventory.nodes, *inventory.load_hosts)
    collector = _Collector(on_event, logins or (lambda: logins_of({host.name: host.variables for host in hosts})))
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tokenpeak-ansible-", ignore_cleanup_errors=True) as private,
        _Flood(private) as flood,
    ):
        run = ansible_runner.interface.init_runner(
            private_data_dir=private,
            project_dir=str(paths.PLAYBOOKS),
            playbook=playbook,
            inventory=str(inventory.hosts_path),
            limit=",".join(limit),
            skip_tags=",".join(skip_tags) or None,
            extravars=as_extravars(extravars or {}),
            settings={"pexpect_timeout": _CANCEL_POLL_S},
            quiet=True,
            event_handler=collector,
            cancel_callback=lambda: cancelled() or flood.seen,
        )
        run.config.env = _environment(run.config.env)
        run.run()
        output = _tail(Path(private))
    if flood.seen:
        for name in limit:
            collector.failures.setdefault(name, f"it printed more than {_ANSIBLE_MEMORY_BYTES >> 20} MiB can hold")
    results = {name: collector.result(name) for name in limit}
    silent = [name for name, result in results.items() if result.ok and not result.has_run]
    if run.rc != 0 and not run.canceled and len(silent) == len(limit):
        raise NodeError(f"{playbook} did not run (Ansible ended with {run.rc}):\n{output}")
    was_cancelled = bool(run.canceled) and not flood.seen
    return PlaybookResult(nodes=results, cancelled=was_cancelled, duration_s=time.monotonic() - began)


class _Flood:
    """Whether nodes printed more than this machine should hold: a thread looks, and ends Ansible when they did."""

    def __init__(self, private: str) -> None:
        self._private = private.encode()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seen = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        first: str | None = None
        while not self._is_over.wait(_FLOOD_POLL_S):
            # Other threads run playbooks as well: theirs are not looked at each time.
            if first is None or not self._is_ansible(first):
                first = next(filter(self._is_ansible, _children("self")), None)
            family = () if first is None else (first, *_descendants(first))
            held = {pid: _resident_bytes(pid) for pid in family if self._is_ansible(pid)}
            if sum(max(0, size - _USUAL_BYTES) for size in held.values()) <= _ANSIBLE_MEMORY_BYTES:
                continue
            self.seen = True
            for pid in held:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def _is_ansible(self, pid: str) -> bool:
        command_line = _proc(pid, "cmdline")
        return b"ansible-playbook" in command_line and self._private in command_line


def _proc(pid: str, name: str) -> bytes:
    try:
        return Path("/proc", pid, name).read_bytes()
    except OSError:
        return b""  # it has ended, or this is no Linux


def _children(pid: str) -> Iterator[str]:
    try:
        tasks = [task.name for task in Path("/proc", pid, "task").iterdir()]
    except OSError:
        return  # it has ended, or this is no Linux
    for task in tasks:
        yield from _proc(pid, f"task/{task}/children").decode().split()


def _descendants(pid: str) -> Iterator[str]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _resident_bytes(pid: str) -> int:
    found = re.search(rb"VmRSS:\s+(\d+) kB", _proc(pid, "status"))
    return int(found[1]) * 1024 if found else 0


def _environment(prepared: Mapping[str, str]) -> dict[str, str]:
    """Ansible's environment: what ansible-runner prepared, without whatever else this process happens to hold."""
    kept = {name: value for name, value in prepared.items() if is_kept(name) or os.environ.get(name) != value}
    kept["PATH"] = search_path()
    kept["ANSIBLE_CONFIG"] = str(paths.PLAYBOOKS / "ansible.cfg")
    # ansible-runner says False here, which is stronger than ansible.cfg.
    kept["ANSIBLE_HOST_KEY_CHECKING"] = "True"
    # Or a node that answers with facts sets any variable of the play, above the inventory.
    kept["ANSIBLE_INJECT_FACT_VARS"] = "False"
    if (folder := open_sockets()) is not None:
        # A login costs as much processor time as twenty commands. %% is Ansible's for %.
        kept["ANSIBLE_SSH_CONTROL_PATH"] = f"{folder}/%%C"
    return kept


def _tail(private: Path) -> str:
    lines: list[str] = []
    for path in sorted(private.glob("artifacts/*/stdout")):
        lines += [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(f"  {one_line(line)}" for line in lines[-_TAIL_LINES:])
