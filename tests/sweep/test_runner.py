"""What a playbook's run on a node is said to have come to."""

import resource
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tokenpeak import paths
from tokenpeak.sweep import runner
from tokenpeak.sweep.inventory import Inventory, Node
from tokenpeak.sweep.node_result import failure_words
from tokenpeak.sweep.runner import PlaybookResult, _descendants, run_playbook


def test_node_that_hung_is_to_be_looked_at() -> None:
    """Ansible's own words for a task that ran out of time name neither a cause nor a remedy."""
    result = {"msg": "Task failed: Timed out after 120 second(s).", "timedout": {"period": 120}}

    said = failure_words("Read the node's status", result)

    assert "Read the node's status: nothing came back within 120 s: log in there and see what hangs" == said


def test_processes_that_end_while_they_are_looked_at() -> None:
    """A process may be gone between its parent's list and its own: the watch goes on."""
    shells = subprocess.Popen(["bash", "-c", "for i in $(seq 80); do (true & true | true); done"])
    while shells.poll() is None:
        assert all(pid.isdigit() for pid in _descendants("self"))


def printed(
    command: str, nodes: int, folder: Path, *, bound_bytes: int, usual_bytes: int | None = None
) -> PlaybookResult:
    """A run on so many nodes that each print what the command does, by a process of its own.

    None of its processes may take more than 6 GB of addresses: a watch that fails costs a test, not the machine.
    """
    (folder / "flood.yml").write_text(
        f'- hosts: all\n  gather_facts: false\n  tasks: [{{name: print, ansible.builtin.raw: "{command}"}}]\n'
    )
    (folder / "ansible.cfg").write_text("[defaults]\n")
    hosts = ", ".join(f"n{number}: {{ansible_connection: local}}" for number in range(nodes))
    (folder / "hosts.yml").write_text(f"all: {{hosts: {{{hosts}}}}}\n")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as another:
        return another.submit(_printed, nodes, folder, bound_bytes, usual_bytes).result(timeout=100)


def _printed(nodes: int, folder: Path, bound_bytes: int, usual_bytes: int | None) -> PlaybookResult:
    resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))
    paths.PLAYBOOKS = folder
    runner._ANSIBLE_MEMORY_BYTES = bound_bytes
    runner._USUAL_BYTES = usual_bytes or runner._USUAL_BYTES
    found = tuple(Node(name=f"n{number}", variables={}) for number in range(nodes))
    inventory = Inventory(name="x", hosts_path=folder / "hosts.yml", nodes=found)
    began = time.monotonic()
    return run_playbook("flood.yml", inventory, cancelled=lambda: time.monotonic() - began > 60)


@pytest.mark.integration
def test_node_that_prints_without_end(tmp_path: Path) -> None:
    """A node's endless output ends its own run, with the reason, before it has filled this machine's memory."""
    found = printed("yes", 1, tmp_path, bound_bytes=300 << 20)

    assert "printed more than" in (found.nodes["n0"].failure or "")
    assert not found.cancelled


@pytest.mark.integration
@pytest.mark.parametrize(("nodes", "is_seen"), [pytest.param(1, False, marks=pytest.mark.e2e), (3, True)])
def test_nodes_that_print_much_together(nodes: int, is_seen: bool, tmp_path: Path) -> None:
    """What one node may print, many may not at once: the bound is on Ansible's processes together."""
    command = "head -c 30000000 /dev/zero | tr '\\\\0' x; sleep 5; exit 3"
    found = printed(command, nodes, tmp_path, bound_bytes=120 << 20, usual_bytes=110 << 20)

    assert is_seen == any("printed more than" in (node.failure or "") for node in found.nodes.values())
