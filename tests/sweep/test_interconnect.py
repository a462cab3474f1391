"""Nodes that differ in how their boards are linked, from the probe to the plan."""

import json
import shutil

import pytest
import yaml
from driven_home import Home


@pytest.mark.e2e
def test_nodes_that_differ_only_in_interconnect_are_planned_apart(home: Home) -> None:
    """What nvidia-smi shows between two boards makes two kinds of hardware, and nothing else does."""
    lone, linked = (home.root / "inventory" / name for name in ("lone", "linked"))
    shutil.copytree(lone, linked)
    shared = yaml.safe_load((lone / "group_vars" / "all.yml").read_text())
    shared |= {"tokenpeak_produce": False, "tokenpeak_production": {"manager": "none"}}
    shared["tokenpeak_simulated_machine"] |= {"count": 2, "links": "{{ tokenpeak_links }}"}
    (linked / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared))
    place = home.address.rpartition(".")[0]
    hosts = {
        f"linked-{number}": {
            "tokenpeak_host": f"{place}.{number}",
            "tokenpeak_simulated_gpu": "NVIDIA A100-SXM4-80GB",
            "tokenpeak_links": links,
        }
        for number, links in ((251, "NV12"), (252, "SYS"), (253, "NV12"))
    }
    (linked / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))

    probed = home.run("probe", "--inventory", "linked")
    planned = home.run("plan", "--inventory", "linked", "--sweep", "pair", "--format", "json")

    assert 0 == probed.returncode, probed.stdout
    assert 0 == planned.returncode, planned.stdout
    kinds = {entry["hardware"]: entry["nodes"] for entry in json.loads(planned.stdout)["feasible"]}
    assert {
        "2x NVIDIA A100-SXM4-80GB (80 GiB, driver 570, NV12)": ["linked-251", "linked-253"],
        "2x NVIDIA A100-SXM4-80GB (80 GiB, driver 570, SYS)": ["linked-252"],
    } == kinds
