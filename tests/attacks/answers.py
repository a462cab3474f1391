"""A probe's answer as a good node gives it, and the inventory that it belongs to."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from tokenpeak.node.protocol.answers import ProbeAnswer, as_json
from tokenpeak.sweep.installation import own_script
from tokenpeak.sweep.inventory.nodes import Inventory, Node

HOST, PORT = "192.0.2.7", 8099
MODEL = {"name": "acme/model", "served_name": "acme/model"}
DECLARATION: dict[str, Any] = {
    "node": "gpu-1",
    "host": HOST,
    "port": PORT,
    "engine": {"command": ["/opt/vllm/bin/vllm", "serve"], "env": {}},
    "engines": [],
    "model": {**MODEL, "path": None},
    "limits": {"lease_max_s": None, "trial_deadline_max_s": None},
    "state_dir": "/var/lib/tokenpeak",
    "python": "/usr/bin/python3",
}


def node(name: str = "gpu-1", **variables: Any) -> Node:
    """A node of the inventory, with the declaration that this controller put there."""
    own = {"tokenpeak_host": HOST, "tokenpeak_port": PORT, "tokenpeak_model": MODEL, **variables}
    return Node(name=name, variables=own, declaration=None if "tokenpeak_guard_command" in own else DECLARATION)


def inventory(*nodes: Node) -> Inventory:
    """An inventory of these nodes."""
    return Inventory(name="mine", hosts_path=Path("hosts.yml"), nodes=nodes)


def sent(**changes: Any) -> dict[str, Any]:
    """A good answer as it is sent, with these fields in place of its own."""
    answer = ProbeAnswer(
        probed_at="2026-11-26T12:00:00Z",
        simulated=False,
        cpu="EPYC",
        cpu_cores=8,
        os="Debian",
        kernel="6.1",
        engine_port_free=True,
        disk_free_bytes=1 << 40,
        model_present=None,
        declaration=DECLARATION,
    )
    found: dict[str, Any] = json.loads(json.dumps(as_json(dataclasses.replace(answer)), default=vars))
    return {**found, "script": own_script(), **changes}
