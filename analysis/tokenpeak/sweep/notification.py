"""Notification of a sweep: whom its inventory names, of a node's production, a lemon, and how the sweep ended."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from tokenpeak import paths
from tokenpeak.errors import InventoryError
from tokenpeak.node.guard import notify
from tokenpeak.records import EndRecord
from tokenpeak.sweep.inventory.nodes import Inventory, Node

SIDE = "controller"
LOG = "notify.log"


class Notifier:
    """Notifies the receivers of an inventory's nodes, each by a process of its own: nothing here is waited for."""

    def __init__(self, inventory: Inventory, sweep_id: str) -> None:
        self._inventory = inventory
        self._sweep_id = sweep_id
        self._down: set[str] = set()

    def production(self, node: str, *, is_back: bool) -> None:
        """How production of a node stands after it was given back: an outage is notified once, and its end."""
        if is_back and node in self._down:
            self._down.discard(node)
            self._notify("production_back", f"Production of {node} is back.", node)
        elif not is_back and node not in self._down:
            self._down.add(node)
            look = f"Look with `tokenpeak status --inventory {self._inventory.name}`."
            text = f"Production of {node} is not known to be back. The node's guard acts. {look}"
            self._notify("production_down", text, node)

    def left_out(self, node: str, failures: int) -> None:
        """A node that the sweep goes on without."""
        text = f"{node} is left out of sweep {self._sweep_id} from here on: {failures} failures in a row."
        self._notify("lemon_node", text, node)

    def ended(self, end: EndRecord) -> None:
        """How the sweep ended, to the receivers of all its nodes."""
        is_finished = end.status == "completed"
        trials, problems = (
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((end.trials, "trial"), (len(end.problems), "problem"))
        )
        text = f"Sweep {end.sweep_id} {'is completed' if is_finished else 'was interrupted'}: {trials}, {problems}"
        text += f"; production is not back on {', '.join(end.unrestored)}." if end.unrestored else "."
        self._notify("sweep_finished" if is_finished else "sweep_aborted", text)

    def aborted(self, error: BaseException) -> None:
        """What ended the sweep before it could write how it stands."""
        self._notify("sweep_aborted", f"Sweep {self._sweep_id} was aborted by {type(error).__name__}.")

    def _notify(self, kind: str, text: str, node: str | None = None) -> None:
        """To the receivers of the node, or of all nodes."""
        nodes = self._inventory.nodes if node is None else (self._inventory.node(node),)
        declared = receivers_of(nodes)
        sent = notify.event(kind, text, source=SIDE, node=node, sweep_id=self._sweep_id, inventory=self._inventory.name)
        argv = [sys.executable, "-P", "-m", notify.__name__]
        try:
            notify.start(argv, notify.called(declared, kind, SIDE), sent, paths.state_dir() / LOG)
        except (OSError, ValueError) as error:
            # The sweep goes on: giving nodes back matters more than saying so.
            sys.stderr.write(f"nobody could be notified of {kind}: {error}\n")


def receivers_of(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """The receivers that the nodes' variables declare, each once. Raises InventoryError for a wrong one."""
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        declared = node.variables.get("tokenpeak_notify") or []
        if wrong := notify.problems(declared):
            raise InventoryError(f"Node {node.name}: {' '.join(wrong)}")
        found |= {json.dumps(receiver, sort_keys=True): receiver for receiver in declared}
    return list(found.values())


def lacking(inventory: Inventory) -> list[str]:
    """What this machine lacks to notify the inventory's receivers. Raises InventoryError for a wrong one."""
    return notify.problems(receivers_of(inventory.nodes), SIDE)
