"""What a task of a playbook does is known by its mark, whatever its title says."""

from pathlib import Path
from typing import get_args

import pytest

from tokenpeak import paths
from tokenpeak.node.protocol.answers import StatusAnswer
from tokenpeak.sweep.inventory import Inventory, Node
from tokenpeak.sweep.node_result import Event
from tokenpeak.sweep.runner import run_playbook
from tokenpeak.sweep.step import Step, _steps, step_of

LONE = "all: {hosts: {one: {ansible_connection: local, ansible_python_interpreter: /usr/bin/python3}}}\n"
PLAYBOOK = """- hosts: all
  gather_facts: false
  tasks:
    - name: Something before
      ansible.builtin.command: "true"
    - block:
        - name: 'node | launch, ünamed: x'
          vars: {tokenpeak_step: status}
          ansible.builtin.command: echo '{"armed":false,"script":"abc"}'
"""


def test_each_step_has_one_task() -> None:
    """The roles mark one task for each step, but for those that a trial or a probe sends without a playbook."""
    files = paths.PLAYBOOKS.glob("roles/*/tasks/*.yml")
    found = [step for file in files for step in _steps(str(file)).values()]

    assert sorted(get_args(Step)) == sorted([*found, "probe", "launch", "load", "finish"])


@pytest.mark.integration
def test_renamed_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's title is for readers: its answer, its span and its events are found by its mark."""
    monkeypatch.setattr(paths, "PLAYBOOKS", tmp_path)
    (tmp_path / "status.yml").write_text(PLAYBOOK)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / "hosts.yml").write_text(LONE)
    inventory = Inventory(name="x", hosts_path=tmp_path / "hosts.yml", nodes=(Node(name="one", variables={}),))
    events: list[Event] = []

    result = run_playbook("status.yml", inventory, on_event=events.append).nodes["one"]

    answer = result.answer(StatusAnswer)
    assert answer is not None, result.failure
    assert answer.armed is False
    assert ["status"] == list(result.spans)
    assert [("started", None), ("ok", None), ("started", "status"), ("ok", "status")] == [
        (event.kind, event.step) for event in events
    ]


def test_unknown_mark(tmp_path: Path) -> None:
    """A mark that is no step is an error that names its place and the steps there are."""
    (tmp_path / "x.yml").write_text("- vars: {tokenpeak_step: lunch}\n")

    with pytest.raises(ValueError, match=r"x.yml:1: tokenpeak_step is 'lunch', not one of install, probe"):
        step_of(f"{tmp_path}/x.yml:1")
