"""The table of `tokenpeak probe`, and what it says of nodes that cannot be worked on."""

from pathlib import Path

from tokenpeak.cli.probe import _engines, _memory, _meters, _missing_builds
from tokenpeak.records import EngineBuild, Gpu, NodeFacts, PowerMeter
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.probe import Probe, ReadyNode, _with_rights, _without_gpus


def test_a_mixed_node_shows_each_size() -> None:
    """Two GPUs of 80 GiB and one of 24 are not three of 80."""
    gpus = tuple(Gpu(index=index, name="GPU", vram_bytes=size * 2**30) for index, size in enumerate((80, 80, 24)))

    assert "2 × 80 GiB + 1 × 24 GiB" == _memory(NodeFacts(node="n", source="declared", gpus=gpus))


def test_node_whose_driver_is_broken_is_no_cpu_node() -> None:
    """Where the inventory declares GPUs and the node shows none, the node is left out, with what to look at."""
    declared = {"tokenpeak_facts": {"gpus": [{"index": index, "name": "Tesla T4"} for index in range(2)]}}
    inventory = Inventory(name="t4", hosts_path=Path("hosts.yml"), nodes=(Node(name="one", variables=declared),))
    found = {"one": ReadyNode(facts=NodeFacts(node="one", source="probed"), declaration={})}

    assert "declares 2 (Tesla T4): run nvidia-smi" in _without_gpus(inventory, found)["one"]


def test_missing_rights_are_named_with_what_gives_them() -> None:
    """Ansible's words do not say what to change in the inventory."""
    assert "ansible_become: true" in _with_rights("Make the state folder: Permission denied: '/var/lib/tokenpeak'")
    assert "No space left" == _with_rights("No space left")


def test_what_measures_power_is_named() -> None:
    """One line: each boundary with what reads it."""
    meters = (PowerMeter(boundary="gpu_boards", by="energy counter"), PowerMeter(boundary="node", by="BMC, DCMI"))

    assert "boards (energy counter), node (BMC, DCMI)" == _meters(
        NodeFacts(node="n", source="probed", power_meters=meters)
    )
    assert "nothing" == _meters(NodeFacts(node="n", source="probed"))


def test_engine_builds_are_named_with_what_is_installed() -> None:
    """One that cannot be started shows, with the reason in a line; an image may say no version without a GPU."""
    old = EngineBuild(name="old", version="0.24.0", installed="0.24.0")
    new = EngineBuild(name="new", version="0.32.0", problem="No engine at '/opt/vllm'.")
    box = EngineBuild(name="box", version="0.32.0", image="vllm/vllm-openai:v0.32.0")
    facts = NodeFacts(node="n", source="probed", engines=(old, new, box))
    found = Probe(answered={"n": ReadyNode(facts=facts, declaration={})}, unreachable={}, failed={})

    assert "old 0.24.0, new none, box ?" == _engines(facts)
    assert ["n goes without engine build new: No engine at '/opt/vllm'."] == list(_missing_builds(found))
    assert "0.32.0" == _engines(NodeFacts(node="n", source="probed", engine_version="0.32.0"))
