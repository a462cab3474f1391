"""Playbooks run through ansible-runner; the only module that imports it.

Each run has a fresh private folder that is removed afterwards: a folder that is used again leaks the previous run's
extravars, and its artifacts hold the environment in plain text. Secrets are therefore kept out of both: extravars are
paths, and the environment is cut to what Ansible and SSH need.
"""

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import ansible_runner

from tokenpeak import paths
from tokenpeak.errors import NodeError
from tokenpeak.files import delete
from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import NodeAnswer, SurveyAnswer, parse
from tokenpeak.node.protocol.requests import COMMANDS
from tokenpeak.sweep.ansible.dispatch import Step
from tokenpeak.sweep.ansible.result import (
    WORDS_CHARACTERS,
    Event,
    Login,
    NodeResult,
    answer_in,
    failure_words,
    logins_of,
    with_remedy,
)
from tokenpeak.sweep.inventory.nodes import Inventory, as_extravars

_KEPT_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "LANG", "TZ", "VIRTUAL_ENV")
_KEPT_PREFIXES = (
    "LC_",
    "SSH_",
    "SSL_",
    "XDG_",
    "ANSIBLE_",
    "TOKENPEAK_",
    "PIP_",
    "UV_",
    "DOCKER_",
    "CONTAINER_",
    "KUBE",
)
_KEPT_SUFFIXES = ("_proxy", "_PROXY")
_CANCEL_POLL_S = 0.5
_TAIL_LINES = 12
_STEPS = ("node_command", "node_script", "load_client", "survey")
"""Actions whose results say which step they were; what modules answer comes from nodes."""
_ROUND = "next_trial"
"""The action with which a host's round begins."""
_CHANNEL = "channel"
_NOTE = "note_failure"
LONG = "some minutes"
"""In the name of a task that takes so long."""
OnRound = Callable[[str, int | None, NodeResult], None]
"""Takes host, number of the round and what came of it; without a number, why the host asks for no more."""
_ANSWERS = {**{name: command.answer for name, command in COMMANDS.items()}, "survey": SurveyAnswer}


def is_kept(name: str) -> bool:
    """Whether a variable of this process's environment is one that SSH, Ansible or a node here may need."""
    return name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) or name.endswith(_KEPT_SUFFIXES)


def search_path() -> str:
    """PATH, with this environment's own programs first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@dataclass(frozen=True, kw_only=True)
class PlaybookResult:
    """What came of a run: a result per node that it was limited to."""

    nodes: Mapping[str, NodeResult]
    cancelled: bool
    duration_s: float


class _Collector:
    """Makes results of ansible-runner's events; what nodes printed is in files of `answers`."""

    def __init__(
        self,
        on_event: Callable[[Event], None] | None,
        logins: Callable[[], Mapping[str, Login]] = dict,
        answers: str = "",
        on_round: OnRound | None = None,
        on_long_task: Callable[[str, str], None] | None = None,
    ) -> None:
        self.results: dict[str, NodeResult] = {}
        self._rounds: dict[str, int] = {}
        """Host → the number of its round."""
        self._own_failures: dict[str, str] = {}
        self._on_event = on_event
        self._find_logins = logins
        self._answers = answers
        self._on_round = on_round
        self._on_long_task = on_long_task

    def __call__(self, event: dict[str, Any]) -> bool:
        """Take one event in; False, so that ansible-runner keeps no file of it: a long sweep has a hundred thousand.

        What is raised here would end the run of all nodes. One whose event cannot be taken in has failed alone.
        """
        kind = str(event.get("event", "")).removeprefix("runner_on_")
        data = event.get("event_data") or {}
        node = data.get("host")
        if kind not in ("start", "ok", "failed", "skipped", "unreachable") or node is None:
            return False
        try:
            self._take(kind, node, data)
        except Exception as error:
            self._note(node, NodeResult(has_run=True, failure=_untaken(kind, error)))
        return False

    def result(self, node: str) -> NodeResult:
        """What is known of `node`."""
        return self.results.get(node, NodeResult())

    def _note(self, node: str, result: NodeResult) -> None:
        self.results[node] = self.result(node).then(result)

    def _take(self, kind: str, node: str, data: Mapping[str, Any]) -> None:
        action = data.get("task_action")
        raw = data.get("res")
        result: dict[str, Any] = dict(raw) if isinstance(raw, Mapping) else {}
        if action == _ROUND:
            self._turn(kind, node, result)
        if kind == "start":
            title = _title(data)
            if self._on_long_task is not None and LONG in title:
                self._on_long_task(node, title)
            return
        step: Step | None = result.get("tokenpeak_step") if action in _STEPS else None
        made = NodeResult(has_run=True)
        if step is not None:
            answer = self._answer(step, result)
            spans = {step: tuple(result["span_unix_s"])} if "span_unix_s" in result else {}
            made = replace(made, spans=spans, answers={} if answer is None else {step: answer})
        if kind == "unreachable":
            reason = str(result.get("msg") or "").strip()[:WORDS_CHARACTERS]
            made = replace(made, unreachable=with_remedy(reason or "unreachable", self._login(node)))
        if kind == "failed" and not data.get("ignore_errors"):
            words = failure_words(_title(data), result, self._login(node))
            if self._on_round is None or action in (*_STEPS, _ROUND):
                made = replace(made, failure=words)
            else:
                # The inventory's own tasks may rescue it themselves.
                self._own_failures[node] = words
        if action == _NOTE and kind == "ok" and (words := self._own_failures.pop(node, "")):
            made = replace(made, failure=words, is_own_task=True)
        if action == _CHANNEL and kind == "ok":
            made = replace(made, argv=tuple(result["argv"]))
        self._note(node, made)
        if action == _ROUND and kind in ("failed", "unreachable") and self._on_round is not None:
            self._on_round(node, None, self.results.pop(node))
        if self._on_event is not None:
            self._on_event(Event(kind=kind, step=step, node=node, answer=made.answers.get(step) if step else None))

    def _turn(self, kind: str, node: str, result: Mapping[str, Any]) -> None:
        """A host is at the beginning of a round, and so at the end of another."""
        if self._on_round is None:
            return
        if kind == "start" and node in self._rounds:
            self._on_round(node, self._rounds.pop(node), self.result(node))
        if kind in ("start", "ok"):
            self.results.pop(node, None)
            self._own_failures.pop(node, None)
        if kind == "ok" and (number := result.get("round")) is not None:
            self._rounds[node] = number

    def _login(self, node: str) -> Login:
        return self._logins.get(node) or Login(address=node)

    @cached_property
    def _logins(self) -> Mapping[str, Login]:
        return self._find_logins()

    def _answer(self, step: Step, result: dict[str, Any]) -> NodeAnswer | None:
        """The step's answer; what the node printed becomes part of the result, as a module's output is."""
        if name := result.get("tokenpeak_answer"):
            path = Path(self._answers, Path(name).name)
            result["stdout"] = path.read_text(encoding="utf-8")
            delete(path)
        answer = answer_in(result.get("stdout"))
        return parse(_ANSWERS[step], answer) if answer is not None and step in _ANSWERS else None


def _title(data: Mapping[str, Any]) -> str:
    """The task's name, without its role's."""
    return str(data.get("task", "")).rsplit(" : ", 1)[-1]


def _untaken(kind: str, error: Exception) -> str:
    """Why an event could not be taken in, with its place: what a node sent, or a defect of ours."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    defect = one_line(f"{type(error).__name__}: {error}"[:WORDS_CHARACTERS])
    return (
        f"what Ansible reported of it ({kind}) could not be taken in: {defect} ({Path(place.filename).name}, line "
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
    on_round: OnRound | None = None,
    on_long_task: Callable[[str, str], None] | None = None,
    forks: int | None = None,
) -> PlaybookResult:
    """Run `playbook` of the playbooks folder on `nodes` (all when empty) and wait for its end.

    `logins` answers how hosts are logged in to, by name, once one of them has failed; None: by the variables of
    `inventory`. Tasks with one of `skip_tags` are left out.
    `forks`: how many hosts have a task at a time, if not as many as ansible.cfg says.
    `on_round` is called where the playbook begins with a host again.
    `on_long_task` is called with node and task where one begins in whose name LONG is.
    All of them and `cancelled` are called from this thread; once `cancelled` answers True, Ansible is killed within
    half a second and what it had started on nodes is left to them. Raises NodeError when Ansible itself could not run.
    """
    limit = tuple(nodes) or tuple(node.name for node in inventory.nodes)
    hosts = (*inventory.nodes, *inventory.load_hosts)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tokenpeak-ansible-", ignore_cleanup_errors=True) as private:
        answers = str(Path(private, "answers"))
        Path(answers).mkdir()
        known = logins or (lambda: logins_of({host.name: host.variables for host in hosts}))
        collector = _Collector(on_event, known, answers, on_round, on_long_task)
        run = ansible_runner.interface.init_runner(
            private_data_dir=private,
            project_dir=str(paths.PLAYBOOKS),
            playbook=playbook,
            inventory=str(inventory.hosts_path),
            limit=",".join(limit),
            skip_tags=",".join(skip_tags) or None,
            forks=forks,
            extravars=as_extravars({**(extravars or {}), "tokenpeak_answers": answers}),
            settings={"pexpect_timeout": _CANCEL_POLL_S},
            quiet=True,
            event_handler=collector,
            cancel_callback=cancelled,
        )
        run.config.env = _environment(run.config.env)
        run.run()
        output = _tail(Path(private))
    results = {name: collector.result(name) for name in limit}
    silent = [name for name, result in results.items() if result.ok and not result.has_run]
    if run.rc != 0 and not run.canceled and len(silent) == len(limit):
        raise NodeError(f"{playbook} did not run (Ansible ended with {run.rc}):\n{output}")
    return PlaybookResult(nodes=results, cancelled=bool(run.canceled), duration_s=time.monotonic() - began)


def _environment(prepared: Mapping[str, str]) -> dict[str, str]:
    """Ansible's environment: what ansible-runner prepared, without whatever else this process happens to hold."""
    kept = {name: value for name, value in prepared.items() if is_kept(name) or os.environ.get(name) != value}
    kept["PATH"] = search_path()
    kept["ANSIBLE_CONFIG"] = str(paths.PLAYBOOKS / "ansible.cfg")
    # ansible-runner says False here, which is stronger than ansible.cfg.
    kept["ANSIBLE_HOST_KEY_CHECKING"] = "True"
    # Or a node that answers with facts sets any variable of the play, above the inventory.
    kept["ANSIBLE_INJECT_FACT_VARS"] = "False"
    return kept


def _tail(private: Path) -> str:
    lines: list[str] = []
    for path in sorted(private.glob("artifacts/*/stdout")):
        lines += [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(f"  {one_line(line)}" for line in lines[-_TAIL_LINES:])
