"""Calibration on a sweep's network paths: from the inventory's load hosts to a node's own address.

The test server stands on the node for as long as it takes, at the address and port where the engine would be, and
without root. Production goes on serving beside it.
"""

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit

from tokenpeak.errors import NodeError
from tokenpeak.loadgen.calibration import HERE, NetworkPath, Setup
from tokenpeak.loadgen.test_server_process import program, serving_argv, started
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.sweep.channels import channel_argvs
from tokenpeak.sweep.inventory import Inventory, Node
from tokenpeak.sweep.load_hosts import load_hosts
from tokenpeak.sweep.probe import ReadyNode


def network_paths(inventory: Inventory, endpoint: EndpointSpec | None) -> list[NetworkPath]:
    """The network paths of a sweep's requests; to nodes of this machine it is one."""
    names = tuple(host.name for host in inventory.load_hosts)
    if endpoint is not None:
        parts = urlsplit(endpoint.url)
        return [NetworkPath(load_hosts=names, tls=parts.scheme == "https", server=str(parts.hostname))]
    servers = dict.fromkeys(HERE if node.is_local else node.name for node in inventory.nodes)
    return [NetworkPath(load_hosts=names, server=server) for server in servers]


def calibrate_command(inventory: Inventory, endpoint: EndpointSpec | None) -> str:
    """What to do about a network path that no calibration covers, or a level that is beyond it."""
    if endpoint is not None:
        return "See tokenpeak calibrate --help: --through measures the path to a server of yours."
    if inventory.load_hosts or not all(node.is_local for node in inventory.nodes):
        return f"make calibrate INVENTORY={inventory.name} measures the load generator's error."
    return "make calibrate measures the load generator's error."


def node_setup(inventory: Inventory, node: Node) -> Setup:
    """How a calibration on the path to this node is carried out."""
    names = tuple(host.name for host in inventory.load_hosts)
    path = NetworkPath(load_hosts=names, server=HERE if node.is_local else node.name)
    return Setup(way=path, hosts=load_hosts(inventory))


def node_server(
    inventory: Inventory, node: Node, ready: ReadyNode, ttft_s: float, itl_s: float
) -> AbstractContextManager[str]:
    """A test server at the engine's address on the node; raises NodeError where none can be made for it."""
    host, port = str(ready.declaration["host"]), int(ready.declaration["port"])
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise NodeError(
            f"{host!r}, where the engine of {node.name} listens, has no IPv4 address, and the test server knows "
            f"no other ({error}). Set tokenpeak_host to one while you calibrate."
        ) from error
    if node.is_local:
        return _serving(serving_argv(address, port, ttft_s, itl_s), b"", host)
    built = program("-static") or program()
    if built is None:
        raise NodeError("The test server for a node is a C program, and no compiler is here: apt-get install gcc.")
    binary = built.read_bytes()
    serve = f"{address} {port} {ttft_s * 1e3} {itl_s * 1e3}"
    script = (
        f'echo && d=$(mktemp -d) && trap "rm -rf $d" EXIT && head -c {len(binary)} >$d/timetable && '
        f"chmod +x $d/timetable && $d/timetable {serve}"
    )
    argv = channel_argvs(inventory, {node.name: ["sh", "-c", script]})[node.name]
    return _serving(argv, binary, host)


@contextmanager
def _serving(argv: list[str], binary: bytes, host: str) -> Iterator[str]:
    with started(argv, binary) as port:
        yield f"http://{host}:{port}"
