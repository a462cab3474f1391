"""Preparation of a sweep: its nodes are probed, with a line now and then where that takes long."""

import time
from collections.abc import Callable

from tokenpeak.errors import NodeError
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory import Inventory
from tokenpeak.sweep.max_unavailable import group_limits
from tokenpeak.sweep.model_store import model_stores
from tokenpeak.sweep.node_result import Event
from tokenpeak.sweep.probe import Probe, probe
from tokenpeak.sweep.progress import ProgressDisplay

_MOST_NAMED = 8
_QUIET_S = 15.0
"""The longest time without a line while nodes answer."""


def prepare(inventory: Inventory, progress: ProgressDisplay, interrupt: Interrupt) -> Probe:
    """Probe the nodes and say what is wrong with them; raises NodeError when none is left to work on.

    Raises InventoryError before the first is asked when the inventory limits what no group or number can be.
    """
    group_limits(inventory)
    model_stores(inventory)
    names = [node.name for node in inventory.nodes]
    progress.say(f"Probing {', '.join(names) if len(names) <= _MOST_NAMED else f'{len(names)} nodes'}")
    found = probe(inventory, on_event=_Answered(len(names), progress.say), cancelled=interrupt.gentle)
    if not found.usable:
        lines = "\n  ".join(found.complaints())
        raise NodeError(f"No node of inventory {inventory.name} can run a trial; nothing was stopped.\n  {lines}")
    for complaint in found.complaints():
        progress.say(f"PROBLEM {complaint}")
    return found


class _Answered:
    """Counts the nodes whose steps have ended, and says so where some are left after a while."""

    def __init__(self, nodes: int, say: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._say = say
        self._ended = {"install": 0, "probe": 0}
        self._said_s = time.monotonic()

    def __call__(self, event: Event) -> None:
        if event.kind == "started" or event.step not in self._ended:
            return
        self._ended[event.step] += 1
        now_s = time.monotonic()
        if now_s - self._said_s >= _QUIET_S and self._ended["probe"] < self._nodes:
            self._said_s = now_s
            installed, probed = self._ended["install"], self._ended["probe"]
            self._say(f"  {installed} of {self._nodes} nodes have the node script, {probed} have answered the probe")
