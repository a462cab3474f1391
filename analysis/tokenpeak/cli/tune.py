"""`tokenpeak tune`: one machine from nothing to a decision, without an inventory of one's own."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenpeak import paths
from tokenpeak.cli.init import begin_again, write_inventory
from tokenpeak.errors import InputError
from tokenpeak.paths import is_name
from tokenpeak.terminal import echo, echo_lines

if TYPE_CHECKING:
    from tokenpeak.predict.model import ModelFacts
    from tokenpeak.records import NodeFacts
    from tokenpeak.spec.sweep import SweepSpec
    from tokenpeak.sweep.sweep_plan import SweepPlan

_THIS_MACHINE = "localhost"


@click.command(short_help="Tune one machine: look at it, ask, sweep, show.")
@click.argument("model", required=False)
@click.option("--host", default=_THIS_MACHINE, help="[USER@]HOST as ssh takes it; this machine when absent.")
@click.option("--inventory", "inventory_name", help="Name of what is kept; by the host when absent.")
@click.option("--port", default=8000, show_default=True, help="Where production answers there.")
@click.option("--engine", help="vLLM's program there, where it lies in no usual place.")
@click.option("--sweep", "sweep_name", help="Sweep spec; one that fits the GPUs when absent.")
@click.option("--yes", is_flag=True, help="Begin without asking.")
@click.pass_context
def tune(
    ctx: click.Context,
    model: str | None,
    host: str,
    inventory_name: str | None,
    port: int,
    engine: str | None,
    sweep_name: str | None,
    *,
    yes: bool,
) -> None:
    """Find the best settings of MODEL on one machine: what production serves there when no model is given.

    MODEL is a name on the hub, or a folder there. Looks at the machine, says what it would do and for how long
    production is down, and asks. What was found is kept as an inventory, for `status`, `restore` and the next sweep.
    """
    address = host.rpartition("@")[2]
    name = inventory_name or _name_of(address)
    folder = paths.INVENTORIES / name
    if not folder.is_dir():
        written = _look(name, host, port, model, engine)
        if written.resolve() != folder.resolve():
            begin_again(*sys.argv[1:])
    elif f"    {address}:" not in (folder / "hosts.yml").read_text().splitlines():
        raise InputError(f"{folder} has no host {address}. Give another name by --inventory.")
    else:
        ignored = "" if model is None else f" {model} changes nothing in it."
        echo(f"As {folder} says, which was written or corrected before.{ignored}")
        from tokenpeak.sweep.inventory.checks import inventory_mistakes

        _require_settled(folder, [str(mistake) for mistake in inventory_mistakes(folder)])
    _begin(ctx, name, folder, model, sweep_name, is_agreed=yes)


def _name_of(address: str) -> str:
    """An inventory's name, which stands in addresses of pages: without a domain or a network's numbers."""
    if address == _THIS_MACHINE:
        return "this-machine"
    first = address.partition(".")[0]
    return "tuned" if first.isdecimal() or not is_name(first) else first


def _look(name: str, host: str, port: int, model: str | None, engine: str | None) -> Path:
    """Look at the machine and write its inventory; the folder."""
    command = " ".join(
        ["tokenpeak tune", *([model] if model else []), *([f"--host {host}"] if host != _THIS_MACHINE else [])]
    )
    written = write_inventory((host,), name, port, command, model=model, engine=engine)
    _require_settled(written.folder, written.mistakes)
    return written.folder


def _require_settled(folder: Path, mistakes: list[str]) -> None:
    """Raise InputError where an inventory has a mistake, or a guess that nobody has settled yet."""
    if mistakes:
        echo_lines(f"PROBLEM {each}" for each in mistakes)
        raise InputError(f"Nothing was touched. Settle this in {folder}, then run this again.")


def _begin(
    ctx: click.Context, name: str, folder: Path, model: str | None, sweep_name: str | None, *, is_agreed: bool
) -> None:
    from tokenpeak.cli.plan import prospects, readable
    from tokenpeak.cli.probe import probe
    from tokenpeak.cli.sweep import sweep
    from tokenpeak.sweep.probe import known_facts

    inventory, spec = readable(name, sweep_name)
    facts = known_facts(inventory)
    served = facts[0].model
    if model is not None and served is not None and model.rpartition("/")[2] != served.name.rpartition("/")[2]:
        raise InputError(
            f"{folder} is for {served.name}. Write {model} there as tokenpeak_model, or remove the folder."
        )
    models, planned = _plan(spec, facts)
    if not any(one.feasible for one in planned.plans) and any(fact.source == "probed" for fact in facts):
        echo("No config can work there by what the last probe found: probing again.")
        ctx.invoke(probe, inventory_name=name)
        facts = known_facts(inventory)
        models, planned = _plan(spec, facts)
    if not any(one.feasible for one in planned.plans):
        raise InputError(f"No config can work there: tokenpeak plan --inventory {name} says why.")
    _, outlines = prospects(planned.spec, planned.plans, facts, models, inventory.idle)
    echo(f"Tunes {served.name if served else 'the model'} by sweep {spec.name}: {spec.description or 'no description'}")
    echo_lines(f"Will do: {words}" for words in outlines)
    if len(inventory.idle) < len(inventory.nodes):
        echo(f"Production comes back by itself, whatever happens here: tokenpeak restore --inventory {name}")
    if not is_agreed:
        if not sys.stdin.isatty():
            raise InputError("Nobody can be asked here. Give --yes to begin.")
        click.confirm("Begin?", abort=True)
    ctx.invoke(sweep, inventory_name=name, sweep_name=sweep_name, with_report=True)


def _plan(spec: "SweepSpec", facts: "Sequence[NodeFacts]") -> "tuple[dict[str, ModelFacts | None], SweepPlan]":
    """The models' facts by name, and the plan of the sweep."""
    from tokenpeak.cli.plan import known_models
    from tokenpeak.sweep.sweep_plan import plan_nodes

    models = known_models(spec, facts)
    return models, plan_nodes(spec, facts, {each: known for each, known in models.items() if known is not None})
