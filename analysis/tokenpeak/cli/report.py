"""`tokenpeak report`: build the site from archives."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import completed
from tokenpeak.cli.interruptible import interruptible
from tokenpeak.errors import InputError
from tokenpeak.terminal import echo

YOUNG = (200_000, 50, 100)
"""Thresholds of the garbage collector: frames and charts live until their page is written, and few of them are cyclic.

Python's own (700, 10, 10) have it look through all of them again and again, a tenth of a build's time.
"""


@click.command(short_help="Build the site from archives.")
@click.argument(
    "archives",
    nargs=-1,
    type=completed.ARCHIVE,
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
        from tokenpeak.cli.documentation import documentation
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
    found: dict[str, str] = {}
    for text in parameters:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InputError(f"--param {text!r} is no NAME=VALUE, such as pue=1.1.")
        if name in found:
            raise InputError(f"--param gives {name} twice: {found[name]!r} and {value!r}. Give one of them.")
        found[name] = value
    return found
