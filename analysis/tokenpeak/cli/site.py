"""`tokenpeak report`: build the site from archives."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenpeak import paths
from tokenpeak.cli import options
from tokenpeak.errors import ExitStatus, InputError
from tokenpeak.terminal import echo

if TYPE_CHECKING:
    from tokenpeak.docs.writer import Documentation

YOUNG = (200_000, 50, 100)
"""Thresholds of the garbage collector: frames and charts live until their page is written, and few of them are cyclic.

Python's own (700, 10, 10) have it look through all of them again and again, a tenth of a build's time.
"""


def documentation() -> "Documentation":
    """What writes the documentation into a site."""
    from tokenpeak.cli import tokenpeak
    from tokenpeak.docs.writer import Documentation

    return Documentation(commands=tokenpeak)


@contextmanager
def interruptible(
    last: Callable[[], None], *, said: str = "Interrupted.", status: ExitStatus = ExitStatus.INTERRUPTED
) -> Iterator[None]:
    """In the block, SIGINT and SIGTERM call `last`, say `said` and end the process with `status`.

    A KeyboardInterrupt does not get through: Polars turns one that is raised in a callback into a panic, and IPython
    one that is raised in a notebook's cell into the error of that cell.
    """

    def end(*_: object) -> None:
        last()
        # The handler may have come in the middle of a print, whose buffer must not be entered again.
        os.write(sys.stderr.fileno(), f"{said}\n".encode())
        os._exit(status)

    former = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@click.command(short_help="Build the site from archives.")
@click.argument(
    "archives",
    nargs=-1,
    type=options.ARCHIVE,
    help="Archive folders or .tar.zst files; results/ when absent.",
)
@click.option("--output", type=click.Path(path_type=Path), default=paths.SITE_BUILD, help="Folder of the site.")
@click.option("--node-names", is_flag=True, help="Show everything but secrets, nodes under their own names.")
@click.option("--texts", is_flag=True, help="Show engine logs and free text too, with names replaced.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter for the notebooks: objective=ttft_s_p95, pue=1.1. May be repeated.",
)
def report(
    archives: tuple[Path, ...], output: Path, parameters: tuple[str, ...], *, node_names: bool, texts: bool
) -> None:
    """Build the site from ARCHIVES (default: results); needs no database, node or network."""
    with _seldom_collected():
        from tokenpeak.report.site.build import build_site, leave

        # Absolute now: a notebook runs in the folder of its page.
        place = output.absolute()
        with interruptible(lambda: leave(place)):
            given = _given(parameters)
            page = build_site(
                archives or (paths.RESULTS,),
                output,
                node_names=node_names,
                texts=texts,
                parameters=given,
                docs=documentation(),
                say=echo,
            )
    echo(f"Open {page}")


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """The garbage collector at the thresholds of YOUNG, and afterwards as it was."""
    before = gc.get_threshold()
    gc.set_threshold(*YOUNG)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _given(parameters: tuple[str, ...]) -> dict[str, str]:
    """Name → value; one without a sign or given twice is an InputError."""
    parameters_by_name: dict[str, str] = {}
    for text in parameters:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InputError(f"--param {text!r} is no NAME=VALUE, such as pue=1.1.")
        if name in parameters_by_name:
            raise InputError(
                f"--param gives {name} twice: {parameters_by_name[name]!r} and {value!r}. Give one of them."
            )
        parameters_by_name[name] = value
    return parameters_by_name


@click.command(short_help="Send the built site to where it is served.")
@click.argument("target", type=click.Choice(["dir", "rsync", "ghpages", "s3"]))
@click.argument("destination")
@click.option("--site", type=click.Path(path_type=Path), default=paths.SITE_BUILD, help="Folder of the built site.")
@click.option("--dry-run", is_flag=True, help="Say what would leave, and send nothing.")
@click.option("--texts", is_flag=True, help="Send engine logs and free text too, of a site that was built with them.")
@click.option("--keep-everything", is_flag=True, help="Send a site that names machines, people or secrets as it is.")
def publish(target: str, destination: str, site: Path, *, dry_run: bool, texts: bool, keep_everything: bool) -> None:
    """Send the built site to DESTINATION by TARGET, after checking its links, its files and what it names."""
    from tokenpeak.report.site import publish as publishing

    publishing.publish(
        site, target, destination, dry_run=dry_run, say=echo, texts=texts, keep_everything=keep_everything
    )


@click.command(short_help="Serve the site while a sweep runs.")
@click.argument("archives", nargs=-1, type=options.ARCHIVE)
@click.option("--output", type=click.Path(path_type=Path), default=paths.SITE_BUILD, help="Folder of the site.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8050, show_default=True, help="0 takes a free one.")
@click.option("--node-names", is_flag=True, help="Show everything but secrets, nodes under their own names.")
@click.option("--texts", is_flag=True, help="Show engine logs and free text too, with names replaced.")
def serve(archives: tuple[Path, ...], output: Path, host: str, port: int, *, node_names: bool, texts: bool) -> None:
    """Serve the site of ARCHIVES (default: results) while a sweep runs; ends with Ctrl-C.

    It asks nobody who they are: every user of this machine can read the site, nodes' names too with --node-names.

    /metrics says how sweeps stand, for Prometheus; alert rules on it are in analysis/examples/alerts.yml.
    """
    from tokenpeak.report.site import live
    from tokenpeak.report.site.build import leave
    from tokenpeak.report.site.live import exposition

    output.mkdir(parents=True, exist_ok=True)
    read = tuple(path.absolute() for path in archives or (paths.RESULTS,))
    listening = live.server(output, host, port, lambda: exposition(read, node_names=node_names))
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    echo(f"http://{host}:{listening.server_address[1]}/ and, while a sweep runs, /live.html; for Prometheus, /metrics")
    # Absolute now: a notebook runs in the folder of its page.
    place = output.absolute()
    with interruptible(lambda: leave(place), said="Stopped; the site stays where it is.", status=ExitStatus.GOOD):
        live.watch(
            read,
            output,
            node_names=node_names,
            texts=texts,
            docs=documentation(),
            stop=threading.Event(),
            say=echo,
        )


@click.command(short_help="Write this documentation and say where.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the pages; one in the state folder when absent. A site that is there is replaced.",
)
def docs(output: Path | None) -> None:
    """Write the documentation of this version as pages that open in a browser, without a network.

    Each site that `report` and `sweep` build has the same pages.
    """
    from tokenpeak.report.site.build import build_site, leave

    place = (output or paths.state_dir() / "documentation").absolute()
    with interruptible(lambda: leave(place)):
        build_site([], place, docs=documentation())
    echo(f"Open {place / 'docs' / 'index.html'}")
