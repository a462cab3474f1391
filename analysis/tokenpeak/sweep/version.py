"""Version check: whether a node's script is this controller's, by the digest in each of its answers."""

import functools

from tokenpeak.node.bundle import script_digest
from tokenpeak.node.protocol.answers import NodeAnswer
from tokenpeak.sweep.inventory import Inventory


@functools.cache
def own_script() -> str:
    """The digest of the node script that this controller installs."""
    return script_digest()


def is_another(answer: NodeAnswer) -> bool:
    """Whether the answer came from a script of another version; one that says no digest is older."""
    return answer.script != own_script()


def renewal(inventory: Inventory, node: str) -> str:
    """What is wrong with a node whose script is of another version, and what to do."""
    as_root = " INSTALL_USER=root" if inventory.node(node).guard_command else ""
    return (
        "its node script is of another version than this controller's: "
        f"make install INVENTORY={inventory.name}{as_root}"
    )
