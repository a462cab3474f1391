"""`tokenpeak calibrate`: what the load client can measure, here or on the network path to a server."""

import contextlib
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tokenpeak.cli import completed
from tokenpeak.terminal import echo, echo_text


@click.command(name="calibrate", short_help="Measure the load client's own error on the path to a server.")
@click.option("--streams", type=int, multiple=True, help="Streams to try; may be given several times.")
@click.option("--rate", "rates", type=float, multiple=True, help="Tokens per second of each stream.")
@click.option("--seconds", type=float, default=4.0, show_default=True, help="How long each point is measured.")
@click.option("--tls", is_flag=True, help="Over https, with a certificate made for it.")
@click.option(
    "--inventory",
    "inventory_name",
    type=completed.INVENTORY,
    help="From its load hosts, to a test server put on its node.",
)
@click.option("--node", "node_name", help="Which node of the inventory; the first when not given.")
@click.option("--through", "url", help="To a test server (see --serve) at this URL: behind a proxy, a tunnel.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Certificates to trust besides the system's.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--serve", metavar="ADDRESS:PORT", help="Serve the timetable there until Ctrl-C, and measure nothing.")
def calibrate(serve: str | None, **given: Any) -> None:
    """Measure the load client's error against the test server and keep it for that network path."""
    from tokenpeak.loadgen.calibration import network_path as module

    if serve is not None:
        _serve(serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        setup, server = _prepared(given, Path(folder))
        if given["url"] is not None and given["rates"]:
            raise click.UsageError("The rate is that of the server at --through; leave --rate out.")
        found = module.calibrate(
            lambda point: echo(f"{point.streams} streams: measured", err=True),
            streams=given["streams"] or module.STREAMS,
            rates=given["rates"] or (module.TOKEN_RATE_PER_STREAM,),
            seconds=given["seconds"],
            setup=setup,
            server=server,
        )
    echo_text(module.as_text(found))


def _prepared(given: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """The network path that was asked for, and what serves at its end."""
    from tokenpeak.loadgen.calibration.network_path import NetworkPath, Setup
    from tokenpeak.loadgen.calibration.test_server_process import local_test_server, own_certificate

    url = given["url"]
    if given["tls"]:
        if url is not None or given["inventory_name"] is not None:
            raise click.UsageError("--tls is for this machine; give --through https://… for another path.")
        certificate = own_certificate(folder)
        return Setup(
            way=NetworkPath(tls=True), ca_file=certificate.certificate
        ), lambda ttft_s, itl_s: local_test_server(ttft_s, itl_s, certificate)
    if given["inventory_name"] is not None:
        setup, server = _on_node(given["inventory_name"], given["node_name"], placed=url is None)
    else:
        setup, server = Setup(), local_test_server
    if url is not None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        path = setup.way.model_copy(update={"tls": parts.scheme == "https", "server": str(parts.hostname)})
        trust = {"ca_file": given["ca_file"], "verify_tls": not given["insecure"]}
        return setup.model_copy(update={"way": path, **trust}), lambda _ttft_s, _itl_s: contextlib.nullcontext(url)
    return setup, server


def _on_node(inventory_name: str, node_name: str | None, *, placed: bool) -> tuple[Any, Any]:
    """The path from an inventory's load hosts to its node, which is probed only where the server is placed there."""
    from tokenpeak.errors import NodeError
    from tokenpeak.sweep.inventory.nodes import read_inventory
    from tokenpeak.sweep.probe import probe
    from tokenpeak.sweep.trial.load_hosts import node_server, node_setup, prepare_load_hosts

    inventory = read_inventory(inventory_name)
    node = inventory.node(node_name) if node_name else inventory.nodes[0]
    prepare_load_hosts(inventory, say=lambda line: echo(line, err=True))
    setup = node_setup(inventory, node)
    if not placed:
        return setup, None
    found = probe(inventory.limited_to((node.name,)))
    ready = found.answered.get(node.name)
    if ready is None:
        raise NodeError("\n".join(found.complaints()))
    return setup, lambda ttft_s, itl_s: node_server(inventory, node, ready, ttft_s, itl_s)


def _serve(where: str) -> None:
    from tokenpeak.loadgen.calibration.network_path import TOKEN_RATE_PER_STREAM, TTFT_S
    from tokenpeak.loadgen.calibration.test_server_process import serving_argv, started

    address, colon, port = where.rpartition(":")
    if not colon or not port.isdigit():
        raise click.UsageError(f"--serve takes an address and a port, such as 0.0.0.0:8099, not {where!r}.")
    with started(serving_argv(address, int(port), TTFT_S, 1 / TOKEN_RATE_PER_STREAM)) as bound:
        echo(f"A timetable is served at {address}:{bound}; Ctrl-C ends it.")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
