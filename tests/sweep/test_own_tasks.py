"""Tasks of the inventory's own within a trial: in order, and production comes back whichever of them fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sweep.play_bench import ANSWER, Bench, playing

from tokenpeak.sweep.ansible.result import NodeResult

POINTS = ("before_launch", "after_ready", "before_return")
NOTE = """- name: Say where it is
  ansible.builtin.shell: |
    echo '{"argv": ["%s"], "request": ""}' >> {{ tokenpeak_state_dir }}/called
    test ! -e {{ tokenpeak_state_dir }}/%s.fails || { echo no such clock >&2; exit 7; }
"""
ODD = {
    "broken": "- name: [no task\n",
    "hangs": "- {name: Wait, ansible.builtin.command: sleep 600}\n",
    "away": "- name: Drain\n  ansible.builtin.command: drain\n  delegate_to: 127.0.0.1\n"
    "  vars: {ansible_connection: ssh, ansible_port: 1}\n",
    "mends": "- block: [{name: Fail, ansible.builtin.command: 'false'}]\n"
    "  rescue: [{ansible.builtin.command: 'true'}]\n",
}
"""Task files that are none, take for ever, get nowhere, or fail and say what to do about it."""
READY = {"launch": ANSWER.format({"ready": True}), "finish": ANSWER.format({})}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One node with all of them, in files beside its inventory."""
    folder = tmp_path_factory.mktemp("play")
    for point in POINTS:
        (folder / f"{point}.yml").write_text(NOTE % (point, point))
    for name, text in ODD.items():
        (folder / f"{name}.yml").write_text(text)
    hosts: dict[str, Any] = {name: {"tokenpeak_tasks": {"before_launch": f"{name}.yml"}} for name in ODD}
    hosts["hangs"]["tokenpeak_tasks"]["timeout_s"] = 2
    hosts["gpu1"] = {"tokenpeak_tasks": {point: f"{point}.yml" for point in POINTS}}
    with playing(folder, hosts) as bench:
        yield bench


def trial(bench: Bench, failing: str | None = None, **scripts: str) -> tuple[NodeResult, list[object]]:
    """What came of a trial in which this one fails, and what was called on the node, in order."""
    bench.on("gpu1", **{**READY, **scripts})
    state = Path(bench.folder, "gpu1")
    for path in state.glob("*.fails"):
        path.unlink()
    if failing is not None:
        (state / f"{failing}.fails").touch()
    result = bench.carried_out("gpu1", "launch", "finish")
    return result, [call["argv"][0] for call in bench.called("gpu1")]  # type: ignore[index]


def test_each_is_called_once_in_order(bench: Bench) -> None:
    """Before production stops, once the engine is ready, before production returns; in each trial anew."""
    for _ in range(2):
        result, called = trial(bench)

        assert result.ok, result.failure
        assert ["before_launch", "launch", "after_ready", "before_return", "finish"] == called


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ("before_launch", ["before_launch", "before_return", "finish"]),
        ("after_ready", ["before_launch", "launch", "after_ready", "before_return", "finish"]),
        ("before_return", ["before_launch", "launch", "after_ready", "before_return", "finish"]),
    ],
)
def test_node_is_given_back_whichever_fails(failing: str, expected: list[str], bench: Bench) -> None:
    """The failure is theirs by its words; the finish follows, and the next trial is like any other."""
    result, called = trial(bench, failing)

    assert expected == called
    assert result.is_own_task
    assert "no such clock" in (result.failure or "")
    assert "finish" in result.answers
    assert trial(bench)[0].ok


def test_engine_that_is_not_ready_has_no_tasks_after_it(bench: Bench) -> None:
    """What waits for an engine is left out where there is none, and it is nobody's failure but the engine's."""
    result, called = trial(bench, launch=ANSWER.format({"ready": False}))

    assert ["before_launch", "launch", "before_return", "finish"] == called
    assert not result.is_own_task


@pytest.mark.parametrize(("node", "words"), [("broken", "YAML parsing failed"), ("hangs", "2 s"), ("away", "refused")])
def test_tasks_that_come_to_no_end_of_their_own(node: str, words: str, bench: Bench) -> None:
    """Nothing is launched, the finish follows, and another node's trial is like any other."""
    bench.on(node, **READY)
    result = bench.carried_out(node, "launch", "finish")

    assert result.is_own_task, result
    assert words in (result.failure or "")
    assert ["finish"] == [call["argv"][0] for call in bench.called(node)]  # type: ignore[index]
    assert trial(bench)[0].ok
