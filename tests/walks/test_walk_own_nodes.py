"""The tutorial on nodes of one's own: whole machines with systemd and sshd, production that serves, root by SSH."""

import json

import pytest
import yaml
from tests.docs.reader import Reader
from tests.walks.conftest import Boot
from tests.walks.nodes import own_files, put_model, served, simulate, start_unit, wait_for

pytestmark = [pytest.mark.e2e]

PAGE = "tutorial/own-nodes"
REACHED = "how-to/reach-nodes"
FOUND = "how-to/first-inventory"
MODEL = "/models/Llama-3.1-8B-Instruct"


def test_walk(somebody: Reader, boot: Boot) -> None:
    """The page as it stands; afterwards production is the process that it was made for, and nothing of ours is left."""
    nodes = [boot("walk-n1", 163), boot("walk-n2", 164)]
    for node in nodes:
        simulate(node, "/opt/vllm/bin", "NVIDIA H100 80GB HBM3", 1, "0.32.0")
        put_model(node, MODEL)
        serve = ["/opt/vllm/bin/vllm", "serve", MODEL, "--served-model-name", "llama-8b", "--port", "8000"]
        start_unit(node, "vllm", serve)
    for node in nodes:
        wait_for(lambda node=node: served(node, "llama-8b"), "production")
    somebody.stand_for |= {"192.0.2.11": nodes[0].address, "192.0.2.12": nodes[1].address}
    somebody.on_node = lambda line: nodes[0].sh("bash", "-c", line)
    before = [own_files(node) for node in nodes]

    somebody.follow(PAGE, lambda line: _prepare(somebody, line))
    fingerprint = nodes[0].sh("ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    trials = [json.loads(path.read_text()) for path in sorted(somebody.folder.glob("results/*/trials/*.json"))]

    assert fingerprint in somebody.said("ssh-keyscan")
    assert somebody.said("tokenpeak probe").count("serves") == 2
    assert ["ok", "ok"] == [trial["status"] for trial in trials], [trial["failure"] for trial in trials]
    assert {True} == {trial["restoration"]["restored"] for trial in trials}
    assert all(served(node, "llama-8b") for node in nodes)
    assert before == [own_files(node) for node in nodes]


def test_walk_of_found_inventory(somebody: Reader, boot: Boot) -> None:
    """The inventory that is written of what a node serves has its unit, model and engine, and a probe agrees."""
    node = boot("walk-n4", 166)
    simulate(node, "/opt/vllm/bin", "NVIDIA H100 80GB HBM3", 1, "0.32.0")
    put_model(node, MODEL)
    serve = ["/opt/vllm/bin/vllm", "serve", MODEL, "--served-model-name", "llama-8b", "--port", "8000"]
    start_unit(node, "vllm", serve)
    wait_for(lambda: served(node, "llama-8b"), "production")
    somebody.stand_for["192.0.2.11"] = node.address
    somebody.on_node = lambda line: node.sh("bash", "-c", line)
    somebody.follow(REACHED)

    somebody.follow(FOUND)
    written = yaml.safe_load((somebody.folder / "inventory" / "found" / "group_vars" / "all.yml").read_text())

    assert ("systemd", "vllm.service") == tuple(written["tokenpeak_production"][key] for key in ("manager", "unit"))
    assert "llama-8b" == written["tokenpeak_model"]["served_name"]
    assert ["/opt/vllm/bin/vllm", "serve"] == written["tokenpeak_engine_command"]
    assert 1 == somebody.said("tokenpeak probe").count("serves")


def _prepare(somebody: Reader, line: str) -> None:
    if line.startswith("tokenpeak sweep"):
        somebody.shrink("batch", {"max_num_seqs": [8, 64]}, max_model_len=2048)
