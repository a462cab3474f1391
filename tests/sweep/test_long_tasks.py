"""Whoever waits for a task of minutes sees that it began, by the words that the playbook has for it."""

import shutil
from pathlib import Path

import pytest

from tokenpeak import paths
from tokenpeak.sweep.ansible.runner import run_playbook
from tokenpeak.sweep.inventory.nodes import read_inventory

PLAY = """
- hosts: all
  gather_facts: false
  strategy: nodes
  tasks:
    - ansible.builtin.include_tasks: part.yml
      loop: [torch, others]
      loop_control: {loop_var: part}
    - name: Look for the stamp
      ansible.builtin.command: "true"
"""
PART = """
- name: "Install for some minutes: {{ part }}"
  ansible.builtin.command: "true"
"""


@pytest.mark.integration
def test_the_begin_of_a_long_task_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By node and name, its variables filled in; of others nothing is said."""
    playbooks = shutil.copytree(paths.PLAYBOOKS, tmp_path / "playbooks")
    (playbooks / "long.yml").write_text(PLAY)
    (playbooks / "part.yml").write_text(PART)
    monkeypatch.setattr(paths, "PLAYBOOKS", playbooks)
    said: list[tuple[str, str]] = []

    run_playbook("long.yml", read_inventory("cpu"), on_long_task=lambda node, task: said.append((node, task)))

    assert [("cpu", "Install for some minutes: torch"), ("cpu", "Install for some minutes: others")] == said
