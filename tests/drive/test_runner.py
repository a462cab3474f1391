"""What a playbook's run on a node is said to have come to."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpeak import paths
from tokenpeak.drive import runner
from tokenpeak.drive.inventory import Inventory, Node
from tokenpeak.drive.runner import _words, run_playbook


def test_node_that_hung_is_to_be_looked_at() -> None:
    """Ansible's own words for a task that ran out of time name neither a cause nor a remedy."""
    result = {"msg": "Task failed: Timed out after 120 second(s).", "timedout": {"period": 120}}

    said = _words("node | status", result)

    assert "node | status: nothing came back within 120 s: log in there and see what hangs" == said


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    """No process of the test may take more than 6 GB of addresses: a watch that fails costs a test, not the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("bounded_memory")
def test_node_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's endless output ends its own run, with the reason, before it has filled this machine's memory."""
    (tmp_path / "flood.yml").write_text(
        '- hosts: all\n  gather_facts: false\n  tasks: [{name: "node | finish", ansible.builtin.raw: "yes"}]\n'
    )
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {one: {ansible_connection: local}}}\n")
    monkeypatch.setattr(paths, "PLAYBOOKS", tmp_path)
    monkeypatch.setattr(runner, "_ANSIBLE_MEMORY_BYTES", 300 << 20, raising=False)
    inventory = Inventory(name="x", hosts_path=tmp_path / "hosts.yml", nodes=(Node(name="one", variables={}),))
    began = time.monotonic()

    found = run_playbook("flood.yml", inventory, cancelled=lambda: time.monotonic() - began > 60)

    assert "printed more than" in (found.nodes["one"].failure or "")
    assert not found.cancelled
