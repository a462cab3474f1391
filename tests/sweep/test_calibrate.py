"""Calibration on a sweep's own way, on the home's node and load hosts."""

import json
from pathlib import Path

import pytest
from driven_home import Home

from archive_factory import node_facts
from tokenpeak.errors import NodeError
from tokenpeak.report.compare.history import calibrations
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.probe import ReadyNode
from tokenpeak.sweep.trial.load_hosts import node_server

QUICK = ("--streams", "2", "--seconds", "0.6")


@pytest.mark.e2e
def test_sweep_attaches_the_calibration_of_its_way(home: Home) -> None:
    """A sweep says what is not covered before it begins, and its archive holds the calibration that stands for it."""
    before = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    done = home.run("calibrate", "--inventory", "shared", *QUICK)
    after = home.run("sweep", "--inventory", "shared", "--sweep", "pair", "--no-report")
    first, second = (json.loads((path / "sweep.json").read_text()) for path in home.archives()[-2:])
    (shown,) = calibrations(second["calibration"])

    assert 0 == done.returncode, done.stdout
    assert "not been calibrated from left + right to this machine over http" in before.stdout
    assert before.stdout.index("calibrated") < before.stdout.index("begins")
    assert None is first["calibration"]
    assert ["left", "right"] == second["calibration"]["calibrations"][0]["way"]["load_hosts"]
    assert shown["words"].startswith("from left + right to this machine over http: up to ")
    assert "WARNING concurrency=4 keeps 4 streams; 2 were found" in after.stdout or "keeps 4 streams; 0" in after.stdout


def test_node_without_an_ipv4_address_is_an_error() -> None:
    """The test server listens on IPv4 alone; an engine's IPv6 address is an error that says so."""
    node = Node(name="gpu-1", variables={"ansible_connection": "local"})
    inventory = Inventory(name="x", hosts_path=Path("hosts.yml"), nodes=(node,))
    ready = ReadyNode(facts=node_facts("gpu-1", "NVIDIA L4"), declaration={"host": "::1", "port": 8099})

    with pytest.raises(NodeError, match=r"'::1', where the engine of gpu-1 listens, has no IPv4 address"):
        node_server(inventory, node, ready, 0.05, 0.02)
