"""`tokenpeak demo`: a sweep of simulated nodes on this computer, ending with a site."""

import os
import sys
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import require_own_folders
from tokenpeak.cli.init import make_folder
from tokenpeak.cli.sweep import sweep
from tokenpeak.terminal import echo

_FOLDER = Path("tokenpeak-demo")
"""Where the demonstration goes when it is started outside of a working folder."""


@click.command(short_help="Sweep simulated nodes on this computer; ends with a site.")
@click.option("--end", "is_end", is_flag=True, help="End the simulated servers that a demonstration leaves running.")
@click.pass_context
def demo(ctx: click.Context, *, is_end: bool) -> None:
    """Sweep four simulated nodes on this computer; results are marked as simulated everywhere.

    Works in the working folder; outside of one, it makes the folder tokenpeak-demo. The simulated servers go on running
    on loopback addresses, as production should; --end ends them.
    """
    if is_end:
        from tokenpeak.sim.end import main

        main()
        return
    if paths.IS_INSTALLED and paths.INVENTORIES == paths.EXAMPLE_INVENTORIES:
        make_folder(_FOLDER, ())
        # A process of its own: where results go is settled on import.
        os.environ.pop("TOKENPEAK_HOME", None)
        os.chdir(_FOLDER)
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-P", "-c", "from tokenpeak.cli import main; main()", "demo"])  # noqa: S606
    require_own_folders()
    ctx.invoke(sweep, inventory_name="sim", with_report=True)
    echo("The simulated servers go on running; tokenpeak demo --end ends them.")
