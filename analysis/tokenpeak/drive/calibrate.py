"""Calibration on the way that a sweep's requests take: from the inventory's load hosts to a node's own address.

The timetable server stands on the node for as long as it takes, at the address and port where the engine would be, and
without root. Production goes on serving beside it.
"""

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit

from tokenpeak.drive.inventory import Inventory, Node
from tokenpeak.drive.lease import host_command
from tokenpeak.drive.load_hosts import load_hosts
from tokenpeak.drive.probe import ReadyNode
from tokenpeak.errors import NodeError
from tokenpeak.load.calibrate import HERE, Setup, Way
from tokenpeak.load.timetable import program, serving_argv, started
from tokenpeak.plan.endpoint import EndpointSpec


def ways(inventory: Inventory, endpoint: EndpointSpec | None) -> list[Way]:
    """The ways that a sweep's requests take; to nodes of this machine it is one."""
    names = tuple(host.name for host in inventory.load_hosts)
    if endpoint is not None:
        parts = urlsplit(endpoint.url)
        return [Way(load_hosts=names, tls=parts.scheme == "https", server=str(parts.hostname))]
    servers = dict.fromkeys(HERE if node.is_local else node.name for node in inventory.nodes)
    return [Way(load_hosts=names, server=server) for server in servers]


def calibrate_command(inventory: Inventory, endpoint: EndpointSpec | None) -> str:
    """What to do about a way that no calibration covers, or a level that is beyond it."""
    if endpoint is not None:
        return "See tokenpeak calibrate --help: --through measures the way to a server of yours."
    if inventory.load_hosts or not all(node.is_local for node in inventory.nodes):
        return f"make calibrate INVENTORY={inventory.name} tells what can be measured."
    return "make calibrate tells what can be measured."


def node_setup(inventory: Inventory, node: Node) -> Setup:
    """How a calibration on the way to this node is carried out."""
    names = tuple(host.name for host in inventory.load_hosts)
    way = Way(load_hosts=names, server=HERE if node.is_local else node.name)
    return Setup(way=way, hosts=load_hosts(inventory))


def node_server(node: Node, ready: ReadyNode, ttft_s: float, itl_s: float) -> AbstractContextManager[str]:
    """A timetable server at the engine's address on the node; raises NodeError where none can be made for it."""
    host, port = str(ready.declaration["host"]), int(ready.declaration["port"])
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise NodeError(
            f"{host!r}, where the engine of {node.name} listens, has no IPv4 address, and the timetable server knows "
            f"no other ({error}). Set tokenpeak_host to one while you calibrate."
        ) from error
    if node.is_local:
        return _serving(serving_argv(address, port, ttft_s, itl_s), b"", host)
    built = program("-static") or program()
    if built is None:
        raise NodeError("The timetable server for a node is a C program, and no compiler is here: apt-get install gcc.")
    binary = built.read_bytes()
    serve = f"{address} {port} {ttft_s * 1e3} {itl_s * 1e3}"
    script = (
        f'd=$(mktemp -d) && trap "rm -rf $d" EXIT && head -c {len(binary)} >$d/timetable && '
        f"chmod +x $d/timetable && $d/timetable {serve}"
    )
    return _serving(host_command(node, ["sh", "-c", script]), binary, host)


@contextmanager
def _serving(argv: list[str], binary: bytes, host: str) -> Iterator[str]:
    with started(argv, binary) as port:
        yield f"http://{host}:{port}"
