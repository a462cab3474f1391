"""`tokenpeak serve`: the site on this machine, built again as trials land."""

import threading
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import completed
from tokenpeak.cli.interruptible import interruptible
from tokenpeak.exit_status import ExitStatus
from tokenpeak.terminal import echo


@click.command(short_help="Serve the site while a sweep runs.")
@click.argument("archives", nargs=-1, type=completed.ARCHIVE)
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
    from tokenpeak.cli.documentation import documentation
    from tokenpeak.report.exposition import exposition
    from tokenpeak.report.site import live
    from tokenpeak.report.site.build import leave

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
