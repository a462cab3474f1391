"""Channels: connections that are kept open, by the commands with which Ansible's own plugins would run there."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenpeak.errors import NodeError
from tokenpeak.sweep.inventory import Inventory
from tokenpeak.sweep.runner import run_playbook

Argvs = dict[str, list[str]]
"""Host → the command of this machine that runs something there, by its connection and become plugins."""


def channel_argvs(
    inventory: Inventory, words: Mapping[str, Sequence[str]], *, cancelled: Callable[[], bool] = lambda: False
) -> Argvs:
    """How each of these hosts runs its words; raises NodeError for one whose connection cannot be kept open."""
    if not words:
        return {}
    extravars = {"tokenpeak_channel_words": {name: list(of_host) for name, of_host in words.items()}}
    return _argvs(inventory, tuple(words), extravars, cancelled)


def lease_argvs(
    inventory: Inventory, nodes: Sequence[str], extravars: Mapping[str, Any], *, cancelled: Callable[[], bool]
) -> Argvs:
    """How each of these nodes' leases is renewed, with these rights; raises NodeError as `channel_argvs` does."""
    return _argvs(inventory, nodes, extravars, cancelled)


def _argvs(
    inventory: Inventory, hosts: Sequence[str], extravars: Mapping[str, Any], cancelled: Callable[[], bool]
) -> Argvs:
    done = run_playbook("channel.yml", inventory, nodes=hosts, extravars=extravars, cancelled=cancelled)
    for name, result in done.nodes.items():
        if not result.ok or not result.argv:
            raise NodeError(f"{name}: {result.failure or result.unreachable or 'nothing was asked of it'}.")
    return {name: list(result.argv) for name, result in done.nodes.items()}
