"""Playbooks run through ansible-runner; the only module that imports it.

Each run has a fresh private folder that is removed afterwards: a folder that is used again leaks the previous run's
extravars, and its artifacts hold the environment in plain text. Secrets are therefore kept out of both: extravars are
paths, and the environment is cut to what Ansible and SSH need.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner

from tokenpeak import paths
from tokenpeak.drive.inventory import Inventory, common_extravars
from tokenpeak.errors import NodeError

_KEPT_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "LANG", "TZ", "VIRTUAL_ENV")
_KEPT_PREFIXES = ("LC_", "SSH_", "SSL_", "XDG_", "ANSIBLE_", "TOKENPEAK_", "PIP_", "UV_")
_KEPT_SUFFIXES = ("_proxy", "_PROXY")
_CANCEL_POLL_S = 0.5
_TAIL_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Event:
    """A task that starts or ends on a node."""

    kind: str
    """started, ok, failed, skipped or unreachable."""
    task: str
    node: str
    answer: Mapping[str, Any] | None = None
    """What the node's command printed, once it has ended."""


@dataclass(frozen=True, kw_only=True)
class NodeResult:
    """What came of a run on one node. `answers` maps a node command (`launch`) to the JSON that it printed."""

    answers: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Task (its words after the last `role : `) → when it started and ended, unix seconds on the controller."""
    unreachable: str | None = None
    """Ansible's words when the node could not be reached."""
    failure: str | None = None
    """What a failed task said, when one failed."""

    @property
    def ok(self) -> bool:
        """Every task that ran succeeded."""
        return self.unreachable is None and self.failure is None

    @property
    def is_not_installed(self) -> bool:
        """TokenPeak's command is not on the node: nothing was ever borrowed there."""
        failure = self.failure or ""
        return (
            "tokenpeak-node.pyz': [Errno 2]" in failure
            or "TokenPeak is not installed in" in failure
            or ("sudo:" in failure and "command not found" in failure)
        )


@dataclass(frozen=True, kw_only=True)
class PlaybookResult:
    """What came of a run: a result per node that it was limited to."""

    nodes: Mapping[str, NodeResult]
    cancelled: bool
    duration_s: float


class _Collector:
    """Turns ansible-runner's events into results."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self.answers: dict[str, dict[str, dict[str, Any]]] = {}
        self.spans: dict[str, dict[str, tuple[float, float]]] = {}
        self.unreachable: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._started: dict[tuple[str, str], float] = {}
        self._on_event = on_event

    def __call__(self, event: dict[str, Any]) -> bool:
        """Take one event in; True, because ansible-runner drops its own record of it otherwise."""
        kind = str(event.get("event", "")).removeprefix("runner_on_")
        data = event.get("event_data") or {}
        node = data.get("host")
        if kind not in ("start", "ok", "failed", "skipped", "unreachable") or node is None:
            return True
        now = time.time()
        task = str(data.get("task", "")).rsplit(" : ", 1)[-1]
        result = data.get("res") or {}
        if kind == "start":
            self._started[node, task] = now
        else:
            self.spans.setdefault(node, {})[task] = (self._started.get((node, task), now), now)
            self._take_answer(node, task, result)
        if kind == "unreachable":
            self.unreachable[node] = str(result.get("msg", "unreachable"))
        if kind == "failed" and not data.get("ignore_errors"):
            self.failures[node] = _words(task, result)
        if self._on_event is not None:
            answer = self.answers.get(node, {}).get(task.rpartition(" | ")[2]) if kind != "start" else None
            self._on_event(Event(kind="started" if kind == "start" else kind, task=task, node=node, answer=answer))
        return True

    def _take_answer(self, node: str, task: str, result: Mapping[str, Any]) -> None:
        prefix, _, command = task.rpartition(" | ")
        if prefix not in ("node", "load") or not result.get("stdout"):
            return
        try:
            answer = json.loads(result["stdout"])
        except ValueError:
            return
        if isinstance(answer, dict):
            self.answers.setdefault(node, {})[command] = answer

    def result(self, node: str) -> NodeResult:
        """What is known of `node` when the run has ended."""
        return NodeResult(
            answers=self.answers.get(node, {}),
            spans=self.spans.get(node, {}),
            unreachable=self.unreachable.get(node),
            failure=self.failures.get(node),
        )


def run_playbook(
    playbook: str,
    inventory: Inventory,
    *,
    nodes: Sequence[str] = (),
    extravars: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> PlaybookResult:
    """Run `playbook` of the playbooks folder on `nodes` (all when empty) and wait for its end.

    `on_event` and `cancelled` are called from this thread; once `cancelled` answers True, Ansible is killed within
    half a second and what it had started on nodes is left to them. Raises NodeError when Ansible itself could not run.
    """
    limit = tuple(nodes) or tuple(node.name for node in inventory.nodes)
    collector = _Collector(on_event)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tokenpeak-ansible-", ignore_cleanup_errors=True) as private:
        run = ansible_runner.interface.init_runner(
            private_data_dir=private,
            project_dir=str(paths.PLAYBOOKS),
            playbook=playbook,
            inventory=str(inventory.hosts_path),
            limit=",".join(limit),
            extravars={**common_extravars(), **(extravars or {})},
            settings={"pexpect_timeout": _CANCEL_POLL_S},
            quiet=True,
            event_handler=collector,
            cancel_callback=cancelled,
        )
        run.config.env = _environment(run.config.env)
        run.run()
        output = _tail(Path(private))
    results = {name: collector.result(name) for name in limit}
    silent = [name for name, result in results.items() if result.ok and not result.spans]
    if run.rc != 0 and not run.canceled and len(silent) == len(limit):
        raise NodeError(f"{playbook} did not run (Ansible ended with {run.rc}):\n{output}")
    return PlaybookResult(nodes=results, cancelled=bool(run.canceled), duration_s=time.monotonic() - began)


def _environment(prepared: Mapping[str, str]) -> dict[str, str]:
    """Ansible's environment: what ansible-runner prepared, without whatever else this process happens to hold."""
    kept = {
        name: value
        for name, value in prepared.items()
        if name in _KEPT_VARIABLES
        or name.startswith(_KEPT_PREFIXES)
        or name.endswith(_KEPT_SUFFIXES)
        or os.environ.get(name) != value
    }
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    kept["ANSIBLE_CONFIG"] = str(paths.PLAYBOOKS / "ansible.cfg")
    return kept


def _words(task: str, result: Mapping[str, Any]) -> str:
    """The most telling words of a failed task: its own sentence, else its name with what it or Ansible printed."""
    try:
        answer = json.loads(result.get("stdout") or "")
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        return str(answer["error"].get("text") or answer["error"])
    if timed_out := result.get("timedout"):
        return f"{task}: nothing came back within {timed_out['period']} s: log in there and see what hangs"
    for key in ("stderr", "stdout", "module_stderr", "msg"):
        if text := str(result.get(key) or "").strip():
            return f"{task}: " + "\n".join(text.splitlines()[-_TAIL_LINES:])
    return f"{task}: failed without a word"


def _tail(private: Path) -> str:
    lines: list[str] = []
    for path in sorted(private.glob("artifacts/*/stdout")):
        lines += [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-_TAIL_LINES:])
