"""A node's user has his Python print a module result of odd types, to end `restore` and `status` of all nodes.

Ansible hands such a result on as it is, and what is raised over it ended the run of every node: production of the
others stayed down. The node alone has failed, with one sentence of one line; the others' answers are taken.
"""

from typing import Any

import pytest

from tokenpeak.node.machine.words import no_command
from tokenpeak.node.protocol.answers import RestoreAnswer, as_json
from tokenpeak.node.protocol.frame import framed
from tokenpeak.node.protocol.parts import RestoreOutcome
from tokenpeak.sweep.ansible.result import Event, failure_words
from tokenpeak.sweep.ansible.runner import _Collector

FORGED = "x\n::add-mask::y\ngpu-2: serves"
ODD: list[Any] = [
    *(True, 0, -1, 1e999, 10**400, "", "x", FORGED, "\ud800", [], [[]], [None], [FORGED], [{}]),
    *({}, {"period": None}, {"period": FORGED}, {"period": []}, {"period": 10**400}, {"period": 1e999}, {"x": FORGED}),
]
READ = ("timedout", "cmd", "rc", "msg", "stdout", "stderr", "module_stdout", "module_stderr")
"""The keys that are read of a result."""
TASK = {"task": "Bring production back", "task_action": "node_command"}


def taken(collector: _Collector, kind: str, result: Any, node: str = "gpu-1") -> None:
    """One event of a playbook's run."""
    known = {"tokenpeak_step": "restore", **result} if isinstance(result, dict) else result
    collector({"event": f"runner_on_{kind}", "event_data": {**TASK, "host": node, "res": known}})


@pytest.mark.parametrize("key", READ)
def test_key_of_an_odd_type(key: str) -> None:
    """Each key that is read, of a result that failed or that says that the node was not reached."""
    usual = {"failed": True, "rc": 1, "msg": "x"}
    missing = {"cmd": ["python3"], "rc": 2, "msg": "Error executing command."}
    for result in ({**first, key: odd} for odd in ODD for first in (usual, missing)):
        collector = _Collector(None)
        taken(collector, "failed", result)
        taken(collector, "unreachable", result)
        found = collector.result("gpu-1")

        for words in (found.failure, found.unreachable):
            assert words is not None, result
            assert 1 == len(words.splitlines()), result
            assert no_command(words) == words, result
            assert "could not be taken in" not in words, result


@pytest.mark.parametrize("kind", ["start", "ok", "failed", "skipped", "unreachable"])
@pytest.mark.parametrize("odd", [True, 7, "x", ["x"], None])
def test_result_that_is_no_object(kind: str, odd: Any) -> None:
    """Instead of an object, anything."""
    taken(collector := _Collector(None), kind, odd)

    assert (kind not in ("failed", "unreachable")) == collector.result("gpu-1").ok


def test_the_limit_is_still_said() -> None:
    """Of a step that Ansible ended."""
    assert "within 120 s: log in" in failure_words("Read", {"msg": "Timed out", "timedout": {"period": 120}})
    assert "Read: x" == failure_words("Read", {"failed": True, "timedout": True, "rc": 1, "msg": "x"})


def test_whatever_is_raised_fails_that_node_alone() -> None:
    """It is said with its kind, its words and its place; another node's answer, which comes after it, is taken."""
    seen: list[str] = []

    def on_event(event: Event) -> None:
        if event.node == "gpu-1":
            raise LookupError(FORGED)
        seen.append(event.node)

    restored = RestoreOutcome(restored=True, was_running=True, message="It serves.")
    printed = framed({**as_json(RestoreAnswer(restoration=restored)), "script": "abc"})
    collector = _Collector(on_event)
    taken(collector, "ok", {"stdout": printed})
    taken(collector, "ok", {"stdout": printed}, node="gpu-2")
    failed, other = collector.result("gpu-1"), collector.result("gpu-2")

    assert (["gpu-2"], True, ["restore"]) == (seen, other.ok, [*other.answers])
    assert failed.failure is not None
    assert "LookupError: x | " in failed.failure
    assert "test_result_of_one_node.py, line " in failed.failure
    assert 1 == len(failed.failure.splitlines())
