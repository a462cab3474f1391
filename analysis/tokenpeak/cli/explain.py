"""`tokenpeak explain`: what a sweep's trials say of its predictions, its hardware and its settings."""

from pathlib import Path

import click

from tokenpeak.cli import completed
from tokenpeak.plan.matrix import served_models
from tokenpeak.results.prediction_accuracy import hindsight_lines
from tokenpeak.search.highest import searched
from tokenpeak.search.history import history_of
from tokenpeak.spec.sweep import parse_spec
from tokenpeak.store.archive import Archive, find_archives
from tokenpeak.terminal import echo, echo_lines


@click.command(short_help="Compare predictions with measurements; say what binds.")
@click.argument("archives", nargs=-1, required=True, type=completed.ARCHIVE)
def explain(archives: tuple[Path, ...]) -> None:
    """Compare the predictions of ARCHIVES (folders or .tar.zst) with what was measured.

    Says what binds the fastest config on each kind of hardware, and what to try.
    """
    found = find_archives(list(archives))
    for stored in found:
        if len(found) > 1:
            echo(stored.path.name)
        _explain(stored)


def _explain(stored: Archive) -> None:
    record = stored.read_sweep()
    spec = parse_spec(record.spec, stored.path / "sweep.json")
    trials = list(stored.judged_trials())
    nodes = {node.node: node for node in record.nodes}
    for plan in record.plans:
        echo(f"{plan.hardware} on {', '.join(plan.nodes)}{' (simulated)' if record.simulated else ''}")
        left = searched(plan, history_of(trials, spec, plan.hardware))
        lines = hindsight_lines(spec, left, nodes[plan.nodes[0]], trials, served_models([plan]))
        echo_lines(f"  {line}" for line in lines or ["no trial gave an objective run"])
