"""Limits of what may be unavailable: numbers and shares of a group, and the sentences about those that can be none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenpeak import paths
from tokenpeak.errors import InventoryError
from tokenpeak.sweep.inventory.nodes import Inventory, Node
from tokenpeak.sweep.limits import group_limits


def inventory_with(limits: Any) -> Inventory:
    """Seven nodes in two racks, one of which the sweep leaves out, with these limits declared."""
    names = tuple(f"n{number}" for number in range(7))
    nodes = tuple(Node(name=name, variables={"tokenpeak_max_unavailable": limits}) for name in names[:6])
    groups = {"all": names, "rack_a": names[:4], "rack_b": names[4:]}
    return Inventory(name="x", hosts_path=Path("hosts.yml"), nodes=nodes, groups=groups)


@pytest.mark.parametrize(
    ("declared", "most"),
    [
        ({"rack_a": 1, "all": 3}, {"rack_a": 1, "all": 3}),
        # Two of seven are 28.6%: shares are rounded down, of all nodes of the group.
        ({"all": "28%", "rack_a": "50%"}, {"all": 1, "rack_a": 2}),
        ({"all": "29 %"}, {"all": 2}),
        ({"rack_b": "100%"}, {"rack_b": 3}),
        (None, {}),
    ],
)
def test_limits(declared: Any, most: dict[str, int]) -> None:
    """A number is taken as it is, a share rounded down."""
    assert most == {limit.group: limit.most for limit in group_limits(inventory_with(declared))}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"rack_c": 1}, "names the group 'rack_c', which inventory x does not have"),
        ({"rack_b": "33%"}, "33% of its 3 nodes is less than one node"),
        ({"all": 0}, "0 is no limit"),
        ({"all": "120%"}, "'120%' is no limit"),
        (["all"], "write KEY: VALUE"),
    ],
)
def test_what_can_be_no_limit_is_refused(declared: Any, words: str) -> None:
    """Before any node is stopped, with what to write instead."""
    with pytest.raises(InventoryError, match=words):
        group_limits(inventory_with(declared))


@pytest.mark.parametrize("command", ["plan", "sweep"])
def test_a_group_that_is_not_there_is_refused_before_any_node_is_asked(command: str, tmp_path: Path) -> None:
    """By the command as typed: no node is probed for a sweep that could not begin."""
    for folder in ("playbooks", "analysis"):
        (tmp_path / folder).symlink_to(paths.ROOT / folder)
    shutil.copytree(paths.INVENTORIES / "sim", tmp_path / "inventory" / "sim")
    variables = tmp_path / "inventory" / "sim" / "group_vars" / "all.yml"
    variables.write_text(variables.read_text() + "\ntokenpeak_max_unavailable: {rack_c: 1}\n")
    environment = {**os.environ, "TOKENPEAK_HOME": str(tmp_path), "TOKENPEAK_STATE": str(tmp_path / "state")}
    tokenpeak = Path(sys.executable).with_name("tokenpeak")
    argv = [tokenpeak, command, "--inventory", "sim", "--sweep", "quick"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    assert 2 == done.returncode
    assert "names the group 'rack_c', which inventory sim does not have" in done.stderr
    assert "Probing" not in done.stdout + done.stderr
