"""Several inventories resolved by one start of Ansible, which costs more than all of them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenpeak.sweep.inventory.nodes import DECLARATION, WANTED, resolution_request, resolver_environment

_RESOLVE = """
import json, os, sys
from ansible.plugins.loader import init_plugin_loader, inventory_loader
from tokenpeak.sweep.inventory.resolver import resolve
init_plugin_loader()
inventory_loader.get("yaml")
for request in json.load(sys.stdin):
    if not (child := os.fork()):
        print(json.dumps(resolve(request), default=str), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""A process for each request all the same, for Ansible keeps what it was given first."""


def inventory_request(hosts_path: Path, nodes: tuple[str, ...] = ()) -> Any:
    """What `read_inventory` asks the resolver for."""
    return resolution_request(hosts_path, wanted=WANTED, nodes=nodes, template=DECLARATION)


def answers(requests: Sequence[Any]) -> list[Any]:
    """The resolver's answer to each of these requests."""
    argv = [sys.executable, "-c", _RESOLVE]
    done = subprocess.run(
        argv, input=json.dumps(requests), env=resolver_environment(), capture_output=True, text=True, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(requests) == len(found), done.stderr
    return found
