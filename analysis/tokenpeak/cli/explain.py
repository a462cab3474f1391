"""`tokenpeak explain`: what a sweep's trials say of its predictions, its hardware and its settings."""

from pathlib import Path

import click

from tokenpeak.plan.hindsight import hindsight_lines
from tokenpeak.plan.matrix import model_facts_of
from tokenpeak.plan.spec import ModelSpec, parse_spec
from tokenpeak.search.highest import searched
from tokenpeak.search.history import history_of
from tokenpeak.store.raw import Archive


@click.command()
@click.argument("archive", type=click.Path(path_type=Path, exists=True, file_okay=False))
def explain(archive: Path) -> None:
    """Compare ARCHIVE's predictions with what was measured, and say what binds its fastest config and what to try."""
    stored = Archive(archive)
    record = stored.read_sweep()
    spec = parse_spec(record.spec, archive / "sweep.json")
    trials = list(stored.trials())
    nodes = {node.node: node for node in record.nodes}
    for plan in record.plans:
        names = {planned.config.model.name for planned in plan.feasible}
        models = model_facts_of(spec, ModelSpec(name=next(iter(names), "unknown")))
        click.echo(f"{plan.hardware} on {', '.join(plan.nodes)}{' (simulated)' if record.simulated else ''}")
        left = searched(plan, history_of(trials, spec, plan.hardware))
        lines = hindsight_lines(spec, left, nodes[plan.nodes[0]], trials, models)
        for line in lines or ["no trial gave an objective run"]:
            click.echo(f"  {line}")
