"""Load balancers that a node can leave and come back to: one class per kind, all with the same few verbs."""

from __future__ import annotations

from tokenpeak.node import root_programs
from tokenpeak.node.balancers.base import Balancer
from tokenpeak.node.balancers.commands import CommandBalancer
from tokenpeak.node.balancers.haproxy import HaproxyBalancer
from tokenpeak.node.balancers.kubernetes import KubernetesBalancer
from tokenpeak.node.balancers.nginx import NginxBalancer
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers.base import Manager
from tokenpeak.node.shown import shown_value
from tokenpeak.node.state import Json

BUILT_IN: dict[str, type[Balancer]] = {
    "haproxy": HaproxyBalancer,
    "nginx": NginxBalancer,
    "kubernetes": KubernetesBalancer,
}


def make_balancer(declared: Json, manager: Manager) -> Balancer:
    """The balancer that the inventory's tokenpeak_drain names; ScriptError where it names none, or two."""
    named = [name for name in (*BUILT_IN, "before") if name in declared]
    if len(named) != 1:
        raise ScriptError(
            "declaration",
            f"tokenpeak_drain names {' and '.join(named) or 'no balancer'}: give one of {', '.join(BUILT_IN)}, or the "
            "commands before and after.",
        )
    if named == ["before"]:
        return _own(CommandBalancer(declared, manager))
    own = declared[named[0]]
    if not isinstance(own, dict):
        raise ScriptError("declaration", f"tokenpeak_drain.{named[0]} is {shown_value(own)}: give its keys.")
    return _own(BUILT_IN[named[0]](own, manager))


def _own(balancer: Balancer) -> Balancer:
    """The balancer; raises ScriptError where it would have root run or load what others can write."""
    root_programs.require("tokenpeak_drain", balancer.files())
    return balancer
