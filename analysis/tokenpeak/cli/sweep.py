"""`tokenpeak sweep`: the main job, from probing to a site; also its continuation with `--resume`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tokenpeak import paths
from tokenpeak.cli import options
from tokenpeak.cli.site import interruptible
from tokenpeak.errors import ArchiveError, DatabaseError, ExitStatus, IncompleteSiteError, ReportError
from tokenpeak.records import EndRecord
from tokenpeak.spec.endpoint import EndpointSpec
from tokenpeak.spec.sweep import SweepSpec, read_spec
from tokenpeak.store.archive import archive_below
from tokenpeak.sweep.controller import new_sweep, resume_sweep
from tokenpeak.sweep.interrupt import Interrupt, interrupt_on_signals
from tokenpeak.sweep.inventory.nodes import Inventory, read_inventory
from tokenpeak.sweep.limits import PER_CORE, default_parallel
from tokenpeak.sweep.probe import prepare
from tokenpeak.sweep.production_traffic import traffic_for
from tokenpeak.sweep.progress import ProgressDisplay
from tokenpeak.sweep.sweep_plan import plan_sweep
from tokenpeak.sweep.sweep_run import SweepOutcome
from tokenpeak.sweep.terminal_summary import plan_lines, summary_lines
from tokenpeak.sweep.trial.endpoint import endpoint_inventory, look_at
from tokenpeak.terminal import echo, echo_lines

_STOP_WORDS = {
    "gentle": "Ending: current trials are torn down and production is given back, which lasts until it answers. Again: "
    "at once.",
    "abrupt": "Aborting: only production is still given back. Again: even that is left to the nodes' guards.",
    "let go": "Left to the guards: the nodes give production back themselves when their lease has lapsed.",
}


@click.command(short_help="Find the best settings: probe, plan, try, restore, render.")
@options.inventory("Inventory to work on.")
@click.option("--sweep", "sweep_name", help="Sweep spec; the inventory's default when absent.")
@options.NODES
@click.option(
    "--resume",
    "sweep_id",
    help="Go on with this interrupted sweep instead of starting one.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    default=default_parallel,
    show_default=f"{PER_CORE} for each core here",
    help="How many nodes work at once; each takes some 100 MB of memory here.",
)
@click.option("--report/--no-report", "with_report", default=True, help="Afterwards load Postgres and build the site.")
def sweep(
    inventory_name: str,
    sweep_name: str | None,
    nodes: tuple[str, ...],
    sweep_id: str | None,
    *,
    parallel: int,
    with_report: bool,
) -> None:
    """Probe, plan, try every config, give production back, load, render. Exit status 0 only if all of it went well."""
    progress = ProgressDisplay()
    interrupt = Interrupt()
    with interrupt_on_signals(interrupt, lambda level: progress.say(_STOP_WORDS[level])):
        try:
            if sweep_id is not None:
                sweep_id = Path(sweep_id).name
                outcome = resume_sweep(
                    sweep_id, parallel=parallel, progress=progress, interrupt=interrupt, own_spec=sweep_name
                )
            else:
                outcome = _begin(inventory_name, sweep_name, nodes, parallel, progress, interrupt)
        finally:
            if interrupt.let_go() and interrupt.fenced is None:
                name = (
                    inventory_name
                    if sweep_id is None
                    else archive_below(paths.RESULTS, sweep_id).read_sweep().inventory
                )
                progress.say(f"Look with: tokenpeak status --inventory {name}")
    _conclude(outcome)
    if interrupt.gentle():
        echo(f"Results so far: {outcome.archive.path} (tokenpeak report makes their site)")
        echo(f"Interrupted. Go on with: tokenpeak sweep --resume {outcome.record.sweep_id}")
        sys.exit(ExitStatus.INTERRUPTED)
    if outcome.end.status != "completed":
        echo(f"Not completed. Go on with: tokenpeak sweep --resume {outcome.record.sweep_id}")
    echo_lines(["", f"Results: {outcome.archive.path}"])
    reported = _report(outcome, progress) if with_report else True
    if not (reported and outcome.is_success):
        sys.exit(ExitStatus.ERROR)


def _begin(
    inventory_name: str,
    sweep_name: str | None,
    nodes: tuple[str, ...],
    parallel: int,
    progress: ProgressDisplay,
    interrupt: Interrupt,
) -> SweepOutcome:
    """A new sweep; an inventory is read only where it names the sweep or its nodes are needed."""
    spec = read_spec(sweep_name) if sweep_name is not None else None
    if spec is None or spec.endpoint is None:
        inventory = read_inventory(inventory_name, nodes=nodes)
        spec = read_spec(options.sweep_of(inventory, sweep_name))
        if spec.endpoint is None:
            return _start(spec, inventory, parallel, progress, interrupt)
    return _measure(spec, spec.endpoint, progress, interrupt)


def _start(
    spec: SweepSpec, inventory: Inventory, parallel: int, progress: ProgressDisplay, interrupt: Interrupt
) -> SweepOutcome:
    probed = prepare(inventory, progress, interrupt)
    planned = plan_sweep(spec, inventory, probed)
    echo_lines(plan_lines(planned.plans))
    echo_lines(planned.notes)
    traffic = traffic_for(spec, inventory, probed, progress, interrupt)
    return new_sweep(
        planned, inventory, probed, parallel=parallel, progress=progress, interrupt=interrupt, traffic=traffic
    )


def _measure(spec: SweepSpec, endpoint: EndpointSpec, progress: ProgressDisplay, interrupt: Interrupt) -> SweepOutcome:
    """The sweep of a server that is there already."""
    progress.say(f"{endpoint.url} is measured as it is: nothing is launched or stopped, no node is touched")
    inventory, probed = endpoint_inventory(endpoint), look_at(endpoint)
    planned = plan_sweep(spec, inventory, probed)
    return new_sweep(planned, inventory, probed, parallel=1, progress=progress, interrupt=interrupt)


def _conclude(outcome: SweepOutcome) -> None:
    """Say what was found and how production stands."""
    if outcome.end.status != "completed":
        echo_lines(["", f"The sweep has not ended. This is what {len(outcome.trials)} trials show so far:"])
    echo_lines(summary_lines(outcome.record, outcome.spec, outcome.trials, outcome.archive.read_quality()))
    echo()
    echo_lines(downtime_lines(outcome.end))
    for node in outcome.end.unrestored:
        look = f"tokenpeak status --inventory {outcome.record.inventory}"
        echo(f"PROBLEM production of {node} is not known to be back: {look}")
    for problem in outcome.end.problems:
        echo(f"PROBLEM {problem.splitlines()[0]}")


def downtime_lines(end: EndRecord) -> Iterator[str]:
    """How long production of each node was down; of one that was not seen back, as far as is known."""
    down = {node: seconds for node, seconds in end.production_downtime_s.items() if seconds or node in end.unrestored}
    for node, seconds in down.items():
        if node not in end.unrestored:
            yield f"Production of {node} was down for {seconds:.0f} s in all."
        elif seconds:
            yield f"Production of {node} was down for at least {seconds:.0f} s in all, and was not seen back."
        else:
            yield f"Production of {node} was not seen back; for how long it was down is not known."
    if len(down) > 1:
        yield f"That is {sum(down.values()):.0f} s for the sweep."


def _report(outcome: SweepOutcome, progress: ProgressDisplay) -> bool:
    """Load Postgres and build the site of this and all former sweeps; false when the site could not be built.

    Raw files are kept in any case.
    """
    # Imported here: notebooks and Postgres cost a second that measuring does not need.
    from tokenpeak.cli.site import documentation
    from tokenpeak.report.site.build import build_site, leave
    from tokenpeak.store.database import open_database
    from tokenpeak.store.frames import open_frames

    try:
        with open_database(archives=[outcome.archive.path]) as database:
            database.ingest(open_frames([outcome.archive.path]))
            progress.say(f"Loaded into {database.description}")
    except DatabaseError as error:
        echo(f"PROBLEM Postgres was not loaded; tokenpeak ingest does it later: {error}")
    try:
        with interruptible(lambda: leave(paths.SITE_BUILD), said="Interrupted; tokenpeak report builds the site."):
            page = build_site([paths.RESULTS], paths.SITE_BUILD, docs=documentation())
    except IncompleteSiteError as error:
        echo(f"PROBLEM {error}")
        if outcome.record.sweep_id in error.names:
            return False
        page = error.page
    except (ArchiveError, ReportError) as error:
        echo(f"PROBLEM the site was not built; tokenpeak report does it later: {error}")
        return False
    echo(f"Site:    {page.parent / outcome.record.sweep_id / 'index.html'}")
    echo(f"         {page} lists all sweeps")
    return True
